"""Small and middle programs for tests, and the best assignment by trying all."""

from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from heliotrope.place.solve.problem import Problem, problem_of


def best_of_all(problem: Problem) -> tuple[float, float]:
    """Most weight that can be placed, and the least cost of an assignment that places it."""
    n, d = problem.cost.shape
    choices = np.array(list(product(range(-1, d), repeat=n))).reshape(-1, n)
    cost = np.zeros(len(choices))
    weight = np.zeros(len(choices))
    load = np.zeros((len(choices), d))
    for r in range(n):
        at = choices[:, r]
        placed = at >= 0
        cost[placed] += problem.cost[r, at[placed]]
        weight[placed] += problem.weight[r]
        load[np.flatnonzero(placed), at[placed]] += problem.weight[r]
    cost += (load > 0.0) @ problem.fixed
    allowed = np.isfinite(cost) & (load <= problem.capacity + 1e-9).all(axis=1)
    most = weight[allowed].max()
    return float(most), float(cost[allowed & (weight >= most - 1e-9)].min())


def values(draw: st.DrawFn, strategy: st.SearchStrategy[Any], *shape: int) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    return np.array(draw(st.lists(strategy, min_size=count, max_size=count)), dtype=float).reshape(shape)


@st.composite
def programs(draw: st.DrawFn, *, tokens: bool = False, requests: int = 6, regions: int = 4) -> Problem:
    """Ties, zero costs, zero capacities, regions that nobody may go to, requests that may go nowhere."""
    n, d = draw(st.integers(1, requests)), draw(st.integers(1, regions))
    cost = values(draw, st.one_of(st.integers(0, 4), st.floats(0.0, 100.0)), n, d)
    feasible = values(draw, st.sampled_from([0, 1, 1, 1]), n, d) > 0
    fixed = values(draw, st.one_of(st.integers(0, 3), st.floats(0.0, 1e4)), d)
    if tokens:
        capacity = values(draw, st.integers(0, 4_000), d)
        return problem_of(cost, feasible, capacity, fixed, values(draw, st.integers(1, 2_000), n))
    return problem_of(cost, feasible, values(draw, st.integers(0, requests), d), fixed)


def middle(seed: int, n: int = 60, d: int = 8, noise: float = 0.03, *, tokens: bool = False) -> Problem:
    """Costs near rank one, capacity for about twice the demand, fixed costs of about a third of the objective."""
    rng = np.random.default_rng(seed)
    joules, intensity = rng.lognormal(0.0, 0.6, n), rng.uniform(50.0, 700.0, d)
    cost = joules[:, None] * intensity * np.exp(noise * rng.normal(size=(n, d)))
    feasible = (rng.random((6, d)) < 0.8)[rng.integers(0, 6, n)]
    share = rng.uniform(0.5, 1.5, d)
    share /= share.sum()
    weight = np.round(rng.lognormal(6.7, 0.7, n)) if tokens else np.ones(n)
    capacity = np.floor(2.1 * weight.sum() * share)
    fixed = rng.uniform(0.5, 1.5, d) * 300.0 * n * share
    return problem_of(cost, feasible, capacity, fixed, weight if tokens else None)
