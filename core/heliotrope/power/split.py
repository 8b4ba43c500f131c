"""Watts over pools: the clocks that keep the most SLO goodput within a budget.

PowerSlider's question (arXiv:2608.21719, by sustainable-inference-control-plane §6.3): phases answer a power cap
differently, so a cap is worth more where a watt buys more requests. Decode is bound by memory and hardly slows down
with the clock; prefill slows down in proportion.

Each pool (the replicas of one variant) has a curve: requests per second within the promise over watts. Only its upper
concave hull matters, as replicas at two clocks mix. Curves are put together in two ways:

- in parallel (variants that do the same): segments of both, the steepest first;
- in series (prefill before decode): a request needs both, so what a rate costs is the sum of what both phases need for
  it. The sum of convex costs is convex, so the outcome is a concave curve again.

Filling the steepest segments of all models' curves first is then the optimum of the linear program (checked against
HiGHS in `tests/unit/core/power/test_split.py`): first up to what is asked of each model, then, as room for latency,
beyond it. Last, each pool takes the fastest clock that fits in its watts, and watts left over go where they carry most.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.latency import NAN, Promise, carried_within
from heliotrope.power.options import ClockOption

_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class PowerPool:
    """The awake replicas of one variant, which share a clock."""

    name: str
    """Unique in a split."""
    model: str
    role: Role
    replicas: int
    options: tuple[ClockOption, ...]
    """Clocks that may be set, ascending; one option is a pool whose clock cannot be moved."""
    tpot_seconds: tuple[float, ...] = ()
    """TPOT at each option, NaN or empty where it is unknown."""
    standing_watts: float = 0.0
    """Power of its replicas at rest, which no clock changes."""


class Verdict(StrEnum):
    """What a budget allows."""

    UNLIMITED = "Unlimited"
    """It does not bind: every pool may run at its highest clock."""
    WITHIN = "WithinBudget"
    """Every pool runs at a clock that can keep the promise."""
    PROMISE_AT_RISK = "PromiseAtRisk"
    """Within the budget, some pools can keep the promise at none of the clocks that are left to them."""
    INFEASIBLE = "BudgetInfeasible"
    """Even the lowest clocks draw more: best effort at the lowest clocks. Only fewer replicas draw less."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a pool gets."""

    sm_clock_mhz: int
    watts_per_replica: float
    """Power of one replica that works without a pause at this clock."""
    watts: float
    """Power of the whole pool, its replicas at rest included."""
    carried_per_second: float
    """Requests per second within the promise."""


@dataclass(frozen=True, slots=True)
class Split:
    """The outcome."""

    shares: Mapping[str, Share]
    verdict: Verdict
    projected_watts: float
    goodput_per_second: float
    """Requests per second within the promise, of those that are asked for."""
    bound_per_second: float
    """The same if clocks were continuous and replicas of one pool could have different ones: no split carries more."""
    excess_watts: float = 0.0
    """What the lowest clocks draw above the budget."""


@dataclass(frozen=True, slots=True)
class _Point:
    option: ClockOption
    watts: float
    """Of the pool, replicas at rest left aside."""
    rate: float


@dataclass(frozen=True, slots=True)
class _Segment:
    """So many requests per second for so many watts; watts by pool."""

    rate: float
    watts: Mapping[str, float]

    @property
    def total_watts(self) -> float:
        return sum(self.watts.values())

    @property
    def watts_per_rate(self) -> float:
        return self.total_watts / self.rate

    def part(self, share: float) -> "_Segment":
        return _Segment(self.rate * share, {name: watts * share for name, watts in self.watts.items()})


@dataclass(frozen=True, slots=True)
class _Curve:
    """A concave curve from its floor up: what the lowest clocks carry, and segments of falling steepness."""

    floor: float
    segments: tuple[_Segment, ...] = ()

    @property
    def most(self) -> float:
        return self.floor + sum(each.rate for each in self.segments)


@dataclass(slots=True)
class _Filling:
    """Watts given out so far."""

    left: float
    given: dict[str, float] = field(default_factory=dict)

    def take(self, segments: Iterable[_Segment]) -> float:
        """Give out watts for these segments in turn; the requests per second that this adds."""
        rate = 0.0
        for segment in segments:
            if self.left <= _TINY:
                break
            total = segment.total_watts
            share = 1.0 if total <= self.left else self.left / total
            for name, watts in segment.watts.items():
                self.given[name] = self.given.get(name, 0.0) + watts * share
            self.left -= total * share
            rate += segment.rate * share
        return rate


