"""Concave curves of requests per second over watts: of one pool, of pools in parallel, of phases in series."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.pools import TINY, Point, PowerPool


@dataclass(frozen=True, slots=True)
class Segment:
    """So many requests per second for so many watts; watts by pool."""

    rate: float
    watts: Mapping[str, float]

    @property
    def total_watts(self) -> float:
        """Of all pools."""
        return sum(self.watts.values())

    @property
    def watts_per_rate(self) -> float:
        """How dear its requests are, in watts per request and second."""
        return self.total_watts / self.rate

    def part(self, share: float) -> "Segment":
        """A share of it, in (0, 1]."""
        return Segment(self.rate * share, {name: watts * share for name, watts in self.watts.items()})


@dataclass(frozen=True, slots=True)
class Curve:
    """A concave curve from its floor up: what the lowest clocks carry, and segments of falling steepness."""

    floor: float
    segments: tuple[Segment, ...] = ()

    @property
    def most(self) -> float:
        """Requests per second at its end."""
        return self.floor + sum(each.rate for each in self.segments)


@dataclass(slots=True)
class Filling:
    """Watts given out so far."""

    left: float
    given: dict[str, float] = field(default_factory=dict)

    def take(self, segments: Iterable[Segment]) -> float:
        """Give out watts for these segments in turn; the requests per second that this adds."""
        rate = 0.0
        for segment in segments:
            if self.left <= TINY:
                break
            total = segment.total_watts
            share = 1.0 if total <= self.left else self.left / total
            for name, watts in segment.watts.items():
                self.given[name] = self.given.get(name, 0.0) + watts * share
            self.left -= total * share
            rate += segment.rate * share
        return rate


def hull(points: Sequence[Point]) -> list[Point]:
    """The upper concave hull of rate over watts, from the fewest watts to the highest rate."""
    ordered = sorted(points, key=lambda point: (point.watts, -point.rate))
    hull: list[Point] = []
    for point in ordered:
        if hull and point.rate <= hull[-1].rate:
            continue
        if hull and point.watts - hull[-1].watts <= TINY:
            hull.pop()  # as many watts, to rounding, for less
        while len(hull) >= 2 and _steepness(hull[-2], hull[-1]) <= _steepness(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _steepness(below: Point, above: Point) -> float:
    return (above.rate - below.rate) / (above.watts - below.watts)


def model_curve(pools: Sequence[PowerPool], hulls: Mapping[str, Sequence[Point]]) -> Curve:
    """Mixed engines beside prefill and decode in series; a phase without the other stands for itself."""
    by_role = {
        role: _parallel([_pool_curve(pool.name, hulls[pool.name]) for pool in pools if pool.role is role])
        for role in Role
        if any(pool.role is role for pool in pools)
    }
    mixed = [by_role[Role.BOTH]] if Role.BOTH in by_role else []
    if Role.PREFILL in by_role and Role.DECODE in by_role:
        return _parallel([*mixed, _series(by_role[Role.PREFILL], by_role[Role.DECODE])])
    return _parallel([*mixed, *(curve for role, curve in by_role.items() if role is not Role.BOTH)])


def _pool_curve(name: str, hull: Sequence[Point]) -> Curve:
    segments = tuple(
        Segment(above.rate - below.rate, {name: above.watts - below.watts}) for below, above in pairwise(hull)
    )
    return Curve(hull[0].rate, segments)


def _parallel(curves: Sequence[Curve]) -> Curve:
    segments = [segment for curve in curves for segment in curve.segments]
    return Curve(
        sum(curve.floor for curve in curves), tuple(sorted(segments, key=lambda segment: segment.watts_per_rate))
    )


def _series(prefill: Curve, decode: Curve) -> Curve:
    """Both phases for every request: costs add up, from the rate that the floors carry to what the weaker one can."""
    floor, most = min(prefill.floor, decode.floor), min(prefill.most, decode.most)
    ends = sorted({rate for curve in (prefill, decode) for rate in _ends(curve) if floor < rate < most} | {most})
    segments, below = [], floor
    for above in ends:
        if above - below <= TINY:
            continue
        watts: dict[str, float] = {}
        for curve in (prefill, decode):
            for name, more in _needed(curve, below, above).items():
                watts[name] = watts.get(name, 0.0) + more
        segments.append(Segment(above - below, watts))
        below = above
    return Curve(floor, tuple(segments))


def _ends(curve: Curve) -> list[float]:
    """Rates at which the curve bends."""
    rates = [curve.floor]
    for segment in curve.segments:
        rates.append(rates[-1] + segment.rate)
    return rates


def _needed(curve: Curve, below: float, above: float) -> dict[str, float]:
    """Watts by pool that raise a curve from one rate to another."""
    watts: dict[str, float] = {}
    start = curve.floor
    for segment in curve.segments:
        end = start + segment.rate
        overlap = min(end, above) - max(start, below)
        if overlap > 0.0:
            for name, more in segment.part(overlap / segment.rate).watts.items():
                watts[name] = watts.get(name, 0.0) + more
        start = end
    return watts


def cut(curve: Curve, rate: float) -> tuple[list[Segment], list[Segment]]:
    """Segments up to a rate, and those beyond it."""
    within: list[Segment] = []
    beyond: list[Segment] = []
    reached = curve.floor
    for segment in curve.segments:
        room = rate - reached
        if room >= segment.rate:
            within.append(segment)
        elif room <= TINY:
            beyond.append(segment)
        else:
            share = room / segment.rate
            within.append(segment.part(share))
            beyond.append(segment.part(1.0 - share))
        reached += segment.rate
    return within, beyond
