"""How long it takes until a session's next turn comes, if one comes: learned per class of requests and per session."""

from collections import OrderedDict
from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

EDGES: Column = np.concatenate([[0.0], 2.0 ** np.arange(13)])
"""Seconds: 0, 1, 2, 4, … 4096. Later returns count as none: nothing is held for so long."""
BINS = len(EDGES) - 1
MEMORY_SECONDS = 3_600.0
"""Turns count e^(−age / this)."""
POOL_WEIGHT = 8.0
"""Turns that the broader distribution counts for beside a class's own."""
SESSION_WEIGHT = 3.0
"""Gaps that the class counts for beside a session's own."""
PRIOR_RETURN_SHARE, PRIOR_MEAN_SECONDS = 0.5, 60.0
"""Before anything is learned: every other turn has a next one, after a minute on average."""


@dataclass(frozen=True, slots=True)
class ReturnTimes:
    """Probability that the next turn has come, by seconds since the last one ended."""

    by: Column
    """At the `EDGES`: starts at 0, never falls, ends at the probability of a return within the last edge."""

    def hazard(self) -> Column:
        """Returns per second within each bin, of those that have not returned before."""
        waiting = 1.0 - self.by[:-1]
        gained = np.diff(self.by)
        rate: Column = gained / np.maximum(waiting, 1e-12) / np.diff(EDGES)
        return rate

    def after(self, seconds: float) -> "ReturnTimes":
        """The same of a session that has not returned for so long, counted from then on."""
        if seconds <= 0.0:
            return self
        gone = self.probability(seconds)
        if gone >= 1.0:
            return ReturnTimes(np.zeros(len(EDGES)))
        later = np.interp(EDGES + seconds, EDGES, self.by)
        return ReturnTimes(np.clip((later - gone) / (1.0 - gone), 0.0, 1.0))

    def probability(self, seconds: float) -> float:
        """Of a return within a time."""
        return float(np.interp(seconds, EDGES, self.by))


def exponential(return_share: float, mean_seconds: float) -> ReturnTimes:
    """Returns with a constant rate among those that return at all."""
    return ReturnTimes(return_share * -np.expm1(-EDGES / max(mean_seconds, 1e-3)))


def of_session(of_class: ReturnTimes, mean_gap_seconds: float, gaps: int) -> ReturnTimes:
    """A session's own pace beside its class's; unknown (NaN) or no gaps leave the class's."""
    if gaps <= 0 or not mean_gap_seconds >= 0.0:
        return of_class
    weight = gaps / (gaps + SESSION_WEIGHT)
    own = exponential(float(of_class.by[-1]), mean_gap_seconds)
    return ReturnTimes((1.0 - weight) * of_class.by + weight * own.by)


class _Counts:
    __slots__ = ("as_of_s", "ended", "returned")

    def __init__(self) -> None:
        self.ended = 0.0
        self.returned = np.zeros(BINS)
        self.as_of_s = 0.0

    def fade(self, now_s: float) -> None:
        keep = exp(-max(now_s - self.as_of_s, 0.0) / MEMORY_SECONDS)
        self.ended *= keep
        self.returned *= keep
        self.as_of_s = now_s


class GapDistribution:
    """Counts of turns that ended and of gaps, by class; both fade alike, so that their ratio holds in steady state."""

    def __init__(self, max_classes: int = 256) -> None:
        self._max_classes = max_classes
        self._pool = _Counts()
        self._classes: OrderedDict[str, _Counts] = OrderedDict()
        self.forgotten_total = 0
        """Classes dropped because there were too many."""

    def ended(self, name: str, now_s: float) -> None:
        """A turn of a session of this class ended."""
        for counts in self._of(name, now_s):
            counts.ended += 1.0

    def returned(self, name: str, gap_seconds: float, now_s: float) -> None:
        """The next turn came so long after the end of the last; others than finite times of 0 or more teach nothing."""
        if not 0.0 <= gap_seconds < EDGES[-1]:
            return
        b = int(np.searchsorted(EDGES, gap_seconds, side="right")) - 1
        for counts in self._of(name, now_s):
            counts.returned[b] += 1.0

    def times(self, name: str) -> ReturnTimes:
        """What is known of the class, shrunk towards all classes and these towards the prior."""
        pool = _shrunk(self._pool, exponential(PRIOR_RETURN_SHARE, PRIOR_MEAN_SECONDS))
        own = self._classes.get(name)
        return pool if own is None else _shrunk(own, pool)

    def __len__(self) -> int:
        return len(self._classes)

    def _of(self, name: str, now_s: float) -> tuple[_Counts, _Counts]:
        own = self._classes.get(name)
        if own is None:
            own = self._classes[name] = _Counts()
            if len(self._classes) > self._max_classes:
                self._classes.popitem(last=False)
                self.forgotten_total += 1
        self._classes.move_to_end(name)
        for counts in (own, self._pool):
            counts.fade(now_s)
        return own, self._pool


def _shrunk(counts: _Counts, broader: ReturnTimes) -> ReturnTimes:
    share = np.concatenate([[0.0], np.cumsum(counts.returned)])
    # Returns of turns that ended before anything was counted may outnumber the ends.
    ended = max(counts.ended, float(share[-1]))
    return ReturnTimes((share + POOL_WEIGHT * broader.by) / (ended + POOL_WEIGHT))