def split(
    pools: Sequence[PowerPool], asked_per_second: Mapping[str, float], budget_watts: float, promise: Promise
) -> Split:
    """The clocks that keep the most SLO goodput within a budget.

    Args:
        pools: of one InferencePool; each has at least one option.
        asked_per_second: requests per second by model; absent or NaN is unknown, and as much as possible is carried.
        budget_watts: power of all pools together; inf is no limit.
        promise: TTFT and TPOT.

    Returns:
        One share per pool. Never above the budget unless the verdict is `INFEASIBLE`.
    """
    standing = sum(pool.standing_watts for pool in pools)
    points = {pool.name: _points(pool, promise) for pool in pools}
    asked = {pool.model: _asked(asked_per_second, pool.model) for pool in pools}
    highest = {name: of[-1] for name, of in points.items()}
    if standing + _watts(highest.values()) <= budget_watts:
        return _outcome(pools, highest, asked, Verdict.UNLIMITED)
    lowest = {name: min(of, key=lambda point: point.watts) for name, of in points.items()}
    excess = standing + _watts(lowest.values()) - budget_watts
    if excess > _TINY:
        return _outcome(pools, lowest, asked, Verdict.INFEASIBLE, excess)
    left = budget_watts - standing
    keeping = {name: [point for point in of if point.rate > 0.0] or list(of) for name, of in points.items()}
    kept = all(any(point.rate > 0.0 for point in of) for of in points.values())
    if _watts(min(of, key=lambda point: point.watts) for of in keeping.values()) > left + _TINY:
        keeping, kept = points, False
    chosen, bound = _fill(pools, keeping, asked, left)
    return _outcome(pools, chosen, asked, Verdict.WITHIN if kept else Verdict.PROMISE_AT_RISK, bound=bound)


def uniform_cap(
    pools: Sequence[PowerPool], asked_per_second: Mapping[str, float], budget_watts: float, promise: Promise
) -> Split:
    """What operators do without phases: the same cap, in watts, for every replica; what comparisons start from.

    Pools that draw less than the cap at their highest clock leave the rest to the others, so the cap is the highest
    that fits.
    """
    standing = sum(pool.standing_watts for pool in pools)
    points = {pool.name: _points(pool, promise) for pool in pools}
    asked = {pool.model: _asked(asked_per_second, pool.model) for pool in pools}
    caps = sorted({each.option.watts for of in points.values() for each in of}, reverse=True)
    for cap in caps:
        chosen = {
            name: max((each for each in of if each.option.watts <= cap), key=lambda each: each.watts, default=of[0])
            for name, of in points.items()
        }
        if standing + _watts(chosen.values()) <= budget_watts:
            return _outcome(pools, chosen, asked, Verdict.WITHIN)
    lowest = {name: min(of, key=lambda point: point.watts) for name, of in points.items()}
    excess = max(standing + _watts(lowest.values()) - budget_watts, 0.0)
    return _outcome(pools, lowest, asked, Verdict.INFEASIBLE if excess > 0 else Verdict.WITHIN, excess)


def _points(pool: PowerPool, promise: Promise) -> list[_Point]:
    tpot = pool.tpot_seconds or (NAN,) * len(pool.options)
    return [
        _Point(option, pool.replicas * option.watts, pool.replicas * carried_within(option, promise, tpot[index]))
        for index, option in enumerate(pool.options)
    ]


def _asked(asked_per_second: Mapping[str, float], model: str) -> float:
    rate = asked_per_second.get(model, NAN)
    return rate if math.isfinite(rate) else math.inf


def _watts(points: Iterable[_Point]) -> float:
    return sum(point.watts for point in points)


def _fill(
    pools: Sequence[PowerPool], points: Mapping[str, Sequence[_Point]], asked: Mapping[str, float], left_watts: float
) -> tuple[dict[str, _Point], float]:
    """Watts by marginal goodput, then the fastest clock that fits in them, then what is left over.

    Returns:
        The point of each pool, and what the watts would carry if clocks were continuous.
    """
    hulls = {name: _hull(of) for name, of in points.items()}
    floors = {name: hull[0] for name, hull in hulls.items()}
    filling = _Filling(left_watts - _watts(floors.values()))
    within, beyond, bound = [], [], 0.0
    for model in asked:
        curve = _model_curve([pool for pool in pools if pool.model == model], hulls)
        first, rest = _cut(curve, asked[model])
        within += first
        beyond += rest
        bound += min(curve.floor, asked[model])
    bound += filling.take(sorted(within, key=lambda segment: segment.watts_per_rate))
    filling.take(sorted(beyond, key=lambda segment: segment.watts_per_rate))
    chosen = {}
    for name, of in points.items():
        allowed = floors[name].watts + filling.given.get(name, 0.0) + _TINY
        fitting = [point for point in of if point.watts <= allowed]
        chosen[name] = max(fitting, key=lambda point: (point.rate, -point.watts))
    return _spend(pools, points, chosen, asked, left_watts), bound


def _spend(
    pools: Sequence[PowerPool],
    points: Mapping[str, Sequence[_Point]],
    chosen: dict[str, _Point],
    asked: Mapping[str, float],
    left_watts: float,
) -> dict[str, _Point]:
    """Clocks come in steps: raise single pools while it fits and carries more, most goodput per watt first."""
    chosen = dict(chosen)
    while True:
        free = left_watts - _watts(chosen.values()) + _TINY
        carried = _goodput(pools, chosen, asked)
        best: tuple[float, str, _Point] | None = None
        for name, of in points.items():
            faster = [
                point
                for point in of
                if point.rate > chosen[name].rate and 0.0 < point.watts - chosen[name].watts <= free
            ]
            for point in {id(each): each for each in (faster[:1] + faster[-1:])}.values():
                more = point.watts - chosen[name].watts
                gain = _goodput(pools, {**chosen, name: point}, asked) - carried
                if gain > _TINY and (best is None or gain / more > best[0]):
                    best = (gain / more, name, point)
        if best is None:
            return chosen
        chosen[best[1]] = best[2]


