"""How many requests are late at a load, and how watts that carry nothing more make fewer late.

What a pool carries within the promise says nothing of the room that is left: of two choices that both carry what is
asked, the one closer to its limit breaks more promises when the load rises. A pool is a queue with several servers and
memoryless times (M/M/N, `latency.waiting_share`): who has to wait waits longer than t with probability
exp(-(C - λ) t). A server is an engine for prompts, and a place in the batch for answers, so a decode engine that is
nearly full is late with a first token as a prefill engine is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.latency import Promise, waiting_share
from heliotrope.power.pools import TINY, Point, PowerPool, goodput, watts_of

LOAD_SPREAD: Mapping[Role, float] = {Role.PREFILL: 0.15, Role.DECODE: 0.1, Role.BOTH: 0.15}
"""How far the next minute's load is from the last two minutes', as a share of it: one standard deviation.

Of the tokens of prompts and of answers in the Azure conversation trace, where they go up and down on their own
(`bench/load_spread.py`).
"""
_NORMAL = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)
"""Middles of the fifths of a normal distribution."""
ENOUGH = 0.005
"""A change of clocks has to keep at least this share more of what is asked."""
Choice = Mapping[str, Point]


@dataclass(frozen=True, slots=True)
class _Servers:
    """Pools of one role together."""

    capacity_per_second: float = 0.0
    slots: float = 0.0
    prompt_seconds: float = 0.0
    """Of one prompt, the mean by capacity."""

    def late_share(self, load_per_second: float, ttft_seconds: float) -> float:
        """Share of requests that wait for longer than the TTFT leaves them, in [0, 1]."""
        spare = self.capacity_per_second - load_per_second
        room = ttft_seconds - self.prompt_seconds
        if spare <= 0.0 or room <= 0.0:
            return 1.0
        return waiting_share(self.slots, load_per_second / self.capacity_per_second) * math.exp(-spare * room)

    def expected_late(self, load_per_second: float, role: Role, promise: Promise) -> float:
        """The same over the loads that the next minute may bring."""
        loads = (load_per_second * (1.0 + LOAD_SPREAD[role] * deviation) for deviation in _NORMAL)
        return sum(self.late_share(load, promise.ttft_seconds) for load in loads) / len(_NORMAL)


def kept_per_second(
    pools: Sequence[PowerPool], chosen: Choice, asked_per_second: Mapping[str, float], promise: Promise
) -> float:
    """Requests per second that are expected to be in time, over the models of which the load is known.

    The load of each phase is spread by `LOAD_SPREAD` around what is asked. Requests of a model that need two phases are
    in time if both are; beside mixed engines the load is shared as they carry it.
    """
    total = 0.0
    for model, asked in asked_per_second.items():
        if not math.isfinite(asked):
            continue
        own = [pool for pool in pools if pool.model == model]
        # In the order of roles: floats are summed alike in every process.
        servers = {role: _servers(own, chosen, role) for role in Role if any(pool.role is role for pool in own)}
        carried = {role: sum(chosen[pool.name].rate for pool in own if pool.role is role) for role in servers}
        in_series = {Role.PREFILL, Role.DECODE} <= set(servers)
        ways: list[tuple[Role, ...]] = [(each,) for each in servers if not in_series or each is Role.BOTH]
        if in_series:
            ways.append((Role.PREFILL, Role.DECODE))
        weights = [min(carried[role] for role in way) for way in ways]
        for way, weight in zip(ways, weights, strict=True):
            if weight > 0.0:
                load = asked * weight / sum(weights)
                total += load * math.prod(1.0 - servers[role].expected_late(load, role, promise) for role in way)
    return total


def with_fewest_late(
    pools: Sequence[PowerPool],
    points: Mapping[str, Sequence[Point]],
    chosen: Choice,
    asked_per_second: Mapping[str, float],
    budget_watts: float,
    promise: Promise,
) -> dict[str, Point]:
    """A choice moved, pool against pool, to where fewest are late, and that carries no less of what is asked.

    Each step raises one pool with free watts and those of at most one other; the best step is taken until none is worth
    it. Present clocks stay if they carry and keep nearly as much, so that loads that go up and down move none.

    Args:
        pools: of the split.
        points: of each pool, ascending in watts.
        chosen: where to begin; within the budget.
        asked_per_second: by model; without any that is finite the choice stays as it is.
        budget_watts: of these points, replicas at rest left aside.
        promise: TTFT and TPOT.
    """
    asked = {model: rate for model, rate in asked_per_second.items() if math.isfinite(rate)}
    if not asked:
        return dict(chosen)
    least = goodput(pools, chosen, asked_per_second) - TINY
    best, kept = dict(chosen), kept_per_second(pools, chosen, asked, promise)
    worth = ENOUGH / 10.0 * sum(asked.values())
    while True:
        step: dict[str, Point] | None = None
        for moved in _steps(points, best, budget_watts - watts_of(best.values())):
            if goodput(pools, moved, asked_per_second) < least:
                continue
            gained = kept_per_second(pools, moved, asked, promise)
            if gained > kept + worth:
                step, kept = moved, gained
        if step is None:
            break
        best = step
    present = _present(pools, points)
    if present is None or watts_of(present.values()) > budget_watts:
        return best
    return present if _nearly_as_good(pools, present, best, asked_per_second, promise) else best


def _nearly_as_good(
    pools: Sequence[PowerPool], choice: Choice, best: Choice, asked_per_second: Mapping[str, float], promise: Promise
) -> bool:
    """Whether no model loses more than it takes to be worth a change."""
    for model, rate in asked_per_second.items():
        alone = {model: rate}
        most = goodput(pools, best, alone)
        slack = ENOUGH * min(rate, most)
        if goodput(pools, choice, alone) < most - slack - TINY:
            return False
        if kept_per_second(pools, choice, alone, promise) < kept_per_second(pools, best, alone, promise) - slack:
            return False
    return True


def _servers(pools: Sequence[PowerPool], chosen: Choice, role: Role) -> _Servers:
    """Those that keep the TPOT; the others carry nothing within the promise."""
    capacity = slots = prompts = 0.0
    for pool in pools:
        point = chosen[pool.name]
        if pool.role is role and point.rate > 0.0:
            rate = pool.replicas * point.option.requests_per_second
            capacity += rate
            prompts += rate * point.option.prompt_seconds
            slots += pool.replicas * (pool.slots if pool.slots >= 1.0 else 1.0)
    return _Servers(capacity, slots, prompts / capacity if capacity > 0.0 else 0.0)


def _steps(points: Mapping[str, Sequence[Point]], chosen: Choice, free_watts: float) -> Iterator[dict[str, Point]]:
    """Choices in which one pool is raised by 1, 2, 4, … clocks, and at most one other lowered to pay for it."""
    for name, of in points.items():
        at = of.index(chosen[name])
        stride = 1
        while at + stride < len(of):
            raised = of[at + stride]
            stride *= 2
            missing = raised.watts - chosen[name].watts - free_watts
            if missing <= TINY:
                yield {**chosen, name: raised}
                continue
            for other, others in points.items():
                if other != name:
                    most = chosen[other].watts - missing + TINY
                    lower = [each for each in others if each.watts <= most]
                    if lower:
                        yield {**chosen, name: raised, other: max(lower, key=lambda each: (each.rate, each.watts))}


def _present(pools: Sequence[PowerPool], points: Mapping[str, Sequence[Point]]) -> dict[str, Point] | None:
    """The points of the clocks that are set; None if one of them is not to be had."""
    present = {}
    for pool in pools:
        of = points[pool.name]
        at = [each for each in of if each.option.sm_clock_mhz == pool.present_mhz]
        if pool.present_mhz is not None and not at:
            return None
        present[pool.name] = at[0] if at else of[-1]
    return present
