"""The guard ends everything that its program started, whoever dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guard needs Linux")

GUARD = Path(__file__).with_name("guard.py")
FAMILY = """
import os, subprocess, sys, time
{setup}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(300)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def start(program: str, **settings: object) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A guard over a parent and a child, and their process ids."""
    # The patience with SIGTERM is cut, so that a stubborn program doesn't cost twenty seconds.
    run = f"import sys; sys.path.insert(0, {str(GUARD.parent)!r}); import guard; guard.TERM_SECONDS = 1.0; "
    guard = subprocess.Popen(
        [sys.executable, "-c", run + "sys.exit(guard.main(sys.argv[1:]))", sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert guard.stdout is not None
    pids = [int(word) for word in guard.stdout.readline().split()]
    assert len(pids) == 2
    return guard, pids


def finish(guard: subprocess.Popen[bytes]) -> int:
    """Close the pipe and wait."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    guard.stdin.close()
    code = guard.wait(30)
    guard.stdout.close()
    return code


def alive(pids: list[int]) -> list[int]:
    """Those that run; a process that nobody has waited for is a zombie and does not."""
    return [pid for pid in pids if _state(pid) not in ("", "Z")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone, before or while it was read
        return ""


@pytest.mark.parametrize("setup", ["", STUBBORN], ids=["willing", "stubborn"])
def test_all_are_gone_when_the_pipe_closes(setup: str) -> None:
    guard, pids = start(FAMILY.format(setup=setup))
    assert alive(pids) == pids
    finish(guard)
    assert alive(pids) == []


def test_orphans_of_a_killed_program_are_ended_too() -> None:
    guard, (parent, child) = start(FAMILY.format(setup=""))
    os.kill(parent, signal.SIGKILL)
    guard.wait(30)
    finish(guard)
    assert alive([parent, child]) == []


def test_all_are_gone_when_the_test_run_is_killed() -> None:
    run = (
        "import subprocess, sys, time\n"
        f"guard = subprocess.Popen([sys.executable, {str(GUARD)!r}, sys.executable, '-c', {FAMILY.format(setup='')!r}],"
        " stdin=subprocess.PIPE)\n"
        "time.sleep(300)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    pids = [int(word) for word in killed.stdout.readline().split()]
    killed.kill()
    killed.wait()
    deadline = time.monotonic() + 30
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.stdout.close()
    assert alive(pids) == []


def test_it_ends_with_the_programs_exit_code() -> None:
    command = [sys.executable, str(GUARD), sys.executable, "-c", "import sys; sys.exit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
        assert guard.wait(30) == 7
