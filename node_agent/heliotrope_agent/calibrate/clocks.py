"""Which clock to measure next, and which is best: pure functions of what was measured.

Joules per token fall with the clock as long as the work that a slower chip does per joule grows, and rise where
standing power has to be paid for longer: one valley. A few clocks over the whole range find it; then the widest gap
beside a point that may be the lowest is halved, until none is left, or the gaps are small and a parabola explains the
lowest point and its neighbours within their noise. The parabola is over the logarithm of the clock, in which the sum of
a rising and a falling power of the clock is even around its minimum.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from heliotrope_agent.calibrate.statistics import Parabola, parabola

LEAST_POINTS = 4
"""Of a parabola: three are met by any."""
ALIKE = 2.0
"""Standard errors of a difference within which two points are not told apart."""
BRIDGED_SHARE = 0.035
"""Gap beside the lowest that a parabola may bridge, as a share of the clock: over wider ones a kink hides in noise."""
SMOOTH_SHARE = 0.08
"""The same where the parabola explains so many points that there can be no kink among them."""
SMOOTH_POINTS = 6
LEAST_RELATIVE_DEVIATION = 1e-4
"""No mean is believed to be better than this share of it."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one clock."""

    mhz: int
    joules_per_token: float
    deviation: float
    """Standard error of the mean, in J/token; NaN: unknown."""


def spread_out(clocks: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the clocks, evenly spaced with both ends, descending; all of them if there are not more.

    Args:
        clocks: that can be set, ascending, without doubles.
        count: how many, at least 1; one alone is the highest.
    """
    if count >= len(clocks):
        return tuple(reversed(clocks))
    if count == 1:
        return (clocks[-1],)
    last = len(clocks) - 1
    return tuple(clocks[last - round(i * last / (count - 1))] for i in range(count))


def next_clock(points: Sequence[Point], clocks: Sequence[int]) -> int | None:
    """The clock whose measurement tells most about where the minimum is.

    Args:
        points: what was measured, at different clocks; any order.
        clocks: that may be measured, ascending.

    Returns:
        None if the minimum is known within one step, or as well as the noise allows.
    """
    ordered = sorted(points, key=lambda point: point.mhz)
    valley = _valley(ordered)
    bridged = 0.0
    if valley is not None:
        bridged = SMOOTH_SHARE if valley.points >= SMOOTH_POINTS else BRIDGED_SHARE
    gaps = []
    for below, above in _beside(ordered, _candidates(ordered)):
        between = clocks[bisect_left(clocks, below.mhz + 1) : bisect_left(clocks, above.mhz)]
        if between and above.mhz / below.mhz > 1.0 + bridged:
            gaps.append(between)
    if gaps:
        widest = max(gaps, key=lambda gap: gap[-1] / gap[0])
        return widest[len(widest) // 2]
    if valley is None:
        return None
    wanted = _nearest(clocks, _vertex_mhz(valley, ordered))
    return None if any(point.mhz == wanted for point in ordered) else wanted


def smoothed(points: Sequence[Point]) -> dict[int, float]:
    """J/token by clock: as measured, but along the parabola where one explains the lowest and its neighbours.

    So clocks that noise alone tells apart are in the order that all of them together tell.
    """
    ordered = sorted(points, key=lambda point: point.mhz)
    found = {point.mhz: point.joules_per_token for point in ordered}
    if ordered and (valley := _valley(ordered)) is not None:
        for point in ordered:
            if valley.covers[0] <= math.log(point.mhz) <= valley.covers[1]:
                found[point.mhz] = valley.at(math.log(point.mhz))
    return found


def best_clock(points: Sequence[Point]) -> int:
    """The clock of least J/token.

    Raises:
        ValueError: if nothing was measured.
    """
    found = smoothed(points)
    if not found:
        raise ValueError("nothing was measured")
    return min(found, key=lambda mhz: (found[mhz], -mhz))


def equals(points: Sequence[Point]) -> tuple[int, ...]:
    """Clocks that noise does not tell from the best, ascending; the best is one of them."""
    values, best = smoothed(points), best_clock(points)
    deviations = {point.mhz: point.deviation for point in points}
    return tuple(
        mhz
        for mhz in sorted(values)
        if mhz == best or values[mhz] - values[best] <= ALIKE * math.hypot(deviations[mhz], deviations[best])
    )


def _candidates(ordered: Sequence[Point]) -> list[int]:
    """Places of points that may be the lowest, as far as the noise tells."""
    if not ordered:
        return []
    lowest = ordered[_lowest(ordered)]
    return [
        i
        for i, point in enumerate(ordered)
        if point is lowest
        or point.joules_per_token - lowest.joules_per_token <= ALIKE * math.hypot(point.deviation, lowest.deviation)
    ]


def _beside(ordered: Sequence[Point], places: Sequence[int]) -> list[tuple[Point, Point]]:
    """Neighbours of which one is at one of the places."""
    return [(ordered[i], ordered[i + 1]) for i in range(len(ordered) - 1) if i in places or i + 1 in places]


def _lowest(ordered: Sequence[Point]) -> int:
    return min(range(len(ordered)), key=lambda i: ordered[i].joules_per_token)


def _valley(ordered: Sequence[Point]) -> Parabola | None:
    """The parabola through the lowest point and as many of its neighbours as it explains; None if it explains too few.

    The more points, the better is the minimum of a smooth curve known; around a kink only few points are explained.
    """
    if not ordered or any(math.isnan(point.deviation) for point in ordered):
        return None
    lowest = _lowest(ordered)
    for reach in range(max(lowest, len(ordered) - 1 - lowest), 1, -1):
        near = ordered[max(lowest - reach, 0) : lowest + reach + 1]
        if len(near) < LEAST_POINTS:
            return None
        fit = parabola(
            [math.log(point.mhz) for point in near],
            [point.joules_per_token for point in near],
            [max(point.deviation, point.joules_per_token * LEAST_RELATIVE_DEVIATION) for point in near],
        )
        inside = fit.minimum is not None and math.log(near[0].mhz) <= fit.minimum <= math.log(near[-1].mhz)
        if fit.fits and inside:
            return fit
    return None


def _vertex_mhz(fit: Parabola, ordered: Sequence[Point]) -> float:
    assert fit.minimum is not None
    lowest = _lowest(ordered)
    low, high = ordered[max(lowest - 1, 0)].mhz, ordered[min(lowest + 1, len(ordered) - 1)].mhz
    return min(max(math.exp(fit.minimum), low), high)


def _nearest(clocks: Sequence[int], mhz: float) -> int:
    return min(clocks, key=lambda each: abs(each - mhz))
