"""Every cut bounds every choice of regions; the choice of least bound is found; limits leave true bounds."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.place.solve.programs import middle, programs, values

from heliotrope.place.solve.classes import aggregate, single
from heliotrope.place.solve.cuts import add_cut, least_bound, polish, region_saving
from heliotrope.place.solve.facility import warm_up
from heliotrope.place.solve.model import Model, model_of
from heliotrope.place.solve.problem import problem_of
from heliotrope.place.solve.search import CUTS, search
from heliotrope.place.solve.transport import transport

NOTHING_KNOWN = np.zeros((1, 8), dtype=np.bool_)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    warm_up()
    one, flags = np.ones(1), np.ones(1, dtype=np.bool_)
    least_bound(one, np.ones((1, 1)), 1, one, 0.0, 1.0, 1, NOTHING_KNOWN, 0, flags)
    region_saving(np.ones((1, 1)), one, 1.0, one, 0, np.ones(1), np.ones(1, dtype=np.intp), np.ones(1))
    polish(np.ones((1, 2)), one, np.ones(2), np.ones(2), np.zeros(2), 1.0, 1, np.ones(2))


def choices(regions: int) -> list[Any]:
    return [np.array([*each, True]) for each in product([False, True], repeat=regions)]


def cost_of(model: Model, opened: Any) -> float:
    """What a choice costs, by a transport problem from scratch."""
    flow = np.empty((len(opened), len(model.amount)))
    prices = np.zeros(len(opened))
    value, _ = transport(model.cost, model.amount, model.capacity, opened, prices, np.inf, flow)
    return float(value + model.fixed[opened].sum())


@given(programs(), st.data(), st.floats(0.0, 1.0), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_cut_bounds_every_choice_whatever_its_prices(
    problem: Any, data: Any, second: float, everywhere: bool
) -> None:
    if not np.isfinite(problem.cost).any():
        return
    model = model_of(problem, single(problem))
    d = len(problem.capacity)
    opened = np.append(np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d))), True)
    prices = np.append(values(data.draw, st.floats(0.0, 5.0), d) * opened[:-1], 0.0)
    saved = np.empty(d + 1)
    everywhere = everywhere or second > 0.0  # what prices say of savings holds for the least u alone
    base = add_cut(
        model.cost, model.amount, model.capacity, model.fixed, opened, prices.copy(), second, everywhere, saved
    )
    for choice in choices(d):
        cost = cost_of(model, choice)
        assert base + saved[choice].sum() <= cost + 1e-7 * abs(cost)


@given(programs(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_cut_of_a_choice_is_exact_there(problem: Any, data: Any) -> None:
    model = model_of(problem, single(problem))
    d = len(problem.capacity)
    opened = np.append(np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d))), True)
    prices, saved = np.zeros(d + 1), np.empty(d + 1)
    flow = np.empty((d + 1, len(model.amount)))
    value, _ = transport(model.cost, model.amount, model.capacity, opened, prices, np.inf, flow)
    base = add_cut(model.cost, model.amount, model.capacity, model.fixed, opened, prices, 0.0, False, saved)
    assert base + saved[opened].sum() == pytest.approx(value + model.fixed[opened].sum(), rel=1e-9, abs=1e-9)


@given(programs(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_transport_problem_that_stops_early_leaves_a_bound(problem: Any, data: Any) -> None:
    model = model_of(problem, single(problem))
    d = len(problem.capacity)
    opened = np.append(np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d))), True)
    full = cost_of(model, opened) - model.fixed[opened].sum()
    stop = full * data.draw(st.floats(0.0, 1.5))
    prices = np.append(values(data.draw, st.floats(0.0, 3.0), d), 0.0)
    flow = np.empty((d + 1, len(model.amount)))
    value, _ = transport(model.cost, model.amount, model.capacity, opened, prices, stop, flow)
    assert value == pytest.approx(full, rel=1e-9, abs=1e-9) or stop <= value <= full * (1 + 1e-9)


@given(st.data(), st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_the_choice_of_least_bound_is_that_of_all_choices(data: Any, d: int, cuts: int) -> None:
    base = values(data.draw, st.floats(0.0, 10.0), cuts)
    saved = values(data.draw, st.floats(-5.0, 5.0), cuts, d)
    capacity = values(data.draw, st.integers(0, 5), d)
    need = float(data.draw(st.integers(0, int(capacity.sum()))))
    below = data.draw(st.sampled_from([np.inf, 5.0]))
    bounds = [
        (base + saved[:, each[:-1]].sum(axis=1)).max() for each in choices(d) if capacity[each[:-1]].sum() >= need
    ]
    choice = np.zeros(d, dtype=np.bool_)
    bound, looked, found = least_bound(base, saved, cuts, capacity, need, below, 1 << 20, NOTHING_KNOWN, 0, choice)
    assert bound == pytest.approx(min(*bounds, below), rel=1e-9, abs=1e-9)
    assert found == (min(bounds) < below)
    if found:
        assert (base + saved[:, choice].sum(axis=1)).max() == pytest.approx(bound, abs=1e-9)
        assert capacity[choice].sum() >= need
    for most in range(0, looked, 3):
        early, spent, _ = least_bound(base, saved, cuts, capacity, need, below, most, NOTHING_KNOWN, 0, choice)
        assert early <= bound + 1e-9
        assert spent <= most


@given(st.data(), st.integers(1, 12))
@settings(max_examples=50, deadline=None)
def test_what_a_region_saves_is_a_fractional_knapsack(data: Any, classes: int) -> None:
    cost = values(data.draw, st.one_of(st.integers(0, 3), st.floats(0.0, 9.0)), classes, 1)
    worth = values(data.draw, st.one_of(st.integers(0, 3), st.floats(0.0, 9.0)), classes)
    amount = values(data.draw, st.integers(1, 4), classes)
    room = float(data.draw(st.integers(0, 20)))
    served, gains, of = np.empty(classes), np.empty(classes), np.empty(classes, dtype=np.intp)
    gained, price = region_saving(cost, amount, room, worth, 0, gains, of, served)
    left, expected = room, 0.0
    for k in np.argsort(cost[:, 0] - worth, kind="stable"):
        taken = min(left, amount[k]) if worth[k] > cost[k, 0] else 0.0
        expected += taken * (worth[k] - cost[k, 0])
        left -= taken
    assert gained == pytest.approx(expected, abs=1e-9)
    assert (served * amount).sum() == pytest.approx(room - left, abs=1e-9)
    assert (served * amount) @ (worth - cost[:, 0]) == pytest.approx(expected, abs=1e-9)
    over = np.maximum(worth - cost[:, 0] - price, 0.0) @ amount
    assert over + price * room == pytest.approx(expected, abs=1e-9) or price == 0.0


@pytest.mark.parametrize("noise", [0.03, 0.5])
def test_polishing_raises_the_bound_of_the_relaxation_and_stays_below_the_optimum(noise: float) -> None:
    problem = middle(4, 60, 7, noise)
    model = model_of(problem, single(problem))
    usable = model.capacity > 0.0
    prices, flow = np.zeros(8), np.empty((8, 60))
    with_share = model.cost + np.append(model.fixed[:-1] / model.capacity[:-1], 0.0)
    relaxed, _ = transport(with_share, model.amount, model.capacity, usable, prices, np.inf, flow)
    prices[:-1] += model.fixed[:-1] / model.capacity[:-1]
    best = min(cost_of(model, each) for each in choices(7))
    saved = np.empty(8)
    base = polish(model.cost, model.amount, model.capacity, model.fixed, prices, best, 200, saved)
    bound = base + np.minimum(saved, 0.0).sum()
    assert relaxed < bound <= best * (1 + 1e-9)


@pytest.mark.slow
def test_a_search_with_more_cuts_than_it_keeps_ends_and_is_right() -> None:
    """Costs without pattern and room to spare: hardly a choice bounds another."""
    rng = np.random.default_rng(0)
    n, d = 120, 12
    problem = problem_of(
        rng.uniform(1.0, 10.0, (n, d)), np.ones((n, d), dtype=bool), np.full(d, 60.0), 40.0 * rng.uniform(0.9, 1.1, d)
    )
    model = model_of(problem, single(problem))
    opened, flow = np.zeros(d + 1, dtype=np.bool_), np.empty((d + 1, n))
    nothing = np.zeros(d + 1, dtype=np.bool_)
    arrays = (model.cost, model.amount, model.capacity, model.fixed)
    best, bound, spent = search(*arrays, nothing, np.zeros(d + 1), 10_000, 0.0, opened, flow)
    assert best == pytest.approx(min(cost_of(model, each) for each in choices(d)), rel=1e-9)
    assert bound == best
    assert 2 * spent > CUTS


def test_choices_that_are_known_are_not_found_again() -> None:
    base, saved, capacity = np.zeros(1), np.array([[-1.0, -2.0]]), np.ones(2)
    known = np.array([[True, True], [False, True]])
    choice = np.zeros(2, dtype=np.bool_)
    found = [least_bound(base, saved, 1, capacity, 1.0, 9.0, 99, known, count, choice)[::2] for count in range(3)]
    assert found == [(-3.0, True), (-2.0, True), (-1.0, True)]
    assert choice.tolist() == [True, False]


def test_classes_keep_feasible_regions_and_weight() -> None:
    problem = middle(0, 200, 10, tokens=True)
    classes = aggregate(problem)
    assert len(classes.amount) < 200
    assert classes.amount.sum() == problem.weight.sum()
    for r, k in enumerate(classes.of):
        assert (np.isfinite(classes.cost[k]) == np.isfinite(problem.cost[r])).all()
    total = np.where(np.isfinite(problem.cost), problem.cost, 0.0).sum()
    assert np.where(np.isfinite(classes.cost), classes.cost * classes.amount[:, None], 0.0).sum() == pytest.approx(
        total
    )
