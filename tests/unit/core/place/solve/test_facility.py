"""Solutions are what trying all choices finds, whatever the program, and what HiGHS finds where that is too much."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.place.solve.programs import best_of_all, middle, programs

from heliotrope.errors import SolverError
from heliotrope.place.policy import WorkLimit
from heliotrope.place.solve import facility
from heliotrope.place.solve.facility import evaluations_within, solve
from heliotrope.place.solve.highs import facility_by_highs
from heliotrope.place.solve.problem import NOT_PLACED, Problem, Solution, problem_of

WITHOUT_LIMIT = WorkLimit(seconds=None)
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    facility.warm_up()


def solved(problem: Problem, limit: WorkLimit = WITHOUT_LIMIT, **more: Any) -> Solution:
    solution = solve(problem, limit, **more)
    assert solution is not None
    check(problem, solution)
    return solution


def check(problem: Problem, solution: Solution) -> None:
    """Within feasibility and capacity, with the cost that it says."""
    placed = solution.regions != NOT_PLACED
    cost = problem.cost[placed, solution.regions[placed]]
    load = np.bincount(solution.regions[placed], problem.weight[placed], len(problem.capacity))
    assert np.isfinite(cost).all()
    assert (load <= problem.capacity + 1e-6).all()
    assert (solution.opened == (load > 0.0)).all()
    assert solution.objective == pytest.approx(cost.sum() + problem.fixed[solution.opened].sum())
    assert not solution.gap < 0.0


@given(programs())
@settings(max_examples=60, deadline=None)
def test_a_small_window_is_assigned_as_well_as_trying_all_does(problem: Problem) -> None:
    most, least = best_of_all(problem)
    solution = solved(problem, tolerance=0.0)
    assert (solution.regions != NOT_PLACED).sum() == most
    assert solution.objective == pytest.approx(least, rel=1e-7, abs=1e-9)
    assert solution.gap == 0.0


@given(programs(), st.data())
@settings(max_examples=60, deadline=None)
def test_where_the_search_begins_does_not_change_what_it_costs(problem: Problem, data: st.DataObject) -> None:
    d = len(problem.capacity)
    start = np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d)))
    prices = np.array(data.draw(st.lists(st.floats(0.0, 200.0), min_size=d, max_size=d)))
    cold, warm = solved(problem, tolerance=0.0), solved(problem, start=start, prices=prices, tolerance=0.0)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-7, abs=1e-9)


@given(programs(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_limit_leaves_a_complete_assignment_and_a_true_bound(problem: Problem, nodes: int) -> None:
    most, least = best_of_all(problem)
    solution = solved(problem, WorkLimit(None, nodes), tolerance=0.0)
    assert (solution.regions != NOT_PLACED).sum() == most
    assert solution.bound <= least * (1 + 1e-9) + 1e-9 <= solution.objective * (1 + 1e-8) + 1e-8


@given(programs(tokens=True, requests=5))
@settings(max_examples=80, deadline=None)
def test_requests_of_different_weight_are_packed_whole_within_a_true_bound(problem: Problem) -> None:
    most, least = best_of_all(problem)
    solution = solved(problem)
    placed = problem.weight[solution.regions != NOT_PLACED].sum()
    assert placed <= most
    if placed == most:
        assert solution.objective >= least * (1 - 1e-9)
    if not np.isnan(solution.gap):
        assert solution.bound <= least * (1 + 1e-6) + 1e-6


def test_packing_places_nearly_all_and_costs_little_more() -> None:
    """Against the optimum on many small programs: what a window loses by not being solved as bin packing."""
    lost, extra, count = 0, [], 150
    rng = np.random.default_rng(7)
    for _ in range(count):
        n, d = 6, 3
        weight = np.round(rng.uniform(100.0, 1_000.0, n))
        share = rng.uniform(0.5, 1.5, d)
        problem = problem_of(
            rng.uniform(1.0, 10.0, (n, d)),
            rng.random((n, d)) < 0.9,
            np.round(1.4 * weight.sum() * share / share.sum()),
            rng.uniform(0.0, 10.0, d),
            weight,
        )
        most, least = best_of_all(problem)
        solution = solved(problem)
        missing = most - problem.weight[solution.regions != NOT_PLACED].sum()
        lost += missing > 0.0
        if missing == 0.0:
            extra.append(solution.objective / least - 1.0)
    assert lost <= 0.05 * count
    assert np.mean(extra) <= 0.05


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("noise", [0.0, 0.03, 0.5])
def test_a_middle_window_is_assigned_as_well_as_highs_does(seed: int, noise: float) -> None:
    problem = middle(seed, 40, 6, noise)
    found = facility_by_highs(problem.cost, problem.weight, problem.capacity, problem.fixed)
    solution = solved(problem, tolerance=0.0)
    assert (solution.regions != NOT_PLACED).all()
    assert solution.objective == pytest.approx(found.objective, rel=1e-6)
    assert solution.gap == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_whole_window_is_assigned_as_well_as_highs_does(seed: int) -> None:
    problem = middle(seed, 300, 16)
    found = facility_by_highs(problem.cost, problem.weight, problem.capacity, problem.fixed)
    solution = solved(problem)
    assert solution.objective <= found.objective * (1 + facility.TOLERANCE)
    assert solution.bound <= found.objective * (1 + 1e-9)
    assert solution.proven(facility.TOLERANCE)


@pytest.mark.parametrize("seed", range(5))
def test_without_fixed_costs_it_is_the_transport_problem(seed: int) -> None:
    problem = middle(seed, 40, 6)
    plain = problem_of(problem.cost, np.isfinite(problem.cost), problem.capacity)
    found = facility_by_highs(plain.cost, plain.weight, plain.capacity, plain.fixed)
    solution = solved(plain)
    assert solution.objective == pytest.approx(found.objective, rel=1e-6)
    assert (solution.evaluations, solution.gap) == (1, 0.0)


def test_when_there_is_not_room_for_all_as_many_as_possible_get_a_place() -> None:
    """Only the first may go to the second region: two get a place if it does."""
    cost = np.array([[1.0, 1e6], [1.0, 1.0]])
    problem = problem_of(cost, np.array([[True, True], [True, False]]), np.array([1.0, 1.0]), np.array([0.0, 1e9]))
    assert solved(problem).regions.tolist() == [1, 0]


def test_the_same_window_has_the_same_answer() -> None:
    for tokens in (False, True):
        problem = middle(3, 80, 8, 0.3, tokens=tokens)
        first, second = solved(problem), solved(problem)
        assert (first.regions == second.regions).all()
        assert (first.objective, first.bound, first.evaluations) == (second.objective, second.bound, second.evaluations)


def test_a_large_window_is_settled_among_classes_and_then_assigned_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = middle(1, 300, 12)
    exact = solved(problem, tolerance=0.0)
    monkeypatch.setattr(facility, "SINGLE_CELLS", 0)
    solution = solved(problem)
    assert (solution.regions != NOT_PLACED).all()
    assert exact.objective * (1 - 1e-9) <= solution.objective <= 1.005 * exact.objective
    assert solution.bound <= exact.objective


@pytest.mark.parametrize("tokens", [False, True])
def test_without_compiled_loops_highs_solves_it(monkeypatch: pytest.MonkeyPatch, tokens: bool) -> None:
    problem = middle(2, 40, 6, tokens=tokens)
    exact = solved(problem, tolerance=0.0)
    monkeypatch.setattr(facility, "find_spec", lambda _: None)
    solution = solved(problem)
    assert (solution.regions != NOT_PLACED).all()
    assert solution.objective == pytest.approx(exact.objective, rel=0.02)
    assert solution.bound <= solution.objective
    plain = problem_of(problem.cost, np.isfinite(problem.cost), problem.capacity)
    assert (solved(plain).regions != NOT_PLACED).all()


def test_highs_without_time_finds_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facility, "find_spec", lambda _: None)
    assert solve(middle(2, 40, 6), WorkLimit(1e-9)) is None


def test_highs_names_a_program_that_it_cannot_solve() -> None:
    one = np.ones(1)
    with pytest.raises(SolverError, match="Infeasible"):
        facility_by_highs(np.ones((1, 1)), 2.0 * one, one, one)


@pytest.mark.parametrize(("limit", "evaluations"), [
    (WorkLimit(0.0), 0), (WorkLimit(-1.0), 0), (WorkLimit(None, 0), 0), (WorkLimit(1e-9), 1), (WorkLimit(None, 7), 7),
    (WorkLimit(60.0, 7), 7), (WorkLimit(0.25), 325),
])  # fmt: skip
def test_seconds_are_spent_at_a_fixed_rate(limit: WorkLimit, evaluations: int) -> None:
    assert evaluations_within(limit, 300 * 16) == evaluations
    assert (solve(middle(0, 6, 3), limit) is None) == (evaluations == 0)


def test_windows_without_anything_to_assign() -> None:
    nobody = solved(problem_of(np.zeros((0, 3)), np.zeros((0, 3), dtype=bool), np.ones(3), np.ones(3)))
    assert (len(nobody.regions), nobody.objective, nobody.gap) == (0, 0.0, 0.0)
    nowhere = solved(problem_of(np.zeros((2, 0)), np.zeros((2, 0), dtype=bool), np.zeros(0)))
    assert nowhere.regions.tolist() == [NOT_PLACED] * 2
    infeasible = solved(problem_of(np.ones((2, 3)), np.zeros((2, 3), dtype=bool), np.ones(3)))
    assert infeasible.regions.tolist() == [NOT_PLACED] * 2
    full = solved(problem_of(np.ones((2, 3)), np.ones((2, 3), dtype=bool), np.zeros(3)))
    assert full.regions.tolist() == [NOT_PLACED] * 2
    one = solved(problem_of(np.ones((3, 1)), np.ones((3, 1), dtype=bool), np.array([2.9]), np.array([5.0])))
    assert ((one.regions == 0).sum(), one.objective) == (2, 7.0)


def test_what_is_unknown_is_not_zero() -> None:
    everywhere = np.ones((2, 3), dtype=bool)
    cost = np.array([[NAN, 5.0, 9.0], [INF, 5.0, 9.0]])
    unknown_cost = problem_of(cost, everywhere, np.full(3, 5.0))
    assert solved(unknown_cost).regions.tolist() == [1, 1]
    unknown_room = problem_of(np.ones((2, 3)) * [1.0, 2.0, 3.0], everywhere, np.array([NAN, -1.0, INF]))
    assert solved(unknown_room).regions.tolist() == [2, 2]
    unknown_wake = problem_of(np.ones((2, 2)) * [1.0, 2.0], everywhere[:, :2], np.full(2, 5.0), np.array([100.0, NAN]))
    assert solved(unknown_wake).regions.tolist() == [0, 0]
    never = problem_of(np.ones((2, 2)) * [1.0, 2.0], everywhere[:, :2], np.full(2, 5.0), np.array([INF, 100.0]))
    assert solved(never).regions.tolist() == [1, 1]
    weights = problem_of(np.ones((2, 3)), everywhere, np.full(3, 10.0), None, np.array([NAN, 7.0]))
    assert weights.weight.tolist() == [7.0, 7.0]
    assert len(set(solved(weights).regions.tolist())) == 2
    assert problem_of(np.ones((1, 1)), everywhere[:1, :1], np.ones(1), None, np.array([NAN])).weight.tolist() == [1.0]


def test_costs_may_be_negative_or_all_zero() -> None:
    everywhere = np.ones((3, 2), dtype=bool)
    problem = problem_of(np.ones((3, 2)) * [-5.0, 1.0], everywhere, np.array([2.0, 5.0]), np.array([0.0, -3.0]))
    assert sorted(solved(problem).regions.tolist()) == [0, 0, 1]
    assert solved(problem).objective == -9.0
    assert solved(problem_of(np.zeros((3, 2)), everywhere, np.array([2.0, 5.0]))).objective == 0.0


@pytest.mark.parametrize("change", [
    {"feasible": np.ones((2, 2), dtype=bool)}, {"capacity": np.ones(2)}, {"fixed": np.ones(4)}, {"weight": np.ones(3)},
])  # fmt: skip
def test_shapes_that_do_not_agree_are_named(change: dict[str, Any]) -> None:
    arrays = {"cost": np.ones((2, 3)), "feasible": np.ones((2, 3), dtype=bool), "capacity": np.ones(3)} | change
    with pytest.raises(ValueError, match=r"costs of shape \(2, 3\)"):
        problem_of(**arrays)


def test_highs_is_silent() -> None:
    """It greets once per process, so in one of its own."""
    script = (
        "import numpy as np\n"
        "from heliotrope.place.solve.highs import facility_by_highs\n"
        "one = np.ones(1)\n"
        "assert facility_by_highs(np.ones((1, 1)), one, one, one).objective == 2.0\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
