"""Energy over slots of time: evenly over its interval, in whole millijoules, nothing lost."""

from collections.abc import Sequence
from itertools import pairwise
from math import floor, isfinite

MAX_SLOTS = 288
"""An interval over more slots than this (a day of five minutes) is put into evenly spaced ones."""


def slots(start_unix_s: float, end_unix_s: float, slot_seconds: int) -> list[tuple[int, float]]:
    """The slots that an interval touches, each with the share of the interval that falls into it; shares sum to 1.

    An interval without a length, or one that ends before it starts because a clock was set, is in the slot of its end.

    Raises:
        ValueError: if a time is not finite.
    """
    if not (isfinite(start_unix_s) and isfinite(end_unix_s)):
        raise ValueError(f"no interval of time: {start_unix_s} to {end_unix_s}")
    first, last = floor(start_unix_s / slot_seconds), floor(end_unix_s / slot_seconds)
    length = end_unix_s - start_unix_s
    if length <= 0.0 or first == last:
        return [(last * slot_seconds, 1.0)]
    stride = -(-(last - first + 1) // MAX_SLOTS)
    edges = [start_unix_s, *(k * slot_seconds for k in range(first + stride, last + 1, stride)), end_unix_s]
    found = [
        ((first + i * stride) * slot_seconds, (until - since) / length)
        for i, (since, until) in enumerate(pairwise(edges))
    ]
    return found if found[-1][1] > 0.0 else found[:-1]


def split(total: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to the shares, whose sum is exactly the total."""
    parts, given, passed = [], 0, 0.0
    for share in shares[:-1]:
        passed += share
        until = max(given, min(total, floor(total * passed))) if total >= 0 else -max(-given, floor(-total * passed))
        parts.append(until - given)
        given = until
    parts.append(total - given)
    return parts
