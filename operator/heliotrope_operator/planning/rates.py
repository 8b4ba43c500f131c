"""From totals that only grow to rates per second, over restarts of whoever counts."""

from collections.abc import Mapping
from dataclasses import dataclass

LONGEST_GAP_S = 300.0
"""Between two readings that are further apart than this, a rate says nothing about now."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals of one counter at one time."""

    time_s: float
    since: float
    """Identifies the life in which they grow, for instance its start; another one begins from zero."""
    totals: Mapping[str, float]


def increases(before: Reading | None, now: Reading, *, from_zero: bool) -> Mapping[str, float] | None:
    """How much each total has grown between two readings of the same thing.

    One that has fallen was counted anew, whatever `since` says.

    Args:
        before: an earlier reading.
        now: the newest.
        from_zero: whether a total that was not there before has grown from zero; else its growth is left out.

    Returns:
        None: there is nothing to compare with, or the readings are out of order.
    """
    if before is None or not before.time_s < now.time_s <= before.time_s + LONGEST_GAP_S:
        return None
    if before.since != now.since:
        return dict(now.totals)
    grown = {}
    for name, total in now.totals.items():
        if name not in before.totals and not from_zero:
            continue
        earlier = before.totals.get(name, 0.0)
        grown[name] = total - earlier if total >= earlier else total
    return grown


class Meter:
    """Rates of one thing's totals. Holds the last reading."""

    __slots__ = ("_before", "_from_zero")

    def __init__(self, *, from_zero: bool = True) -> None:
        """`from_zero`: see `increases`."""
        self._from_zero = from_zero
        self._before: Reading | None = None

    def per_second(self, now: Reading) -> Mapping[str, float] | None:
        """Rates since the last reading; None where there is none to compare with. Takes the reading in."""
        before, grown = self._before, increases(self._before, now, from_zero=self._from_zero)
        if before is not None and now.time_s <= before.time_s:
            return None
        self._before = now
        if before is None or grown is None:
            return None
        seconds = now.time_s - before.time_s
        return {name: amount / seconds for name, amount in grown.items()}
