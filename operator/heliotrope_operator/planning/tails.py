"""The tail of latencies: what engines' histograms have grown by lately, and the quantile that promises are meant for.

A window must hold enough requests to tell it: with few of them a longer window is taken, and then it is unknown.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heliotrope.power.latency import PROMISE_QUANTILE

LEAST_REQUESTS = 100.0
"""Below it the slowest hundredth is less than one request."""
WINDOW_S = 120.0
LONG_WINDOWS = 2.5
"""The longer window, as a multiple of the first."""
SNAPSHOTS = 4
"""In one window."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram: of an engine's life, as its page shows it, or of a window of time."""

    upper_seconds: tuple[float, ...]
    """Upper bounds, ascending; the last one, which is infinite, is left out."""
    cumulative: tuple[float, ...]
    """How many were at most as long as each bound, then how many there were; one more than bounds."""

    @property
    def count(self) -> float:
        """How many there were."""
        return self.cumulative[-1]


@dataclass(frozen=True, slots=True)
class Recent:
    """What one engine's histogram has grown by in the last window and in the longer one."""

    short: Buckets
    long: Buckets


class TailMemory:
    """Remembers one histogram of one engine for as long as the longer window."""

    __slots__ = ("_snapshots", "_upper")

    def __init__(self) -> None:
        self._upper: tuple[float, ...] = ()
        self._snapshots: deque[tuple[float, array[float]]] = deque()

    def take(self, now_s: float, buckets: Buckets | None, window_s: float) -> Recent | None:
        """A new reading.

        An engine that has just been seen for the first time has grown by nothing: what came before is not of now. One
        whose counts have fallen is another engine.

        Args:
            now_s: monotonic.
            buckets: None where the engine tells no histogram.
            window_s: the first window.
        """
        if buckets is None:
            self._snapshots.clear()
            return None
        newest = array("d", buckets.cumulative)
        last = self._snapshots[-1][1] if self._snapshots else None
        if buckets.upper_seconds != self._upper or (
            last is not None and any(now < before for now, before in zip(newest, last, strict=True))
        ):
            self._snapshots.clear()
            self._upper = buckets.upper_seconds
        if not self._snapshots or now_s - self._snapshots[-1][0] >= window_s / SNAPSHOTS:
            self._snapshots.append((now_s, newest))
        # One at or before the beginning of the longer window stays.
        while len(self._snapshots) > 1 and self._snapshots[1][0] <= now_s - LONG_WINDOWS * window_s:
            self._snapshots.popleft()
        return Recent(self._since(now_s - window_s, newest), self._since(now_s - LONG_WINDOWS * window_s, newest))

    def _since(self, start_s: float, newest: "array[float]") -> Buckets:
        before = self._snapshots[0][1]
        for time_s, snapshot in self._snapshots:
            if time_s > start_s:
                break
            before = snapshot
        return Buckets(self._upper, tuple(now - then for now, then in zip(newest, before, strict=True)))


def tail_seconds(engines: Iterable[Recent | None]) -> float | None:
    """The promise's quantile over all engines of a variant, in seconds.

    None: an engine tells no histogram, their bounds differ, or there were too few requests.
    """
    known = list(engines)
    if not known or any(each is None for each in known):
        return None
    recent = [each for each in known if each is not None]
    for grown in ([each.short for each in recent], [each.long for each in recent]):
        if any(each.upper_seconds != grown[0].upper_seconds for each in grown):
            return None
        cumulative = [sum(counts) for counts in zip(*(each.cumulative for each in grown), strict=True)]
        if cumulative[-1] >= LEAST_REQUESTS:
            return quantile(grown[0].upper_seconds, cumulative, PROMISE_QUANTILE)
    return None


def quantile(upper_seconds: Sequence[float], cumulative: Sequence[float], share: float) -> float:
    """The value that a share of all is not above, taken as evenly spread within a bucket.

    Args:
        upper_seconds: bounds, ascending, at least one.
        cumulative: counts up to each bound, then all of them, which must be more than none.
        share: in (0, 1].

    Returns:
        The highest bound where the value is beyond it: at least so much.
    """
    wanted, below, lower = share * cumulative[-1], 0.0, 0.0
    for upper, count in zip(upper_seconds, cumulative, strict=False):
        if count >= wanted and count > below:
            return lower + (upper - lower) * (wanted - below) / (count - below)
        below, lower = count, upper
    return upper_seconds[-1]
