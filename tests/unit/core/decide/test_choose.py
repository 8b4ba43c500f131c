"""What is chosen among feasible plans, whatever their numbers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, THREE, pool

from heliotrope.decide.candidates import Candidates
from heliotrope.decide.choose import Choice, choose, terms_in_use
from heliotrope.decide.decision import decide
from heliotrope.decide.estimate import Estimates
from heliotrope.decide.losses import CHOSEN, CODE, Loss, loss_of
from heliotrope.decide.policy import DecisionPolicy, Objective, Term

Plan = tuple[float, float, float, float, float]
"""Carbon, energy, cost, latency, risk."""
TERMS = (Term.CARBON, Term.ENERGY, Term.COST, Term.LATENCY, Term.RISK)
EXACT = replace(POLICY, choices=0)
TEMPLATE = decide(REQUEST, pool(["a"], THREE), POLICY, NOW).estimates
ROOMY = dict.fromkeys(TERMS, 0.1)

amounts = st.one_of(st.integers(1, 6).map(float), st.floats(0.1, 1e3))
risks = st.one_of(st.sampled_from([0.0, 0.1, 0.3]), st.floats(0.0, 1.0))
plans = st.tuples(amounts, amounts, amounts, amounts, risks)
orders = st.lists(st.sampled_from(TERMS), min_size=1, max_size=5, unique=True).map(tuple)
tolerances = st.fixed_dictionaries({term: st.sampled_from([0.0, 0.02, 0.1, 0.5]) for term in TERMS})
pools_of_plans = st.lists(plans, min_size=1, max_size=9)


def chosen(
    rows: Sequence[Plan],
    policy: DecisionPolicy,
    *,
    names: Sequence[str] | None = None,
    scores: Sequence[float] | None = None,
    seed: int = 7,
    eligible: Sequence[bool] | None = None,
) -> Choice:
    carbon, energy, cost, latency, risk = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    estimates = replace(
        TEMPLATE, grams_co2e=carbon, incremental_joules=energy, cost=cost, service_seconds=latency,
        intensity_g_per_kwh=carbon,
    )  # fmt: skip
    n = len(rows)
    candidates = pool(["a"] * n, THREE, base_score=0.5 if scores is None else list(scores))
    if names is not None:
        candidates = replace(candidates, endpoints=tuple(names))
    return _choose(
        candidates, estimates, risk, np.ones(n, bool) if eligible is None else np.array(eligible), policy, seed
    )


def _choose(
    candidates: Candidates,
    estimates: Estimates,
    risk: np.ndarray[tuple[int], np.dtype[np.float64]],
    eligible: np.ndarray[tuple[int], np.dtype[np.bool_]],
    policy: DecisionPolicy,
    seed: int,
) -> Choice:
    return choose(REQUEST, candidates, estimates, risk, eligible, policy, None, seed)


def columns_of(row: Plan, order: Sequence[Term]) -> list[float]:
    return [row[TERMS.index(term)] for term in order]


def dominates(one: Plan, other: Plan, order: Sequence[Term]) -> bool:
    mine, theirs = columns_of(one, order), columns_of(other, order)
    return all(a <= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs


def lexicographic(order: tuple[Term, ...], given: dict[Term, float], choices: int = 0) -> DecisionPolicy:
    return replace(POLICY, order=order, tolerances=given, choices=choices)


@given(rows=pools_of_plans, order=orders, given_tolerances=tolerances)
def test_the_choice_is_on_the_pareto_front(
    rows: list[Plan], order: tuple[Term, ...], given_tolerances: dict[Term, float]
) -> None:
    winner = rows[chosen(rows, lexicographic(order, given_tolerances)).winner]
    assert not any(dominates(other, winner, order) for other in rows)


@given(rows=pools_of_plans, order=orders, given_tolerances=tolerances, choices=st.integers(1, 4))
def test_a_draw_leaves_nobody_beyond_the_tolerance_of_a_term(
    rows: list[Plan], order: tuple[Term, ...], given_tolerances: dict[Term, float], choices: int
) -> None:
    """Beyond the first term's tolerance, as later ones are compared among what earlier ones left."""
    first = order[0]
    assume(not (first is Term.LATENCY and len(order) == 1))
    winner = rows[chosen(rows, lexicographic(order, given_tolerances, choices)).winner]
    best = min(columns_of(row, (first,))[0] for row in rows)
    slack = given_tolerances[first] if first is Term.RISK else given_tolerances[first] * best
    assert columns_of(winner, (first,))[0] <= best + slack + 1e-12


