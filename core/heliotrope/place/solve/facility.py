"""Solves a window's problem: the plain ILP where there are no fixed costs, the facility program where there are."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

from heliotrope.place.policy import WorkLimit
from heliotrope.place.solve.classes import Classes, aggregate, single
from heliotrope.place.solve.model import Model, model_of
from heliotrope.place.solve.problem import NOT_PLACED, ROUNDING, Problem, Solution, problem_of
from heliotrope.place.window import BoolColumn, FloatColumn, FloatMatrix, IntColumn

TOLERANCE = 1e-4
"""Share of the objective by which a choice of regions may be better and yet is not looked for."""
SINGLE_CELLS = 1 << 17
"""Up to so many requests times regions each request is a class of its own."""
SECONDS_PER_CELL = 160e-9
"""Of one evaluation, per request and region: more than `bench/schedulers.py` measures (`unrelated_300x16`)."""
PACKING_PASSES = 8
"""Of moves and swaps among requests of different weights."""
PACKED_GAP = 2e-3
"""Beyond it packing is tried once more, with a reserve."""
RESERVE = 0.25
"""Room of each region that is kept for packing then, in mean requests: of 0.25 to 2 what helped most."""
REQUEST_EVALUATIONS = 3
"""After the classes' search: the relaxation, the classes' choice, one more."""
UNLIMITED_EVALUATIONS = 1 << 30


@dataclass(frozen=True, slots=True)
class Split:
    """What a search found; requests may be split where weights differ."""

    model: Model
    """Each request a class of its own."""
    opened: BoolColumn
    """Length d."""
    flow: FloatMatrix
    """Shape (d + 1, n)."""
    objective: float
    """In the model's unit, nowhere included."""
    bound: float
    evaluations: int
    prices: FloatColumn


def solve(
    problem: Problem,
    limit: WorkLimit,
    start: BoolColumn | None = None,
    prices: FloatColumn | None = None,
    tolerance: float = TOLERANCE,
) -> Solution | None:
    """The best assignment within the limit; None where the limit allows nothing at all.

    As many requests as possible are placed, whatever that costs; with unequal weights as many as packing finds room
    for. Seconds are spent at a fixed rate of evaluations, so that a window has the same answer on every machine.
    Without compiled loops HiGHS solves it, by its own clock.

    Args:
        problem: see `problem_of`.
        limit: nodes count evaluations.
        start: regions to open first, length d: those of the last window.
        prices: `Solution.prices` of the last window.
        tolerance: relative, of the objective.

    Raises:
        SolverError: if HiGHS fails.
    """
    n, d = problem.cost.shape
    somewhere = np.isfinite(problem.cost).any(axis=1)
    start = np.zeros(d, dtype=np.bool_) if start is None else start
    prices = np.zeros(d) if prices is None else prices
    if not somewhere.any():
        return Solution(np.full(n, NOT_PLACED), np.zeros(d, dtype=np.bool_), 0.0, 0.0, 0, prices)
    evaluations = evaluations_within(limit, n * d)
    if evaluations < 1:
        return None
    inside = replace(problem, cost=problem.cost[somewhere], weight=problem.weight[somewhere])
    if find_spec("numba") is None:
        split = _by_highs(inside, limit, tolerance)
        if split is None:
            return None
        found = _whole(inside, split, split)
    else:
        split = _by_search(inside, evaluations, start, prices, tolerance)
        found = _whole(inside, split, split)
        if not inside.unit and not found.gap <= PACKED_GAP and split.evaluations < evaluations:
            left = evaluations - split.evaluations
            again = _by_search(_with_reserve(inside), left, split.opened, split.prices, tolerance)
            found = _better(inside, found, _whole(inside, again, split), split.evaluations + again.evaluations)
    regions = np.full(n, NOT_PLACED)
    regions[somewhere] = found.regions
    return replace(found, regions=regions)


def warm_up() -> None:
    """Compile, or load what was compiled, before requests wait for it."""
    for weight in (None, np.array([1.0, 2.0])):
        limit = WorkLimit(seconds=None, nodes=4)
        solve(problem_of(np.ones((2, 2)), np.ones((2, 2), dtype=np.bool_), np.ones(2) * 2, np.ones(2), weight), limit)


def evaluations_within(limit: WorkLimit, cells: int) -> int:
    """Evaluations that a limit allows for so many requests times regions."""
    allowed = UNLIMITED_EVALUATIONS
    if limit.seconds is not None:
        allowed = int(limit.seconds / (SECONDS_PER_CELL * cells))
        allowed = max(allowed, 1 if limit.seconds > 0.0 else 0)
    if limit.nodes is not None:
        allowed = min(allowed, limit.nodes)
    return allowed


