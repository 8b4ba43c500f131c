"""The window's requests assigned together within headroom: min Σ c x (paper carbon-slo-tension, §IV-B, eq. 2)."""

from typing import Any

import numpy as np

from heliotrope.place.assignment import Assignment
from heliotrope.place.estimate import Estimates, estimate
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.solved import Costs, SolverMemory, assignment_from, problem_from, solve_or_none
from heliotrope.place.window import Window


def ilp(window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None) -> Assignment:
    """Assign at least cost; every request is charged what waking an engine would draw, if it finds one idle."""
    memory = SolverMemory() if memory is None else memory
    estimates = estimate(window, regions, policy)
    costs = additive(estimates)
    problem = problem_from(costs, estimates, policy)
    solution = solve_or_none(problem, policy.limit, memory.opened_of(regions), memory.prices_of(regions))
    return assignment_from(window, regions, policy, costs, solution, memory, carbon=estimates.carbon_counts)


def additive(estimates: Estimates) -> Costs:
    """Costs of requests, each as if it were alone."""
    return Costs(estimates.cost + estimates.activation_cost, np.zeros(estimates.cost.shape[1]))