@given(rows=pools_of_plans, order=orders, given_tolerances=tolerances, choices=st.integers(0, 3), data=st.data())
def test_the_order_of_rows_does_not_matter(
    rows: list[Plan], order: tuple[Term, ...], given_tolerances: dict[Term, float], choices: int, data: st.DataObject
) -> None:
    policy = lexicographic(order, given_tolerances, choices)
    names = [f"e{i}" for i in range(len(rows))]
    there = data.draw(st.permutations(range(len(rows))))
    straight = chosen(rows, policy, names=names)
    shuffled = chosen([rows[i] for i in there], policy, names=[names[i] for i in there])
    assert there[shuffled.winner] == straight.winner
    assert shuffled.decided_by == straight.decided_by
    assert [loss_of(int(straight.codes[i])) for i in there] == [loss_of(int(code)) for code in shuffled.codes]


@given(rows=pools_of_plans, order=orders, given_tolerances=tolerances, extra=st.floats(0.001, 2.0), data=st.data())
def test_a_dominated_plan_moves_nothing(
    rows: list[Plan], order: tuple[Term, ...], given_tolerances: dict[Term, float], extra: float, data: st.DataObject
) -> None:
    policy = lexicographic(order, given_tolerances)
    worse = tuple(value * (1.0 + extra) + 0.001 for value in data.draw(st.sampled_from(rows)))
    assert chosen([*rows, worse], policy).winner == chosen(rows, policy).winner  # type: ignore[list-item]


@given(rows=pools_of_plans, data=st.data(), choices=st.integers(1, 3))
def test_a_plan_beyond_every_tolerance_moves_no_draw(rows: list[Plan], data: st.DataObject, choices: int) -> None:
    policy = replace(POLICY, order=TERMS[:4], tolerances=ROOMY, choices=choices)
    worse = tuple(value * 3.0 + 1.0 for value in data.draw(st.sampled_from(rows)))
    names = [f"e{i}" for i in range(len(rows))]
    with_it = chosen([*rows, worse], policy, names=[*names, "worse"])  # type: ignore[list-item]
    assert with_it.winner == chosen(rows, policy, names=names).winner


weights = st.dictionaries(st.sampled_from(TERMS), st.floats(0.01, 10.0), min_size=1)


@given(rows=pools_of_plans, given_weights=weights, scale=st.floats(0.01, 100.0), term=st.sampled_from(TERMS[:3]))
def test_a_weighted_choice_does_not_depend_on_units(
    rows: list[Plan], given_weights: dict[Term, float], scale: float, term: Term
) -> None:
    policy = replace(EXACT, objective=Objective.WEIGHTED, weights=given_weights, score_tolerance=1e-6)
    at = TERMS.index(term)
    scaled = [(*row[:at], row[at] * scale, *row[at + 1 :]) for row in rows]
    totals = sorted(_totals(rows, given_weights))
    assume(len(totals) < 2 or totals[1] > totals[0] * (1.0 + 1e-5))
    assert chosen(scaled, policy).winner == chosen(rows, policy).winner  # type: ignore[arg-type]


@given(rows=pools_of_plans, given_weights=weights, extra=st.floats(0.1, 2.0), data=st.data())
def test_a_dominated_plan_moves_no_weighted_choice(
    rows: list[Plan], given_weights: dict[Term, float], extra: float, data: st.DataObject
) -> None:
    policy = replace(EXACT, objective=Objective.WEIGHTED, weights=given_weights, score_tolerance=0.0)
    worse = tuple(value * (1.0 + extra) + 0.01 for value in data.draw(st.sampled_from(rows)))
    names = [f"e{i}" for i in range(len(rows) + 1)]
    with_it = chosen([*rows, worse], policy, names=names)  # type: ignore[list-item]
    assert with_it.winner == chosen(rows, policy, names=names[:-1]).winner


@given(rows=pools_of_plans, given_weights=weights)
def test_a_weighted_choice_is_the_least_sum(rows: list[Plan], given_weights: dict[Term, float]) -> None:
    policy = replace(EXACT, objective=Objective.WEIGHTED, weights=given_weights, score_tolerance=0.0)
    totals = _totals(rows, given_weights)
    assert totals[chosen(rows, policy).winner] == pytest.approx(min(totals))


def _totals(rows: Sequence[Plan], given_weights: dict[Term, float]) -> list[float]:
    """Written out: latency by the promise, risk as it is, the rest by the least."""
    promise = POLICY.ttft_slo_seconds + REQUEST.expected_output_tokens * POLICY.tpot_slo_seconds  # type: ignore[operator]
    least = [min(row[i] for row in rows) for i in range(5)]
    by = {Term.LATENCY: promise, Term.RISK: 1.0} | {term: least[TERMS.index(term)] for term in TERMS[:3]}
    return [sum(w * row[TERMS.index(term)] / by[term] for term, w in given_weights.items()) for row in rows]