def _hull(points: Sequence[_Point]) -> list[_Point]:
    """The upper concave hull of rate over watts, from the fewest watts to the highest rate."""
    ordered = sorted(points, key=lambda point: (point.watts, -point.rate))
    hull: list[_Point] = []
    for point in ordered:
        if hull and point.rate <= hull[-1].rate:
            continue
        if hull and point.watts - hull[-1].watts <= _TINY:
            hull.pop()  # as many watts, to rounding, for less
        while len(hull) >= 2 and _steepness(hull[-2], hull[-1]) <= _steepness(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _steepness(below: _Point, above: _Point) -> float:
    return (above.rate - below.rate) / (above.watts - below.watts)


def _model_curve(pools: Sequence[PowerPool], hulls: Mapping[str, Sequence[_Point]]) -> _Curve:
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


def _pool_curve(name: str, hull: Sequence[_Point]) -> _Curve:
    segments = tuple(
        _Segment(above.rate - below.rate, {name: above.watts - below.watts}) for below, above in pairwise(hull)
    )
    return _Curve(hull[0].rate, segments)


def _parallel(curves: Sequence[_Curve]) -> _Curve:
    segments = [segment for curve in curves for segment in curve.segments]
    return _Curve(
        sum(curve.floor for curve in curves), tuple(sorted(segments, key=lambda segment: segment.watts_per_rate))
    )


def _series(prefill: _Curve, decode: _Curve) -> _Curve:
    """Both phases for every request: costs add up, from the rate that the floors carry to what the weaker one can."""
    floor, most = min(prefill.floor, decode.floor), min(prefill.most, decode.most)
    ends = sorted({rate for curve in (prefill, decode) for rate in _ends(curve) if floor < rate < most} | {most})
    segments, below = [], floor
    for above in ends:
        if above - below <= _TINY:
            continue
        watts: dict[str, float] = {}
        for curve in (prefill, decode):
            for name, more in _needed(curve, below, above).items():
                watts[name] = watts.get(name, 0.0) + more
        segments.append(_Segment(above - below, watts))
        below = above
    return _Curve(floor, tuple(segments))


def _ends(curve: _Curve) -> list[float]:
    """Rates at which the curve bends."""
    rates = [curve.floor]
    for segment in curve.segments:
        rates.append(rates[-1] + segment.rate)
    return rates


def _needed(curve: _Curve, below: float, above: float) -> dict[str, float]:
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


def _cut(curve: _Curve, rate: float) -> tuple[list[_Segment], list[_Segment]]:
    """Segments up to a rate, and those beyond it."""
    within: list[_Segment] = []
    beyond: list[_Segment] = []
    reached = curve.floor
    for segment in curve.segments:
        room = rate - reached
        if room >= segment.rate:
            within.append(segment)
        elif room <= _TINY:
            beyond.append(segment)
        else:
            share = room / segment.rate
            within.append(segment.part(share))
            beyond.append(segment.part(1.0 - share))
        reached += segment.rate
    return within, beyond


def _goodput(pools: Sequence[PowerPool], chosen: Mapping[str, _Point], asked: Mapping[str, float]) -> float:
    """Requests per second within the promise over all models, none beyond what is asked for.

    Where nothing is known of what is asked, all that can be carried counts.
    """
    total = 0.0
    for model, most in asked.items():
        rates = dict.fromkeys(Role, 0.0)
        roles = {pool.role for pool in pools if pool.model == model}
        for pool in pools:
            if pool.model == model:
                rates[pool.role] += chosen[pool.name].rate
        if {Role.PREFILL, Role.DECODE} <= roles:
            carried = rates[Role.BOTH] + min(rates[Role.PREFILL], rates[Role.DECODE])
        else:
            carried = sum(rates.values())
        total += min(carried, most)
    return total


def _outcome(
    pools: Sequence[PowerPool],
    chosen: Mapping[str, _Point],
    asked: Mapping[str, float],
    verdict: Verdict,
    excess_watts: float = 0.0,
    *,
    bound: float | None = None,
) -> Split:
    shares = {
        pool.name: Share(
            sm_clock_mhz=chosen[pool.name].option.sm_clock_mhz,
            watts_per_replica=chosen[pool.name].option.watts,
            watts=chosen[pool.name].watts + pool.standing_watts,
            carried_per_second=chosen[pool.name].rate,
        )
        for pool in pools
    }
    goodput = _goodput(pools, chosen, asked)
    return Split(
        shares=shares,
        verdict=verdict,
        projected_watts=sum(share.watts for share in shares.values()),
        goodput_per_second=goodput,
        bound_per_second=goodput if bound is None else bound,
        excess_watts=excess_watts,
    )
