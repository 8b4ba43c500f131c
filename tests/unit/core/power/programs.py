"""The split's linear program, written down on its own and solved by HiGHS: what `split` is compared with."""

from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import highspy

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.latency import Promise, carried_within
from heliotrope.power.pools import PowerPool

INFINITY = highspy.kHighsInf


def points(pool: PowerPool, promise: Promise) -> list[tuple[float, float]]:
    """Watts and requests per second of a pool at each of its options."""
    return [(pool.replicas * each.watts, pool.replicas * carried_within(each, promise)) for each in pool.options]


def best_relaxed(pools: Sequence[PowerPool], asked: Mapping[str, float], budget: float, promise: Promise) -> float:
    """Most goodput if each pool may mix its options freely: a convex combination per pool, HiGHS for the rest."""
    program = highspy.Highs()
    program.silent()
    weights: list[list[tuple[int, float, float]]] = []
    count = 0
    for pool in pools:
        mixed = []
        for watts, rate in points(pool, promise):
            program.addVar(0.0, 1.0)
            mixed.append((count, watts, rate))
            count += 1
        program.addRow(1.0, 1.0, len(mixed), [column for column, _, _ in mixed], [1.0] * len(mixed))
        weights.append(mixed)
    flat = [entry for mixed in weights for entry in mixed]
    program.addRow(-INFINITY, budget, len(flat), [column for column, _, _ in flat], [watts for _, watts, _ in flat])
    for model in dict.fromkeys(pool.model for pool in pools):
        program.addVar(0.0, asked.get(model, INFINITY))  # goodput of the model
        goodput = count
        program.changeColCost(goodput, -1.0)
        program.addVar(0.0, INFINITY)  # of it by prefill and decode pools together
        series = count + 1
        count += 2
        of_role = {
            role: [
                entry
                for pool, mixed in zip(pools, weights, strict=True)
                if pool.model == model and pool.role is role
                for entry in mixed
            ]
            for role in Role
        }
        for phase, other in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
            entries = of_role[phase]
            if not entries and of_role[other]:
                continue  # the other phase stands for itself
            program.addRow(
                -INFINITY,
                0.0,
                len(entries) + 1,
                [series, *(c for c, _, _ in entries)],
                [1.0, *(-rate for _, _, rate in entries)],
            )
        entries = of_role[Role.BOTH]
        program.addRow(
            -INFINITY,
            0.0,
            len(entries) + 2,
            [goodput, series, *(c for c, _, _ in entries)],
            [1.0, -1.0, *(-rate for _, _, rate in entries)],
        )
    program.run()
    assert program.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return -float(program.getInfo().objective_function_value)


def best_whole(pools: Sequence[PowerPool], asked: Mapping[str, float], budget: float, promise: Promise) -> float:
    """Most goodput over every choice of one option per pool; -inf where none fits."""
    best = float("-inf")
    for chosen in product(*(points(pool, promise) for pool in pools)):
        if sum(watts for watts, _ in chosen) <= budget + 1e-6:
            best = max(best, goodput(pools, asked, [rate for _, rate in chosen]))
    return best


def goodput(pools: Sequence[PowerPool], asked: Mapping[str, float], rates: Sequence[float]) -> float:
    """Requests per second that pools with these rates serve within the promise."""
    total = 0.0
    for model in dict.fromkeys(pool.model for pool in pools):
        by_role: dict[Role, list[float]] = {}
        for pool, rate in zip(pools, rates, strict=True):
            if pool.model == model:
                by_role.setdefault(pool.role, []).append(rate)
        single = [sum(by_role[role]) for role in (Role.PREFILL, Role.DECODE) if role in by_role]
        carried = sum(by_role.get(Role.BOTH, [])) + min(single, default=0.0)
        total += min(carried, asked.get(model, float("inf")))
    return total


def largest_step(pools: Sequence[PowerPool], promise: Promise) -> float:
    """Most requests per second between two neighbouring options of a pool: what whole clocks can cost at each."""
    return sum(
        max((abs(above[1] - below[1]) for below, above in pairwise(points(pool, promise))), default=0.0)
        for pool in pools
    )
