"""The risk of failure and recomputation."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, THREE, pool

from heliotrope.decide.decision import decide
from heliotrope.decide.losses import Loss
from heliotrope.decide.policy import Objective, Term
from heliotrope.decide.risk import TIME_CONSTANT_SECONDS, FailureCounts, failure_rates, risk
from heliotrope.decide.standing import UNKNOWN_STANDING, Standing

NAN = float("nan")
SAFE_FIRST = replace(POLICY, order=(Term.RISK, Term.CARBON, Term.ENERGY, Term.LATENCY))


def failing(*rates: float) -> Standing:
    return Standing(failure_rate=np.array(rates))


def test_a_failing_endpoint_is_left_where_risk_comes_first() -> None:
    candidates = pool(["a", "b"], THREE)
    decision = decide(REQUEST, candidates, SAFE_FIRST, NOW, standing=failing(0.4, 0.0))
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.RISK
    assert decide(REQUEST, candidates, SAFE_FIRST, NOW, standing=failing(0.04, 0.0)).endpoint == "e0"
    assert decide(REQUEST, candidates, POLICY, NOW, standing=failing(0.4, 0.0)).risk is None


def test_risk_weighs_in_a_weighted_sum() -> None:
    candidates = pool(["a", "b"], THREE)
    weighted = replace(POLICY, objective=Objective.WEIGHTED)
    light = replace(weighted, weights={Term.CARBON: 1.0, Term.RISK: 1.0})
    heavy = replace(weighted, weights={Term.CARBON: 1.0, Term.RISK: 100.0})
    assert decide(REQUEST, candidates, light, NOW, standing=failing(0.5, 0.0)).endpoint == "e0"
    assert decide(REQUEST, candidates, heavy, NOW, standing=failing(0.5, 0.0)).endpoint == "e1"


def test_nothing_known_drops_the_term() -> None:
    dark = pool(["a", "b"], THREE, kv_capacity_tokens=NAN)
    decision = decide(REQUEST, dark, SAFE_FIRST, NOW)
    assert decision.dropped_terms[Term.RISK] == "unknown for a candidate"
    assert decision.endpoint == "e0"


def test_an_endpoint_without_history_is_like_the_mean_of_the_others() -> None:
    roomy = pool(["a", "a", "a"], THREE)
    values = risk(REQUEST, roomy, failing(0.1, NAN, 0.3))
    assert values.tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_full_memory_and_preemptions_threaten_recomputation() -> None:
    tight = pool(["a", "a", "a"], THREE, running=0.0, kv_tokens=[0.0, 150_000.0, 158_800.0])
    values = risk(REQUEST, tight, UNKNOWN_STANDING)
    assert values[0] == 0.0
    assert 0.0 < values[1] < 1.0
    assert values[2] == 1.0
    preempting = Standing(preemptions_per_request=np.array([0.25, NAN, 3.0]))
    assert risk(REQUEST, pool(["a"] * 3, THREE), preempting).tolist() == pytest.approx([0.25, 0.0, 1.0])


def test_both_risks_compound() -> None:
    standing = Standing(failure_rate=np.array([0.5]), preemptions_per_request=np.array([0.5]))
    assert risk(REQUEST, pool(["a"], THREE), standing).tolist() == pytest.approx([0.75])


maybe = st.one_of(st.just(NAN), st.floats(0.0, 3.0))


@given(
    rows=st.lists(
        st.tuples(maybe, maybe, st.one_of(st.just(NAN), st.floats(0.0, 2e5)), st.one_of(st.just(NAN), st.just(1.6e5))),
        min_size=1,
        max_size=8,
    )
)
def test_risk_is_a_chance_for_all_or_unknown_for_all(rows: list[tuple[float, float, float, float]]) -> None:
    failures, preemptions, tokens, capacities = (list(column) for column in zip(*rows, strict=True))
    candidates = pool(["a"] * len(rows), THREE, running=0.0, kv_tokens=tokens, kv_capacity_tokens=capacities)
    values = risk(REQUEST, candidates, Standing(np.array(failures), np.array(preemptions)))
    assert np.isnan(values).all() or ((values >= 0.0) & (values <= 1.0)).all()


def test_outcomes_fade_and_few_of_them_prove_little() -> None:
    counts = FailureCounts()
    assert np.isnan(counts.rate(0.0, 0.1))
    counts.ended(0.0, 1.0)
    assert counts.rate(0.0, 0.0) == pytest.approx(1.0 / 5.0)
    for _ in range(96):
        counts.ended(0.0, 1.0)
    assert counts.rate(0.0, 0.0) > 0.9
    later = counts.rate(TIME_CONSTANT_SECONDS, 0.0)
    assert later == pytest.approx(97 / exp(1) / (97 / exp(1) + 4.0))
    assert np.isnan(counts.rate(20.0 * TIME_CONSTANT_SECONDS, 0.0))


@given(
    outcomes=st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=60),
    prior=st.floats(0.0, 1.0),
)
def test_a_rate_is_a_chance_whatever_came(outcomes: list[tuple[float, float]], prior: float) -> None:
    counts, now = FailureCounts(), 0.0
    for wait, failed in outcomes:
        now += wait
        counts.ended(now, failed)
    assert 0.0 <= counts.rate(now, prior) <= 1.0
    later = now + 50.0
    columns = (np.array([value]) for value in (counts.requests, counts.failures, later - counts.as_of_s))
    assert failure_rates(*columns, prior)[0] == pytest.approx(counts.rate(later, prior))
    assert counts.requests <= len(outcomes)


def test_a_clock_that_goes_back_does_not_undo_the_past() -> None:
    counts = FailureCounts()
    counts.ended(100.0, 1.0)
    counts.ended(50.0, 0.0)
    assert counts.as_of_s == 100.0
    assert counts.requests == 2.0
