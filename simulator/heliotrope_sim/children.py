"""Child processes that end with their parent, log to a file and are stopped in order."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from heliotrope.errors import HeliotropeError

LOG_TAIL_BYTES = 4_000

# Asks the kernel to kill this process with its parent, then becomes the program. A parent that died before is noticed.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
if sys.platform == "linux":
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != parent:
    sys.exit("parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ChildError(HeliotropeError):
    """A child process did not start or ended early; the message ends with its log."""


class Child:
    """A running program. Linux ends it together with the thread that started it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._process = process

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], log_path: Path, env: Mapping[str, str] | None = None
    ) -> "Child":
        """Start a program in its own session, so that Ctrl-C reaches only its parent; stderr goes to the log.

        Standard output is a pipe that `first_line` reads; a program that prints more must print little.
        """
        with log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                "-c",
                _DIE_WITH_PARENT,
                str(os.getpid()),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        return cls(name, process, log_path)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to it."""
        self._process.send_signal(number)

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until it has ended.

        Raises:
            TimeoutError: if it has not in time.
        """
        async with asyncio.timeout(timeout_seconds):
            await self._process.wait()

    async def first_line(self, timeout_seconds: float) -> str:
        """The first line that it prints.

        Raises:
            ChildError: if it ends or stays silent.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_seconds):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise ChildError(f"{self.name} was not ready within {timeout_seconds:g} s; {self.log_tail()}") from None
        if not line:
            code = await self._process.wait()
            raise ChildError(f"{self.name} ended with exit code {code}; {self.log_tail()}")
        return line.decode().strip()

    def log_end(self) -> str:
        """The last lines of its log."""
        return self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        """The end of its log, as a sentence for error messages."""
        tail = self.log_end()
        return f"its log {self.log_path} ends:\n{tail}" if tail else f"its log {self.log_path} is empty"

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """SIGTERM, then SIGKILL. Does nothing the second time."""
        if not self.running:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it at once, as a crash would. Does nothing the second time."""
        if self.running:
            self._process.kill()
            await self._process.wait()
