"""Signals and other reasons to look up from waiting."""

import contextlib
import os
import select
import signal
from types import FrameType


class Stop:
    """Whether the process was asked to end, and a wait that ends early when it is.

    The handler sets a flag and nothing else. A second signal changes nothing: restoring is not to be cut short.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.requested = False

    def install(self) -> None:
        """Take SIGTERM and SIGINT as requests to end, and ignore SIGHUP; from the main thread."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # Whoever starts us may have blocked them, so that one that comes before this moment waits and does not kill.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))

    def wake(self) -> None:
        """End the present wait, or the next; from any thread."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake as it is
            os.write(self._write, b"w")

    def wait(self, timeout_s: float) -> None:
        """Wait, unless a signal or `wake` comes or has come."""
        if not self.requested:
            select.select([self._read], [], [], max(0.0, timeout_s))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the form of a handler
        self.requested = True
