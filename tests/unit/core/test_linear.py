"""Linear programs: what is kept from solve to solve changes how long they take, and nothing of the answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.plain_highs import PlainModel

from heliotrope.errors import InfeasibleError
from heliotrope.linear import Limits, Model, Program, Row, Rows, solve

NUMBERS = st.integers(-4, 9).map(float)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, Row]:
    """Knapsacks that must be covered and may not be overfull, and other costs."""
    count = draw(st.integers(2, 6))

    def row() -> Row:
        return np.array(draw(st.lists(NUMBERS, min_size=count, max_size=count)))

    rows = Rows()
    for _ in range(draw(st.integers(1, 3))):
        add(rows, row(), float(draw(st.integers(-5, 20))), np.inf)
    high = np.array(draw(st.lists(st.integers(0, 6), min_size=count, max_size=count)), dtype=float)
    low = np.minimum(np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), dtype=float), high)
    whole = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    return Program(row(), low, high, whole, rows), row()


def add(rows: Rows, values: Row, low: float, high: float) -> None:
    first = rows.block(low, high, 1)
    used = np.flatnonzero(values)
    rows.put(np.full(len(used), first), used, values[used])


def value(model: Model | PlainModel, cost: Row, start: Row | None = None) -> float | None:
    """None: no solution."""
    try:
        return model.solve(cost, Limits(), start).objective
    except InfeasibleError:
        return None


@settings(deadline=None)
@given(programs())
def test_the_optimum_is_that_of_a_plain_search(drawn: tuple[Program, Row]) -> None:
    program, _ = drawn
    assert value(Model(program), program.cost) == pytest.approx(value(PlainModel(program), program.cost), abs=1e-6)


@settings(deadline=None)
@given(programs(), st.integers(0, 4))
def test_a_model_that_is_solved_again_forgets_nothing_and_keeps_nothing(drawn: tuple[Program, Row], worse: int) -> None:
    """Other costs, with the first objective bounded in a row of its own, as stages are solved."""
    program, cost = drawn
    model = Model(program)
    first = value(model, program.cost)
    if first is None:
        with pytest.raises(InfeasibleError):
            model.solve(cost)
        return
    add(program.rows, program.cost, -np.inf, first + worse + 1e-6)
    again = value(model, cost)
    assert again == pytest.approx(value(PlainModel(program), cost), abs=1e-5)
    # And back again, with the row.
    assert value(model, program.cost) == pytest.approx(first, abs=1e-5)


@settings(deadline=None)
@given(programs())
def test_the_solution_is_one(drawn: tuple[Program, Row]) -> None:
    program, _ = drawn
    try:
        found = solve(program)
    except InfeasibleError:
        return
    assert found.values is not None
    low, high = program.rows.bounds()
    lines, columns, factors = program.rows.entries()
    sums = np.bincount(lines, factors * found.values[columns], minlength=program.rows.count)
    assert (sums >= low - 1e-6).all()
    assert (sums <= high + 1e-6).all()
    assert found.values[program.whole] == pytest.approx(np.round(found.values[program.whole]), abs=1e-6)
    assert found.bound <= found.objective + 1e-6


def cover(need: float) -> Program:
    """As few as possible of what counts 3 and what counts 5, to cover a need."""
    rows = Rows()
    add(rows, np.array([3.0, 5.0]), need, np.inf)
    return Program(np.array([3.1, 5.0]), np.zeros(2), np.full(2, 10.0), np.array([True, True]), rows)


def test_a_start_within_the_gap_is_the_answer_and_another_is_not() -> None:
    program, start = cover(9.0), np.array([0.0, 2.0])
    near = Model(program).solve(program.cost, Limits(relative_gap=0.2), start)
    assert near.values is not None
    assert near.values.tolist() == [0.0, 2.0]
    assert near.optimal
    assert near.bound == pytest.approx(9.0)  # of fractions
    best = Model(program).solve(program.cost, Limits(relative_gap=0.01), start)
    assert best.values is not None
    assert best.objective == pytest.approx(9.3)
    assert best.values == pytest.approx(np.array([3.0, 0.0]))


@pytest.mark.parametrize("start", [[0.0, 1.0], [-3.0, 4.0], [0.0, 11.0], [0.5, 1.5]])
def test_what_is_no_solution_is_no_start(start: list[float]) -> None:
    """Below the need, below and above the bounds, and not whole."""
    program = cover(9.0)
    found = Model(program).solve(program.cost, Limits(relative_gap=10.0), np.array(start))
    assert found.values is not None
    assert found.values.tolist() != start


def test_without_time_nothing_is_found() -> None:
    program = cover(9.0)
    found = Model(program).solve(program.cost, Limits(seconds=0.0))
    assert found.values is None
    assert not found.optimal


def test_time_counts_for_each_solve_anew() -> None:
    program = cover(9.0)
    model = Model(program)
    for _ in range(50):
        assert model.solve(program.cost, Limits(seconds=5.0)).optimal


def test_more_columns_and_rows_begin_where_fewer_ended() -> None:
    def blend(prices: list[float]) -> tuple[Program, Row]:
        rows, count = Rows(), len(prices)
        add(rows, np.ones(count), 4.0, np.inf)
        for column in range(count):  # at most three of each
            first = rows.block(-np.inf, 3.0, 1, np.array([100 + column]))
            rows.put(np.array([first]), np.array([column]), 1.0)
        cost = np.array(prices)
        return Program(cost, np.zeros(count), np.full(count, np.inf), np.zeros(count, dtype=np.bool_), rows), cost

    few, cost = blend([5.0, 4.0])
    model = Model(few)
    assert model.solve(cost).objective == pytest.approx(17.0)
    many, cost = blend([5.0, 4.0, 1.0, 9.0])
    again = Model(many)
    again.begin(model.basis(np.arange(2)), np.arange(4))
    found = again.solve(cost)
    assert found.objective == pytest.approx(3 * 1.0 + 4.0)
    assert found.duals == pytest.approx(solve(many).duals)
