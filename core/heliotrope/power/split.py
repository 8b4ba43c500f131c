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
beyond it. Each pool takes the fastest clock that fits in its watts, and watts left over go where they carry most. Last,
where all that is asked is carried in more than one way, watts go where they make fewest requests late (`lateness`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.power.curves import Filling, cut, hull, model_curve
from heliotrope.power.latency import NAN, Promise
from heliotrope.power.lateness import with_fewest_late
from heliotrope.power.pools import TINY, Point, PowerPool, goodput, points_of, watts_of


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
    points = {pool.name: points_of(pool, promise) for pool in pools}
    asked = {pool.model: _asked(asked_per_second, pool.model) for pool in pools}
    highest = {name: of[-1] for name, of in points.items()}
    if standing + watts_of(highest.values()) <= budget_watts:
        return _outcome(pools, highest, asked, Verdict.UNLIMITED)
    lowest = {name: min(of, key=lambda point: point.watts) for name, of in points.items()}
    excess = standing + watts_of(lowest.values()) - budget_watts
    if excess > TINY:
        return _outcome(pools, lowest, asked, Verdict.INFEASIBLE, excess)
    left = budget_watts - standing
    keeping = {name: [point for point in of if point.rate > 0.0] or list(of) for name, of in points.items()}
    kept = all(any(point.rate > 0.0 for point in of) for of in points.values())
    if watts_of(min(of, key=lambda point: point.watts) for of in keeping.values()) > left + TINY:
        keeping, kept = points, False
    chosen, bound = _fill(pools, keeping, asked, left)
    chosen = with_fewest_late(pools, keeping, chosen, asked, left, promise)
    return _outcome(pools, chosen, asked, Verdict.WITHIN if kept else Verdict.PROMISE_AT_RISK, bound=bound)


def uniform_cap(
    pools: Sequence[PowerPool], asked_per_second: Mapping[str, float], budget_watts: float, promise: Promise
) -> Split:
    """What operators do without phases: the same cap, in watts, for every replica; what comparisons start from.

    Pools that draw less than the cap at their highest clock leave the rest to the others, so the cap is the highest
    that fits.
    """
    standing = sum(pool.standing_watts for pool in pools)
    points = {pool.name: points_of(pool, promise) for pool in pools}
    asked = {pool.model: _asked(asked_per_second, pool.model) for pool in pools}
    caps = sorted({each.option.watts for of in points.values() for each in of}, reverse=True)
    for cap in caps:
        chosen = {
            name: max((each for each in of if each.option.watts <= cap), key=lambda each: each.watts, default=of[0])
            for name, of in points.items()
        }
        if standing + watts_of(chosen.values()) <= budget_watts:
            return _outcome(pools, chosen, asked, Verdict.WITHIN)
    lowest = {name: min(of, key=lambda point: point.watts) for name, of in points.items()}
    excess = max(standing + watts_of(lowest.values()) - budget_watts, 0.0)
    return _outcome(pools, lowest, asked, Verdict.INFEASIBLE if excess > 0 else Verdict.WITHIN, excess)


def _asked(asked_per_second: Mapping[str, float], model: str) -> float:
    rate = asked_per_second.get(model, NAN)
    return rate if math.isfinite(rate) else math.inf


def _fill(
    pools: Sequence[PowerPool], points: Mapping[str, Sequence[Point]], asked: Mapping[str, float], left_watts: float
) -> tuple[dict[str, Point], float]:
    """Watts by marginal goodput, then the fastest clock that fits in them, then what is left over.

    Returns:
        The point of each pool, and what the watts would carry if clocks were continuous.
    """
    hulls = {name: hull(of) for name, of in points.items()}
    floors = {name: hull[0] for name, hull in hulls.items()}
    filling = Filling(left_watts - watts_of(floors.values()))
    within, beyond, bound = [], [], 0.0
    for model in asked:
        curve = model_curve([pool for pool in pools if pool.model == model], hulls)
        first, rest = cut(curve, asked[model])
        within += first
        beyond += rest
        bound += min(curve.floor, asked[model])
    bound += filling.take(sorted(within, key=lambda segment: segment.watts_per_rate))
    filling.take(sorted(beyond, key=lambda segment: segment.watts_per_rate))
    chosen = {}
    for name, of in points.items():
        allowed = floors[name].watts + filling.given.get(name, 0.0) + TINY
        fitting = [point for point in of if point.watts <= allowed]
        chosen[name] = max(fitting, key=lambda point: (point.rate, -point.watts))
    return _spend(pools, points, chosen, asked, left_watts), bound


def _spend(
    pools: Sequence[PowerPool],
    points: Mapping[str, Sequence[Point]],
    chosen: dict[str, Point],
    asked: Mapping[str, float],
    left_watts: float,
) -> dict[str, Point]:
    """Clocks come in steps: raise single pools while it fits and carries more, most goodput per watt first."""
    chosen = dict(chosen)
    while True:
        free = left_watts - watts_of(chosen.values()) + TINY
        carried = goodput(pools, chosen, asked)
        best: tuple[float, str, Point] | None = None
        for name, of in points.items():
            faster = [
                point
                for point in of
                if point.rate > chosen[name].rate and 0.0 < point.watts - chosen[name].watts <= free
            ]
            for point in {id(each): each for each in (faster[:1] + faster[-1:])}.values():
                more = point.watts - chosen[name].watts
                gain = goodput(pools, {**chosen, name: point}, asked) - carried
                if gain > TINY and (best is None or gain / more > best[0]):
                    best = (gain / more, name, point)
        if best is None:
            return chosen
        chosen[best[1]] = best[2]


def _outcome(
    pools: Sequence[PowerPool],
    chosen: Mapping[str, Point],
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
    carried = goodput(pools, chosen, asked)
    return Split(
        shares=shares,
        verdict=verdict,
        projected_watts=sum(share.watts for share in shares.values()),
        goodput_per_second=carried,
        bound_per_second=carried if bound is None else bound,
        excess_watts=excess_watts,
    )
