"""What the schedulers that solve a program share: from estimates to a problem, from a solution to an assignment."""

from dataclasses import dataclass, replace

import numpy as np

from heliotrope.errors import SolverError
from heliotrope.place.assignment import NOWHERE, Assignment, Outcome, Reason
from heliotrope.place.estimate import Estimates
from heliotrope.place.in_turn import NO_TURN_YET, place_rest
from heliotrope.place.policy import CapacityUnit, PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.solve.facility import TOLERANCE, solve
from heliotrope.place.solve.problem import Problem, Solution, problem_of
from heliotrope.place.window import BoolColumn, FloatColumn, FloatMatrix, IntColumn, Window


@dataclass(frozen=True, slots=True)
class SolverMemory:
    """What the next window's search begins with. Regions are known by name: they may come and go."""

    cursor: int = NO_TURN_YET
    """Whose turn it was among regions that nothing distinguishes."""
    opened: frozenset[str] = frozenset()
    prices: tuple[tuple[str, float], ...] = ()
    """Dual price of capacity by region."""

    def opened_of(self, regions: Regions) -> BoolColumn:
        """As a column, length d."""
        return np.array([name in self.opened for name in regions.names], dtype=np.bool_)

    def prices_of(self, regions: Regions) -> FloatColumn:
        """As a column, length d."""
        known = dict(self.prices)
        return np.array([known.get(name, 0.0) for name in regions.names])


@dataclass(frozen=True, slots=True)
class Costs:
    """What a scheduler minimises."""

    cost: FloatMatrix
    """c, shape (n, d), also of pairs that break an SLO."""
    fixed: FloatColumn
    """f, length d."""

    def of(self, places: IntColumn) -> float:
        """Of an assignment; NaN where a cost is unknown."""
        placed = places >= 0
        used = np.unique(places[placed])
        return float(self.cost[placed, places[placed]].sum() + self.fixed[used].sum())


def problem_from(costs: Costs, estimates: Estimates, policy: PlacementPolicy) -> Problem:
    """The window's program in the policy's capacity unit."""
    weight = estimates.weights if policy.capacity_unit is CapacityUnit.TOKENS else None
    # Where nothing is feasible nothing opens: an unknown region must not make f drop out for all.
    fixed = np.where(estimates.feasible.any(axis=0), costs.fixed, 0.0)
    return problem_of(costs.cost, estimates.feasible, estimates.headroom, fixed, weight)


def solve_or_none(problem: Problem, limit: WorkLimit, start: BoolColumn, prices: FloatColumn) -> Solution | None:
    """The solution; None where the solver failed or had no time, and greedy is to decide."""
    try:
        return solve(problem, limit, start, prices)
    except SolverError:
        return None


def assignment_from(
    window: Window,
    regions: Regions,
    policy: PlacementPolicy,
    costs: Costs,
    solution: Solution | None,
    memory: SolverMemory,
    *,
    carbon: bool,
) -> Assignment:
    """Complete a solution: what it left without a region goes where greedy and the policy's fallback say.

    Args:
        window: all of it.
        regions: without its requests.
        policy: fallback.
        costs: what was minimised.
        solution: None: greedy decides all.
        memory: of the last window; its cursor goes on.
        carbon: whether carbon counts.
    """
    places = np.full(len(window), NOWHERE) if solution is None else solution.regions
    reasons = np.full(len(window), int(Reason.OBJECTIVE))
    places, reasons, cursor = place_rest(window, regions, policy, memory.cursor, places, reasons)
    if solution is None:
        outcome, gap, work, kept = Outcome.FELL_BACK, np.nan, 0, replace(memory, cursor=cursor)
    else:
        proven = solution.proven(TOLERANCE)
        outcome, gap = (Outcome.OPTIMAL, 0.0) if proven else (Outcome.BEST_SO_FAR, solution.gap)
        work = solution.evaluations
        kept = SolverMemory(
            cursor=cursor,
            opened=frozenset(name for name, opened in zip(regions.names, solution.opened, strict=True) if opened),
            prices=tuple(zip(regions.names, solution.prices.tolist(), strict=True)),
        )
    return Assignment(places, reasons, outcome, costs.of(places), gap, work, carbon, kept)
