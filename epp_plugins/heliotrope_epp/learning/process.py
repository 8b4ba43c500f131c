"""A job in a process of its own: low priority, one thread, a time limit, and an end together with its parent."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence

from heliotrope.errors import HeliotropeError

COMMAND = (sys.executable, "-m", "heliotrope_epp.learning.child")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_LAST_CHARACTERS = 500


class JobError(HeliotropeError):
    """A job gave no result. `reason` is one of `start`, `timeout`, `killed`, `failed`, `stopped`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class JobProcess:
    """Runs one job at a time. `run` blocks, so it is called on a thread; `stop` may be called from any other."""

    def __init__(self, timeout_s: float, command: Sequence[str] = COMMAND) -> None:
        self._timeout_s = timeout_s
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Process id of the job that runs now."""
        process = self._process
        return None if process is None else process.pid

    def run(self, job: bytes) -> bytes:
        """Give `job` to the standard input of a new process and return what it prints.

        Raises:
            JobError: if it cannot start, takes too long, is killed or fails; the message ends as its log does.
        """
        process = self._start()
        try:
            printed, log = process.communicate(job, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            raise JobError("timeout", f"it took longer than {self._timeout_s:g} s") from None
        except OSError as error:
            raise JobError("failed", f"its pipes broke: {error}") from error
        finally:
            self._end(process)
        if self._stopped:
            raise JobError("stopped", "it was stopped because its parent stops")
        if process.returncode < 0:
            raise JobError("killed", f"signal {-process.returncode} ended it")
        if process.returncode:
            raise JobError("failed", f"exit code {process.returncode}: {_last(log)}")
        return printed

    def stop(self) -> None:
        """Kill the job that runs, and start no other."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise JobError("stopped", "its parent stops")
            try:
                process = subprocess.Popen(
                    [*self._command, str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **_ONE_THREAD},
                    start_new_session=True,
                )
            except OSError as error:
                raise JobError("start", f"it cannot be started: {error}") from error
            self._process = process
            return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with self._lock:
            self._process = None


def _last(log: bytes) -> str:
    lines = log.decode(errors="replace").strip().splitlines()
    return (lines[-1] if lines else "it said nothing")[-_LAST_CHARACTERS:]
