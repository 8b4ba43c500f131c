"""Properties of the decision that hold for every pool, and the cases that a person would check by hand."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, REQUEST, THREE, pool, region

from heliotrope.carbon.signal import SignalType
from heliotrope.decide.candidates import RegionView
from heliotrope.decide.decision import Outcome, decide
from heliotrope.decide.feasible import Loss
from heliotrope.decide.policy import Objective, Term


def test_the_cleanest_region_wins_and_the_others_lose_on_carbon() -> None:
    decision = decide(REQUEST, pool(["c", "a", "b"], THREE), POLICY, NOW)
    assert decision.endpoint == "e1"
    assert decision.outcome is Outcome.WITHIN_SLO
    assert decision.losses == (Loss.CARBON, None, Loss.CARBON)


def test_an_idle_clean_engine_beats_a_busy_dirty_one() -> None:
    decision = decide(REQUEST, pool(["a", "c"], THREE, running=[0.0, 20.0]), POLICY, NOW)
    assert decision.endpoint == "e0"


def test_equally_clean_engines_are_filled_before_an_idle_one_is_woken() -> None:
    decision = decide(REQUEST, pool(["a", "a"], THREE, running=[0.0, 10.0]), POLICY, NOW)
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.ENERGY


def test_a_full_clean_engine_is_left_alone() -> None:
    full = float(ENGINE.max_num_seqs)
    tight = replace(POLICY, ttft_slo_seconds=0.15)
    decision = decide(REQUEST, pool(["a", "b"], THREE, running=[full, 2.0]), tight, NOW)
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.TTFT


def test_tpot_slo_is_hard_while_another_plan_holds_it() -> None:
    tight = replace(POLICY, tpot_slo_seconds=0.016)
    decision = decide(REQUEST, pool(["a", "b"], THREE, running=[30.0, 1.0]), tight, NOW)
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.TPOT


def test_a_request_does_not_join_a_queue_whose_first_would_then_be_late() -> None:
    policy = replace(POLICY, ttft_slo_seconds=1.0)
    joins = pool(["a", "b"], THREE, waiting=[1.0, 0.0], waiting_tokens=[4000.0, 0.0], oldest_waiting_seconds=[0.1, 0.0])
    assert decide(REQUEST, joins, policy, NOW).endpoint == "e0"
    late = pool(["a", "b"], THREE, waiting=[1.0, 0.0], waiting_tokens=[4000.0, 0.0], oldest_waiting_seconds=[0.8, 0.0])
    decision = decide(REQUEST, late, policy, NOW)
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.QUEUE


def test_what_arrives_while_one_waits_is_prefilled_in_the_same_step() -> None:
    columns = {"waiting": [1.0, 1.0], "waiting_tokens": [2000.0, 2000.0], "prefill_duty": [0.0, 0.5]}
    estimates = decide(REQUEST, pool(["a", "a"], THREE, **columns), POLICY, NOW).estimates
    idle_queue = ENGINE.decode_seconds(5.0, 4400.0) / 2 + ENGINE.prefill_seconds(2000.0)
    assert estimates.ttft_seconds[1] - estimates.ttft_seconds[0] == pytest.approx(idle_queue, rel=0.05)


def test_without_any_plan_in_time_the_shortest_ttft_is_taken_as_best_effort() -> None:
    impossible = replace(POLICY, ttft_slo_seconds=0.0001)
    decision = decide(REQUEST, pool(["a", "c"], THREE, running=[30.0, 1.0]), impossible, NOW)
    assert decision.outcome is Outcome.BEST_EFFORT
    assert decision.endpoint == "e1"


def test_the_requests_own_promise_counts() -> None:
    mine = replace(REQUEST, tpot_slo_seconds=0.0131)
    decision = decide(mine, pool(["a", "b"], THREE, running=[20.0, 1.0]), POLICY, NOW)
    assert decision.endpoint == "e1"


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        ({**THREE, "a": region("a", 20.0, age_s=61.0)}, "signal of a is stale"),
        ({**THREE, "a": region("a", None)}, "signal of a is absent"),
        ({k: v for k, v in THREE.items() if k != "a"}, "e0 is in no known region"),
        ({**THREE, "a": region("a", 20.0, kind=SignalType.MARGINAL)}, "signals of different type"),
    ],
)
def test_carbon_drops_out_for_all_when_one_signal_cannot_be_compared(
    views: Mapping[str, RegionView], reason: str
) -> None:
    decision = decide(REQUEST, pool(["a", "c", "c"], views, running=[1.0, 0.0, 1.0]), POLICY, NOW)
    assert reason in decision.dropped_terms[Term.CARBON]
    assert Loss.CARBON not in decision.losses
    assert decision.outcome is Outcome.WITHIN_SLO


def test_a_stale_region_that_may_not_serve_anyway_does_not_disturb_the_rest() -> None:
    views = {**THREE, "a": region("a", 20.0, age_s=61.0)}
    policy = replace(POLICY, allowed_regions=frozenset({"b", "c"}))
    decision = decide(REQUEST, pool(["a", "b", "c"], views), policy, NOW)
    assert Term.CARBON not in decision.dropped_terms
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.REGION


def test_unknown_region_fails_an_allow_list_and_unknown_quality_a_floor() -> None:
    policy = replace(POLICY, allowed_regions=frozenset({"a"}), quality_floor=0.5)
    candidates = pool([None, "a", "a"], THREE, quality=[0.9, float("nan"), 0.4])
    decision = decide(REQUEST, candidates, policy, NOW)
    assert decision.outcome is Outcome.NOTHING_FEASIBLE
    assert decision.endpoint is None
    assert decision.losses == (Loss.REGION, Loss.QUALITY, Loss.QUALITY)


def test_an_unknown_load_has_no_estimate_at_all() -> None:
    estimates = decide(REQUEST, pool(["a", "a"], THREE, running=[float("nan"), 1.0]), POLICY, NOW).estimates
    for name in ("ttft_seconds", "tpot_seconds", "service_seconds", "energy_joules", "incremental_joules", "cost"):
        assert np.isnan(getattr(estimates, name)[0]), name
        assert np.isfinite(getattr(estimates, name)[1]), name


def test_unknown_load_comes_after_known_but_is_not_excluded() -> None:
    nan = float("nan")
    decision = decide(REQUEST, pool(["a", "c"], THREE, running=[nan, 5.0]), POLICY, NOW)
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.UNKNOWN
    alone = decide(REQUEST, pool(["a", "c"], THREE, running=[nan, nan], base_score=[0.1, 0.9]), POLICY, NOW)
    assert alone.outcome is Outcome.UNKNOWN_LATENCY
    assert alone.endpoint is not None


def test_no_engine_model_means_unknown_never_zero() -> None:
    decision = decide(REQUEST, pool(["a", "c"], THREE, engines=[None, ENGINE]), POLICY, NOW)
    assert np.isnan(decision.estimates.energy_joules[0])
    assert np.isnan(decision.estimates.grams_co2e[0])
    assert decision.endpoint == "e1"


def test_a_request_that_can_never_fit_is_not_sent() -> None:
    huge = replace(REQUEST, prompt_tokens=ENGINE.kv_capacity_tokens)
    decision = decide(huge, pool(["a"], THREE), POLICY, NOW)
    assert decision.outcome is Outcome.NOTHING_FEASIBLE
    assert decision.losses == (Loss.CAPACITY,)


def test_an_unknown_price_drops_cost_and_nothing_else() -> None:
    decision = decide(REQUEST, pool(["a", "b"], THREE, price_per_hour=[float("nan"), 1.0]), POLICY, NOW)
    assert set(decision.dropped_terms) == {Term.COST}
    assert decision.endpoint == "e0"


def test_pue_counts() -> None:
    views = {"a": region("a", 100.0, pue=2.0), "b": region("b", 150.0, pue=1.1)}
    assert decide(REQUEST, pool(["a", "b"], views), POLICY, NOW).endpoint == "e1"


def test_cached_tokens_shorten_and_save() -> None:
    estimates = decide(REQUEST, pool(["a", "a"], THREE, cached_tokens=[0.0, 900.0]), POLICY, NOW).estimates
    assert estimates.ttft_seconds[1] < estimates.ttft_seconds[0]
    assert estimates.energy_joules[1] < estimates.energy_joules[0]


def test_embodied_grams_are_time_times_share() -> None:
    with_embodied = decide(REQUEST, pool(["a"], THREE), replace(POLICY, include_embodied=True), NOW).estimates
    without = decide(REQUEST, pool(["a"], THREE), POLICY, NOW).estimates
    expected = 164_000.0 / (4 * 365 * 86400.0) * without.service_seconds[0] / without.batch[0]
    assert with_embodied.grams_co2e[0] - without.grams_co2e[0] == pytest.approx(expected)


def test_soft_multiplier_trades_score_against_carbon() -> None:
    soft = replace(POLICY, objective=Objective.SOFT_MULTIPLIER, soft_weight=1.0)
    candidates = pool(["a", "c"], THREE, base_score=[0.4, 0.5])
    assert decide(REQUEST, candidates, soft, NOW).endpoint == "e0"
    assert decide(REQUEST, candidates, replace(soft, soft_weight=0.0), NOW).endpoint == "e1"


def test_weights_decide_what_matters() -> None:
    candidates = pool(["a", "c"], THREE, running=[25.0, 0.0])
    weighted = replace(POLICY, objective=Objective.WEIGHTED)
    assert decide(REQUEST, candidates, replace(weighted, weights={Term.CARBON: 1.0}), NOW).endpoint == "e0"
    assert decide(REQUEST, candidates, replace(weighted, weights={Term.LATENCY: 1.0}), NOW).endpoint == "e1"


def test_equals_are_spread_by_request_id() -> None:
    candidates = pool(["a"] * 4, THREE)
    chosen = {decide(replace(REQUEST, request_id=f"r-{i}"), candidates, POLICY, NOW).endpoint for i in range(64)}
    assert chosen == {"e0", "e1", "e2", "e3"}


loads = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b", "c"]),
        st.one_of(st.just(float("nan")), st.floats(0, 64)),
        st.floats(0, 1),
        st.floats(0, 0.9),
    ),
    min_size=1,
    max_size=12,
)


@given(loads=loads, prompt=st.integers(1, 8000), out=st.floats(1, 2000))
def test_every_decision_is_explained(
    loads: list[tuple[str | None, float, float, float]], prompt: int, out: float
) -> None:
    candidates = pool(
        [x[0] for x in loads],
        THREE,
        running=[x[1] for x in loads],
        base_score=[x[2] for x in loads],
        prefill_duty=[x[3] for x in loads],
    )
    request = replace(REQUEST, prompt_tokens=prompt, expected_output_tokens=out)
    decision = decide(request, candidates, POLICY, NOW)
    assert decision.winner == decide(request, candidates, POLICY, NOW).winner
    assert decision.winner is not None
    for i, loss in enumerate(decision.losses):
        assert (loss is None) == (i == decision.winner)
    rows = decision.explanation()["candidates"]
    assert [row["chosen"] for row in rows] == [i == decision.winner for i in range(len(candidates))]


@given(permutation=st.permutations(["a", "b", "c"]), running=st.floats(0, 20))
def test_permuting_the_intensities_moves_the_choice_with_them(permutation: list[str], running: float) -> None:
    values = dict(zip(permutation, [20.0, 150.0, 300.0], strict=True))
    views = {name: region(name, value) for name, value in values.items()}
    decision = decide(REQUEST, pool(["a", "b", "c"], views, running=running), POLICY, NOW)
    assert decision.winner is not None
    assert decision.candidates.regions[decision.winner] == permutation[0]


@given(scale=st.floats(0.01, 100), running=st.lists(st.floats(0, 30), min_size=3, max_size=3))
def test_only_the_ratio_of_intensities_matters(scale: float, running: list[float]) -> None:
    scaled = {n: region(n, v * scale) for n, v in {"a": 20.0, "b": 150.0, "c": 300.0}.items()}
    one = decide(REQUEST, pool(["a", "b", "c"], THREE, running=running), POLICY, NOW)
    other = decide(REQUEST, pool(["a", "b", "c"], scaled, running=running), POLICY, NOW)
    assert one.winner == other.winner


@given(running=st.floats(0, 31), more=st.floats(0.1, 20), tokens=st.floats(0, 5000))
def test_load_never_makes_an_endpoint_look_faster(running: float, more: float, tokens: float) -> None:
    candidates = pool(["a", "a"], THREE, running=[running, running + more], waiting_tokens=[tokens, tokens])
    estimates = decide(REQUEST, candidates, POLICY, NOW).estimates
    assert estimates.ttft_seconds[1] >= estimates.ttft_seconds[0] - 1e-12
    assert estimates.tpot_seconds[1] >= estimates.tpot_seconds[0] - 1e-12
