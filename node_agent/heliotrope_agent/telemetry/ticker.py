"""A thread that does something at fixed times."""

import logging
import threading
import time
from collections.abc import Callable
from math import floor

_log = logging.getLogger(__name__)


class Ticker:
    """Calls `tick` at `start + n · period`, so that no delay adds up.

    A call that comes late comes at once; times that have passed altogether are left out and counted.
    """

    def __init__(
        self, name: str, period_s: float, tick: Callable[[], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._period_s = period_s
        self._tick = tick
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.ticks = 0
        """Calls that have ended."""
        self.missed = 0
        """Times that were left out."""
        self.defects = 0
        """Calls that failed in a way nobody has foreseen."""

    def start(self) -> None:
        """Begin, with a call at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> bool:
        """End; tells whether it has ended in time."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        start_s, turn = self._clock(), 0
        while not self._stop.wait(max(start_s + turn * self._period_s - self._clock(), 0.0)):
            try:
                self._tick()
            except Exception:  # noqa: BLE001 - a defect in one reading must not end all of them
                self.defects += 1
                _log.exception("%s failed; it goes on", self._thread.name)
            self.ticks += 1
            due = next_turn(turn, self._clock() - start_s, self._period_s)
            self.missed += due - turn - 1
            turn = due


def next_turn(turn: int, elapsed_s: float, period_s: float) -> int:
    """The turn after this one: the next, or the newest whose time has come.

    Args:
        turn: number of the one that has just ended.
        elapsed_s: time since turn 0 was due.
        period_s: from one to the next.
    """
    return max(turn + 1, floor(elapsed_s / period_s))