def _by_search(problem: Problem, evaluations: int, start: BoolColumn, prices: FloatColumn, tolerance: float) -> Split:
    from heliotrope.place.solve.search import search

    requests = single(problem)
    levels: list[tuple[Classes, int]] = [(requests, evaluations)]
    if problem.cost.size > SINGLE_CELLS:
        # Which regions open is settled among classes; then the requests themselves are assigned within those.
        classes = aggregate(problem)
        if 2 * len(classes.amount) < len(requests.amount):
            levels = [(classes, evaluations), (requests, REQUEST_EVALUATIONS)]
    opened, spent = np.append(start, False), 0
    for classes, most in levels:
        model = model_of(problem, classes)
        price_unit = model.cost_unit / model.weight_unit
        duals = np.append(prices / price_unit, 0.0)
        begin, flow = opened.copy(), np.empty((len(opened), len(classes.amount)))
        objective, bound, used = search(
            model.cost, model.amount, model.capacity, model.fixed, begin, duals, most, tolerance, opened, flow
        )
        spent, prices = spent + used, duals[:-1] * price_unit
    return Split(model, opened[:-1], flow, objective, bound, spent, prices)


def _by_highs(problem: Problem, limit: WorkLimit, tolerance: float) -> Split | None:
    from heliotrope.place.solve.highs import facility_by_highs

    model = model_of(problem, single(problem))
    requests = (model.cost, model.amount, model.capacity, model.fixed)
    opened, nodes = np.append(problem.capacity > 0.0, True), 0
    if problem.fixed.any():
        # As above: regions are chosen among classes. The relaxation with the requests' own costs is the bound.
        classes = model_of(problem, aggregate(problem))
        chosen = facility_by_highs(
            classes.cost,
            classes.amount,
            classes.capacity,
            classes.fixed,
            seconds=limit.seconds,
            nodes=limit.nodes,
            tolerance=tolerance,
        )
        if not len(chosen.opened):
            return None
        opened, nodes = chosen.opened, chosen.nodes
    assigned = facility_by_highs(*requests, opened=opened)
    bound = facility_by_highs(*requests, relaxed=True).bound if problem.fixed.any() else assigned.objective
    return Split(
        model, opened[:-1], assigned.flow, assigned.objective, bound, nodes + 1, np.zeros(len(problem.capacity))
    )


def _with_reserve(problem: Problem) -> Problem:
    """With less room everywhere, so that the regions that open have some left for packing."""
    room = np.maximum(problem.capacity - RESERVE * problem.weight.mean(), 0.0)
    return replace(problem, cost=np.where(room > 0.0, problem.cost, np.inf), capacity=room)


def _better(problem: Problem, first: Solution, second: Solution, evaluations: int) -> Solution:
    """The one that places more, at less cost where both place as much."""
    weights = [float(problem.weight[found.regions >= 0].sum()) for found in (first, second)]
    better = second if (-weights[1], second.objective) < (-weights[0], first.objective) else first
    return replace(better, evaluations=evaluations, prices=first.prices)


def _whole(problem: Problem, split: Split, bounded: Split) -> Solution:
    """Every request of `split` in one region, with the bound of `bounded`."""
    flow, amount = split.flow, split.model.amount
    at = np.argmax(flow, axis=0)
    kept = (at < len(flow) - 1) & (flow[at, np.arange(len(at))] >= amount * (1.0 - ROUNDING))
    places = np.where(kept, at, NOT_PLACED)
    if not problem.unit:
        from heliotrope.place.solve.packing import pack

        opened = split.opened.copy()
        pack(problem.cost, problem.weight, problem.capacity, problem.fixed, opened, PACKING_PASSES, places)
    placed = places >= 0
    used = np.zeros(len(problem.capacity), dtype=np.bool_)
    used[places[placed]] = True
    objective = float(problem.cost[placed, places[placed]].sum() + problem.fixed[used].sum())
    bound = _bound(problem, bounded, places, objective)
    return Solution(places, used, objective, bound, split.evaluations, split.prices)


def _bound(problem: Problem, split: Split, places: IntColumn, objective: float) -> float:
    """Without what is nowhere; NaN where more requests are nowhere than in what the bound is of."""
    model, nowhere = split.model, float(split.flow[-1].sum())
    if problem.weight[places < 0].sum() > nowhere * model.weight_unit * (1.0 + ROUNDING):
        return float("nan")
    if problem.unit and split.bound >= split.objective:
        return objective
    return float((split.bound - nowhere * model.cost[0, -1]) * model.cost_unit)
