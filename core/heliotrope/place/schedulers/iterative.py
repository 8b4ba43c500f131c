"""The ILP again and again, each time on the load that its own last answer would make (paper carbon-slo-tension, §IV-B).

One window's requests are feasible one by one and late together. So the assignment is projected on batches and queues,
latencies and energies are estimated anew, and the program is solved again, until the answer stays or T_max is reached.
Headroom is that of before the window: the projection must not take it twice. Where a window overfills every region
that suits it, answers alternate, and T_max says which counts; so it is in the paper.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from heliotrope.place.assignment import Assignment
from heliotrope.place.estimate import estimate
from heliotrope.place.policy import PlacementPolicy, WorkLimit
from heliotrope.place.projection import with_assigned
from heliotrope.place.regions import Regions
from heliotrope.place.schedulers.ilp import additive
from heliotrope.place.solved import SolverMemory, assignment_from, problem_from, solve_or_none
from heliotrope.place.window import Window


def iterative_ilp(
    window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None
) -> Assignment:
    """Solve at most `PlacementPolicy.iterations` times; the last answer counts, its limit is shared by all."""
    memory = SolverMemory() if memory is None else memory
    rounds = max(policy.iterations, 1)
    limit = _share(policy.limit, rounds)
    before = estimate(window, regions, policy)
    start, prices = memory.opened_of(regions), memory.prices_of(regions)
    estimates, solution, work = before, None, 0
    costs = additive(before)
    for left in range(rounds, 0, -1):
        now = additive(estimates)
        problem = problem_from(now, replace(estimates, headroom=before.headroom), policy)
        answer = solve_or_none(problem, limit, start, prices)
        if answer is None:  # the answer before stands
            break
        stays = solution is not None and np.array_equal(answer.regions, solution.regions)
        costs, solution, work = now, answer, work + answer.evaluations
        if stays or left == 1:
            break
        start, prices = answer.opened, answer.prices
        estimates = estimate(window, with_assigned(window, regions, answer.regions), policy)
    if solution is not None:
        solution = replace(solution, evaluations=work)
    return assignment_from(window, regions, policy, costs, solution, memory, carbon=before.carbon_counts)


def _share(limit: WorkLimit, rounds: int) -> WorkLimit:
    seconds = None if limit.seconds is None else limit.seconds / rounds
    nodes = None if limit.nodes is None else (max(limit.nodes // rounds, 1) if limit.nodes > 0 else 0)
    return WorkLimit(seconds, nodes)
