"""The training process: reads one job from standard input, writes its result to standard output, and ends.

It is started as `python -m heliotrope_epp.learning.child PARENT_PID` by `heliotrope_epp.learning.process`.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LOWEST_PRIORITY = 19


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process with the thread that started it; ends now if the parent is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("parent is gone")


def main() -> None:
    """Train."""
    die_with_parent(int(sys.argv[1]))
    os.nice(_LOWEST_PRIORITY)
    job = sys.stdin.buffer.read()
    # Here, so that a process whose parent is gone never loads the libraries.
    from heliotrope_epp.learning.jobs import run

    result = run(job)
    sys.stdout.buffer.write(result)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
