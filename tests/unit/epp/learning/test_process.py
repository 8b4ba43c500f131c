import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from heliotrope_epp.learning.process import JobError, JobProcess


def python(program: str, timeout_s: float = 20.0) -> JobProcess:
    return JobProcess(timeout_s, (sys.executable, "-I", "-S", "-c", program))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_goes_in_and_a_result_comes_out() -> None:
    job = bytes(range(256)) * 4_096
    echo = python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")
    assert echo.run(job) == job[::-1]
    assert echo.pid is None


def test_it_has_one_thread() -> None:
    assert python("import os; print(os.environ['OMP_NUM_THREADS'])").run(b"") == b"1\n"


@pytest.mark.parametrize(
    ("program", "reason", "says"),
    [
        ("import sys; sys.stdin.read(); raise ValueError('no trees')", "failed", "exit code 1: ValueError: no trees"),
        ("import sys; sys.exit(3)", "failed", "exit code 3: it said nothing"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed", "signal 11"),
        ("import os; os.close(0); os._exit(4)", "failed", "exit code 4"),
    ],
)
def test_failures_have_a_reason(program: str, reason: str, says: str) -> None:
    with pytest.raises(JobError, match=says) as error:
        python(program).run(b"x" * 1_000_000)
    assert error.value.reason == reason


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(JobError, match="cannot be started") as error:
        JobProcess(1.0, ("/nowhere/python",)).run(b"")
    assert error.value.reason == "start"


def test_too_long_is_killed() -> None:
    process = python("import time; time.sleep(60)", timeout_s=0.2)
    pids: list[int | None] = []
    watch = threading.Timer(0.1, lambda: pids.append(process.pid))
    watch.start()
    with pytest.raises(JobError, match=r"longer than 0\.2 s") as error:
        process.run(b"")
    watch.join()
    assert error.value.reason == "timeout"
    assert pids[0] is not None
    assert not alive(pids[0])


def test_stop_kills_what_runs_and_nothing_starts_after() -> None:
    process = python("import time; time.sleep(60)")
    threading.Timer(0.1, process.stop).start()
    with pytest.raises(JobError) as error:
        process.run(b"")
    assert error.value.reason == "stopped"
    with pytest.raises(JobError, match="its parent stops"):
        process.run(b"")


@pytest.mark.slow
def test_a_job_does_not_outlive_a_killed_parent() -> None:
    program = (
        "import sys, threading, time; from heliotrope_epp.learning.process import COMMAND, JobProcess\n"
        "code = 'import sys; from heliotrope_epp.learning.child import die_with_parent; '"
        " 'die_with_parent(int(sys.argv[1])); import time; time.sleep(60)'\n"
        "p = JobProcess(60, (sys.executable, '-c', code))\n"
        "threading.Thread(target=p.run, args=(b'',), daemon=True).start()\n"
        "while p.pid is None: time.sleep(0.01)\n"
        "time.sleep(0.7); print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 10.0
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not alive(pid)