def test_zeros_do_not_divide() -> None:
    policy = replace(EXACT, objective=Objective.WEIGHTED, weights={Term.CARBON: 1.0, Term.ENERGY: 0.001})
    rows: list[Plan] = [(0.0, 5.0, 1.0, 1.0, 0.0), (3.0, 1.0, 1.0, 1.0, 0.0)]
    assert chosen(rows, policy).winner == 0
    idle: list[Plan] = [(0.0, 5.0, 1.0, 1.0, 0.0), (0.0, 1.0, 1.0, 1.0, 0.0)]
    assert chosen(idle, policy).winner == 1


@given(scores=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=8), data=st.data(), weight=st.floats(0.0, 10.0))
def test_the_soft_multiplier_divides_by_relative_intensity(
    scores: list[float], data: st.DataObject, weight: float
) -> None:
    intensities = data.draw(st.lists(st.floats(1.0, 900.0), min_size=len(scores), max_size=len(scores)))
    rows: list[Plan] = [(value, 1.0, 1.0, 1.0, 0.0) for value in intensities]
    policy = replace(EXACT, objective=Objective.SOFT_MULTIPLIER, soft_weight=weight, score_tolerance=0.0)
    adjusted = [s / (1.0 + weight * i / max(intensities)) for s, i in zip(scores, intensities, strict=True)]
    assert adjusted[chosen(rows, policy, scores=scores).winner] == pytest.approx(max(adjusted))


@given(rows=pools_of_plans, order=orders, given_tolerances=tolerances, choices=st.integers(0, 3))
@settings(max_examples=60)
def test_every_plan_but_one_lost_for_a_reason(
    rows: list[Plan], order: tuple[Term, ...], given_tolerances: dict[Term, float], choices: int
) -> None:
    choice = chosen(rows, lexicographic(order, given_tolerances, choices))
    assert [int(row) for row in np.flatnonzero(choice.codes == CHOSEN)] == [choice.winner]


def test_only_eligible_plans_are_compared() -> None:
    rows: list[Plan] = [(1.0, 1.0, 1.0, 1.0, 0.0), (2.0, 1.0, 1.0, 1.0, 0.0), (3.0, 1.0, 1.0, 1.0, 0.0)]
    choice = chosen(rows, EXACT, eligible=[False, True, True])
    assert choice.winner == 1
    assert choice.rows.tolist() == [1, 2]
    assert choice.codes.tolist() == [CHOSEN, CODE[Loss.CARBON]]


@pytest.mark.parametrize(
    ("rows", "by"),
    [
        ([(1.0, 1.0, 1.0, 1.0, 0.0)], "only plan"),
        ([(1.0, 1.0, 1.0, 1.0, 0.0), (2.0, 1.0, 1.0, 1.0, 0.0)], "dominance"),
        ([(1.0, 1.0, 2.0, 1.0, 0.0), (2.0, 1.0, 1.0, 1.0, 0.0)], "carbon"),
        ([(1.0, 2.0, 1.0, 1.0, 0.0), (1.0, 1.0, 2.0, 2.0, 0.0)], "energy"),
        ([(1.001, 1.0, 1.0, 1.0, 0.0), (1.0, 1.001, 1.0, 3.0, 0.0)], "latency"),
        ([(1.0, 1.0, 1.0, 1.0, 0.0), (1.0, 1.0, 1.0, 1.0, 0.0)], "tie"),
    ],
)
def test_what_decided_is_named(rows: list[Plan], by: str) -> None:
    policy = replace(EXACT, tolerances=ROOMY | {Term.LATENCY: 0.0})
    assert chosen(rows, policy).decided_by == by


def test_terms_that_nobody_compares_are_not_reported_as_dropped() -> None:
    rows: list[Plan] = [(1.0, float("nan"), 1.0, 1.0, float("nan"))]
    assert set(chosen(rows, POLICY).dropped_terms) == {Term.ENERGY}
    assert set(chosen(rows, replace(POLICY, order=(Term.CARBON,))).dropped_terms) == set()
    weighted = replace(POLICY, objective=Objective.WEIGHTED, weights={Term.RISK: 1.0, Term.COST: 0.0})
    assert terms_in_use(weighted) == (Term.RISK,)
    assert set(chosen(rows, weighted).dropped_terms) == {Term.RISK}
