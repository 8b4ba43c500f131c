"""How sources are asked economically: long spans page by page, forecasts more seldom than values."""

from collections.abc import Awaitable, Callable, Iterator

from heliotrope.carbon.series import Point
from heliotrope.errors import SignalUnavailableError


def pages(start_unix_s: float, end_unix_s: float, page_s: float) -> Iterator[tuple[float, float]]:
    """Spans of at most `page_s` that make up [start, end)."""
    while start_unix_s < end_unix_s:
        page_end = min(start_unix_s + page_s, end_unix_s)
        yield start_unix_s, page_end
        start_unix_s = page_end


class SeldomForecast:
    """A forecast that is asked for at its own interval; without an answer the last one stays."""

    def __init__(self, every_s: float) -> None:
        """`every_s`: seconds between two questions, also after a failure."""
        self._every_s = every_s
        self._asked_unix_s: float | None = None
        self.points: list[Point] = []
        """The newest that there was; its points pass."""
        self.failure: str | None = None
        """Why the newest question gave none."""

    async def renew(self, ask: Callable[[], Awaitable[list[Point]]], now_unix_s: float) -> None:
        """Ask if it is time to."""
        asked = self._asked_unix_s
        if asked is not None and 0.0 <= now_unix_s - asked < self._every_s:
            return
        self._asked_unix_s = now_unix_s
        try:
            self.points, self.failure = await ask(), None
        except SignalUnavailableError as error:
            self.failure = str(error)
