"""Runs a program until standard input closes, then ends it with everything that it started, and waits for that.

    python guard.py COMMAND ARGUMENT…

vLLM is several processes, and all but the first outlive a killed API server. Whoever holds the other end of the pipe
may be killed too: the kernel then closes it. Ends with the program's exit code. Linux only.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

TERM_SECONDS = 20.0
KILL_SECONDS = 10.0
POLL_SECONDS = 0.1
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Run a command until it ends or standard input closes."""
    # Orphans of the program become children of this process, so that it knows when all are gone.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    leader = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True).pid
    code: int | None = None
    try:
        while code is None and not select.select([0], [], [], POLL_SECONDS)[0]:
            code = _reap().get(leader)
    finally:
        _end(leader)
    return code if code is not None else 0


def _reap() -> dict[int, int]:
    """Exit codes of the processes that have ended since the last call."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def _end(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader, signal.SIGTERM)
        _until(lambda gone: leader in gone, TERM_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)  # what the leader left, or itself
    _until(lambda _: not _children(), KILL_SECONDS)


def _until(condition: Callable[[dict[int, int]], bool], seconds: float) -> None:
    """Wait for a condition on the processes that have just ended."""
    deadline = time.monotonic() + seconds
    while not condition(_reap()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
