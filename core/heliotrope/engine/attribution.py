"""Sharing out what a counter shows, to the last mJ."""

from collections.abc import Sequence
from dataclasses import dataclass

from heliotrope.units import joules_from_watts, millijoules_from_joules

_SCALE = 1 << 48
"""Weights become whole numbers of this resolution, so that no rounding of floats can make or lose a mJ."""


def largest_remainder(total: int, weights: Sequence[float]) -> list[int]:
    """Whole parts of a whole in proportion to weights; they add up to it exactly (method of Hamilton).

    Args:
        total: what is shared out; 0 or more.
        weights: one per part; finite, 0 or more, not all 0 unless `total` is.

    Returns:
        The parts, in the order of the weights; equal remainders go to the earlier part.

    Raises:
        ValueError: if there is something to share and nobody to get it, or a weight is negative, infinite or NaN.
    """
    heaviest = max(weights, default=0.0)
    if not all(0.0 <= weight < float("inf") for weight in weights):
        raise ValueError("weights must be finite and not negative")
    if heaviest <= 0.0:
        if total:
            raise ValueError("all weights are 0")
        return [0] * len(weights)
    shares = [round(weight / heaviest * _SCALE) for weight in weights]
    whole = sum(shares)
    parts, remainders = [], []
    for index, share in enumerate(shares):
        part, remainder = divmod(total * share, whole)
        parts.append(part)
        remainders.append((-remainder, index))
    for _, index in sorted(remainders)[: total - sum(parts)]:
        parts[index] += 1
    return parts


@dataclass(frozen=True, slots=True)
class Split:
    """One interval's energy in mJ; `parts`, `idle` and `unattributed` add up to what was split."""

    parts: tuple[int, ...]
    idle: int
    unattributed: int


def split(
    millijoules: int, weights: Sequence[float], *, idle_watts: float, idle_seconds: float, seconds: float
) -> Split:
    """Share an interval's energy between those who worked in it and idle time.

    Args:
        millijoules: what the counters rose by.
        weights: the joules that each worker is believed to have caused; only their ratios count.
        idle_watts: standing power without work.
        idle_seconds: time without work. Idle energy is never more than this share of the whole: an engine that works
            draws no less than one that does not.
        seconds: length of the interval.

    Returns:
        Without any work: all idle if the whole interval was idle; else what is not idle is nobody's.
    """
    idle_share = 1.0 if seconds <= 0.0 else min(max(idle_seconds / seconds, 0.0), 1.0)
    working = any(weight > 0.0 for weight in weights)
    if not working and idle_share >= 1.0:
        return Split((0,) * len(weights), millijoules, 0)
    idle = max(
        min(round(millijoules_from_joules(joules_from_watts(idle_watts, idle_seconds))), int(millijoules * idle_share)),
        0,
    )
    rest = millijoules - idle
    if not working:
        return Split((0,) * len(weights), idle, rest)
    return Split(tuple(largest_remainder(rest, weights)), idle, 0)
