"""Starts `heliotrope` many times without paying for its imports each time.

Run as a program: it loads the command once and forks a child for each line on standard input, a JSON object with `id`,
`arguments`, `environment` and `log`. Each child is a process of its own, with its own signals, that runs the command as
any other. Lines on standard output say `{"id", "pid"}`, and `{"pid", "code"}` when one has ended (a negative code: by
that signal).
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1


class Started:
    """A process."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self.code: int | None = None
        self.ended = threading.Event()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            if not self.ended.is_set():
                os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """The exit code, once it has ended."""
        if not self.ended.wait(timeout_s):
            raise AssertionError(f"pid {self.pid} has not ended in {timeout_s} s; its log:\n{self.text()}")
        assert self.code is not None
        return self.code

    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text() if self.log.exists() else ""


class Zygote:
    """The program below, and the processes that it started."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is what the dynamic linker has to know at start."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.zygote"],
            cwd=_ROOT,
            env=os.environ | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._answers: dict[int, Queue[Started]] = {}
        self._logs: dict[int, Path] = {}
        self._started: dict[int, Started] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Started:
        """Run `heliotrope ARGUMENTS`."""
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number], self._logs[number] = Queue(), log
            request = {"id": number, "arguments": list(arguments), "environment": dict(environment), "log": str(log)}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answers[number].get(timeout=60.0)

    def close(self) -> None:
        """End every process that is left."""
        for each in self._started.values():
            each.signal(signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30.0)
        self._reader.join()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = json.loads(line)
            if "id" in found:
                started = Started(found["pid"], self._logs[found["id"]])
                self._started[started.pid] = started
                self._answers[found["id"]].put(started)
            else:
                ended = self._started.pop(found["pid"])
                ended.code = found["code"]
                ended.ended.set()


def _main() -> None:
    from heliotrope_agent import app  # noqa: F401 - loaded once, for all children
    from heliotrope_cli.main import build_app, main

    build_app().parse_args(["agent", "--node=n"])
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rest = b""
    while True:
        ready, _, _ = select.select([0, read], [], [])
        if read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(read, 4096)
            _reap()
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
                parent, pid = os.getpid(), os.fork()
                if pid == 0:
                    _child(request, main, parent)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
                _say({"id": request["id"], "pid": pid})


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _say(answer: Mapping[str, int]) -> None:
    os.write(1, (json.dumps(answer) + "\n").encode())


def _child(request: Mapping[str, Any], main: Any, parent: int) -> None:
    """Become the command, for as long as the program that started it lives."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was asked
            return
        # As the image's entrypoint does: a signal that comes too early waits until it is handled.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.environ.update(request["environment"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 256)
        main(request["arguments"])
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _main()
