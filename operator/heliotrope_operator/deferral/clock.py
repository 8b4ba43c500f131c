"""The time, corrected by what the API server was seen to have reached.

Deadlines are kept by this process's clock. One that runs behind would start Jobs late; the creation times that the API
server stamps on objects show that it does, as none of them lies in the future. One that runs ahead starts Jobs early,
which costs carbon and no deadline.
"""

from collections.abc import Callable


class ServerClock:
    """Never behind the newest creation time that it has seen, and time since then."""

    def __init__(self, unix_clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._unix_clock = unix_clock
        self._monotonic = monotonic
        self._seen: tuple[float, float] | None = None

    def saw(self, created_unix_s: float) -> None:
        """An object with this creation time exists."""
        now = self._monotonic()
        if self._seen is None or created_unix_s > self._seen[0] + now - self._seen[1]:
            self._seen = (created_unix_s, now)

    def now_unix_s(self) -> float:
        """The time."""
        own = self._unix_clock()
        return own if self._seen is None else max(own, self._seen[0] + self._monotonic() - self._seen[1])

    def behind_s(self) -> float:
        """How far this process's clock is known to be behind."""
        return max(self.now_unix_s() - self._unix_clock(), 0.0)
