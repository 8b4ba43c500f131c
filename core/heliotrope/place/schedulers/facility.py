"""The ILP with what it costs to wake a region, once however many come (paper carbon-slo-tension, §IV-C).

min Σ c x + Σ f y,   each request once,   Σ_r x ≤ H_d y_d
"""

from typing import Any

from heliotrope.place.assignment import Assignment
from heliotrope.place.estimate import estimate
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.solved import Costs, SolverMemory, assignment_from, problem_from, solve_or_none
from heliotrope.place.window import Window


def facility(window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None) -> Assignment:
    """Choose the regions that open, and assign within them; the search begins with those of the last window."""
    memory = SolverMemory() if memory is None else memory
    estimates = estimate(window, regions, policy)
    costs = Costs(estimates.cost, estimates.wake_cost)
    problem = problem_from(costs, estimates, policy)
    solution = solve_or_none(problem, policy.limit, memory.opened_of(regions), memory.prices_of(regions))
    return assignment_from(window, regions, policy, costs, solution, memory, carbon=estimates.carbon_counts)
