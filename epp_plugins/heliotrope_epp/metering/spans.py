"""Spans of time, such as those in which an engine works, some of which still go on."""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable

_NEVER = float("inf")


class Spans:
    """Their union is what counts. Times are monotonic."""

    def __init__(self) -> None:
        self._begun: dict[Hashable, float] = {}
        self._ended: list[tuple[float, float]] = []
        """In order, without touching each other."""

    def __len__(self) -> int:
        """How many go on or are remembered."""
        return len(self._begun) + len(self._ended)

    def begin(self, key: Hashable, start_s: float) -> None:
        """A span begins, or turns out to have begun at another time."""
        self._begun[key] = start_s

    def end(self, key: Hashable, end_s: float) -> None:
        """It ends; nothing if it had not begun."""
        start_s = self._begun.pop(key, None)
        if start_s is not None:
            self.add(start_s, end_s)

    def add(self, start_s: float, end_s: float) -> None:
        """A span that has ended; one without length is none."""
        if end_s <= start_s:
            return
        first = bisect_left(self._ended, start_s, key=lambda span: span[1])
        last = bisect_right(self._ended, end_s, key=lambda span: span[0])
        if first < last:
            start_s, end_s = min(start_s, self._ended[first][0]), max(end_s, self._ended[last - 1][1])
        self._ended[first:last] = [(start_s, end_s)]

    def seconds(self, start_s: float, end_s: float, since_s: float = _NEVER) -> float:
        """How much of a time lies in spans; `since_s`: all of it from then on does."""
        since_s = min(max(min(since_s, self._since_s()), start_s), end_s)
        before = sum(max(min(b, since_s) - max(a, start_s), 0.0) for a, b in self._ended)
        return before + end_s - since_s

    def start_of(self, seconds: float, end_s: float, earliest_s: float) -> float:
        """When something began that took so long outside the spans and ended at `end_s`; `earliest_s` or later."""
        at_s = min(end_s, self._since_s())
        for a, b in reversed(self._ended):
            if b <= earliest_s or at_s - b >= seconds:
                break
            seconds -= max(at_s - b, 0.0)
            at_s = min(at_s, a)
        return max(at_s - seconds, earliest_s)

    def forget(self, until_s: float) -> None:
        """Forget those that had ended by then."""
        del self._ended[: bisect_right(self._ended, until_s, key=lambda span: span[1])]

    def _since_s(self) -> float:
        return min(self._begun.values(), default=_NEVER)
