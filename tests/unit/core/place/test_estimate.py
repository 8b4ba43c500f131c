"""Estimates say what the formulas say, and unknown is never a number."""

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.core.place.cases import ENGINE, NAN, cases, regions, window
from tests.unit.core.place.reference import pair

from heliotrope.engine.coefficients import coefficients
from heliotrope.engine.profiles import load
from heliotrope.place.estimate import estimate, possible_pairs
from heliotrope.place.policy import CapacityUnit, PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window

POLICY = PlacementPolicy()
MODELS = [load("llama-3.1-8b-a100-40gb"), load("llama-3.1-8b-h100")]


@given(cases())
@settings(max_examples=150, deadline=None)
def test_it_agrees_with_the_formulas(case: tuple[Window, Regions]) -> None:
    asked, found = case
    estimates = estimate(asked, found, POLICY)
    for d in range(len(found)):
        engine = next((m for m in MODELS if np.array_equal(coefficients(m), found.engine_rows[d])), None)
        for r in range(len(asked)):
            if engine is None:
                assert np.isnan(estimates.ttft_seconds[r, d])
                assert np.isnan(estimates.tpot_seconds[r, d])
                assert np.isnan(estimates.joules[r, d])
                continue
            with np.errstate(all="ignore"):
                expected = pair(engine, asked, found, POLICY, r, d)
            np.testing.assert_allclose(estimates.ttft_seconds[r, d], expected.ttft, rtol=1e-9)
            np.testing.assert_allclose(estimates.tpot_seconds[r, d], expected.tpot, rtol=1e-9)
            np.testing.assert_allclose(estimates.joules[r, d], expected.joules, rtol=1e-9)
            if estimates.carbon_counts:
                np.testing.assert_allclose(estimates.cost[r, d], expected.grams, rtol=1e-9)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_what_is_feasible_is_known_and_costs_are_finite_there(case: tuple[Window, Regions]) -> None:
    asked, found = case
    e = estimate(asked, found, POLICY)
    assert not (e.feasible & ~e.possible).any()
    assert not (e.possible & ~asked.allowed).any()
    for matrix in (e.ttft_seconds, e.tpot_seconds, e.latency_seconds, e.joules, e.cost, e.activation_cost):
        assert np.isfinite(matrix[e.feasible]).all()
    assert np.isfinite(e.wake_cost[e.feasible.any(axis=0)]).all()
    assert (e.slots >= 0.0).all()
    assert (e.headroom >= 0.0).all()
    assert (e.headroom <= e.slots).all()
    assert (e.slots == np.floor(e.slots)).all()
    assert (possible_pairs(asked, found, POLICY) == e.possible).all()
    late = (e.ttft_seconds > asked.ttft_slo_seconds[:, None]) | (e.tpot_seconds > asked.tpot_slo_seconds[:, None])
    assert not (e.feasible & late).any()


def test_one_request_alone_in_an_idle_region() -> None:
    e = estimate(window(1, 1), regions(1, rtt_seconds=0.1, dispatch_seconds=0.05), POLICY)
    assert e.ttft_seconds[0, 0] == pytest.approx(0.15 + ENGINE.prefill_seconds(841.0))
    assert e.tpot_seconds[0, 0] == pytest.approx(ENGINE.decode_seconds(1.0, 0.0))
    assert e.slots[0] == 32 * 40
    assert e.feasible[0, 0]


def test_activation_and_wake_carbon_are_of_idle_engines_only() -> None:
    busy = regions(2, idle_engines=[0.0, 16.0], running=4.0, kv_tokens=3_000.0)
    e = estimate(window(1, 2), busy, POLICY)
    assert e.activation_cost[0, 0] == 0.0
    assert e.activation_cost[0, 1] > 0.0
    assert e.wake_cost[0] == 0.0
    base_watts = ENGINE.energy.decode_base_joules / ENGINE.decode_seconds(1.0, 0.0)
    joules = 16.0 * (base_watts - ENGINE.idle_watts) * POLICY.window_seconds
    assert e.wake_cost[1] == pytest.approx(joules / 3.6e6 * 1.1 * 500.0)


def test_answers_of_unknown_length_are_taken_to_be_as_long_as_the_policy_says() -> None:
    unknown = estimate(window(1, 1, output_tokens=NAN), regions(1), POLICY)
    said = estimate(window(1, 1, output_tokens=POLICY.unknown_output_tokens), regions(1), POLICY)
    assert unknown.output_tokens[0] == POLICY.unknown_output_tokens
    assert unknown.cost[0, 0] == said.cost[0, 0]
    assert unknown.cost[0, 0] > estimate(window(1, 1, output_tokens=1.0), regions(1), POLICY).cost[0, 0]


@pytest.mark.parametrize(
    "name", ["running", "waiting", "waiting_tokens", "kv_tokens", "prefill_duty", "rtt_seconds", "dispatch_seconds"]
)
def test_a_region_of_unknown_load_or_distance_is_possible_but_not_feasible(name: str) -> None:
    values = {"running": 1.0, "waiting": 1.0, "waiting_tokens": 9.0} | {name: [NAN, 1.0 / 64.0]}
    e = estimate(window(2, 2), regions(2, **values), POLICY)
    assert e.possible.all()
    assert not e.feasible[:, 0].any()
    assert e.feasible[:, 1].all()


def test_a_region_without_a_step_model_is_possible_but_not_feasible() -> None:
    e = estimate(window(2, 1), regions(1, engine=None), POLICY)
    assert e.possible.all()
    assert not e.feasible.any()
    assert e.headroom[0] > 0.0  # its slots are known from the policy's capacity


def test_a_region_without_engines_is_down_and_one_with_unknown_engines_is_not() -> None:
    e = estimate(window(1, 2), regions(2, engines=[0.0, NAN]), POLICY)
    assert e.possible.tolist() == [[False, True]]
    assert not e.feasible.any()
    assert e.headroom.tolist() == [0.0, 0.0]


def test_capacity_zero_leaves_no_headroom_and_unknown_capacity_is_the_engines() -> None:
    e = estimate(window(1, 2), regions(2, batch_capacity=[0.0, NAN]), POLICY)
    assert e.headroom[0] == 0.0
    assert e.slots[1] == 32 * ENGINE.max_num_seqs


@pytest.mark.parametrize("name", ["intensity_g_per_kwh", "pue"])
def test_carbon_drops_out_where_a_candidate_has_no_signal(name: str) -> None:
    e = estimate(window(1, 2), regions(2, **{name: [1.2, NAN]}), POLICY)
    assert not e.carbon_counts
    factor = 1.0 if name == "pue" else 1.1
    np.testing.assert_allclose(e.cost, e.joules * factor)


def test_the_signal_of_a_region_that_nobody_may_use_does_not_matter() -> None:
    signals = regions(3, intensity_g_per_kwh=[100.0, NAN, NAN], engines=[1.0, 1.0, 0.0])
    assert estimate(window(1, 3, allowed=[[True, False, True]]), signals, POLICY).carbon_counts


def test_a_prompt_that_never_fits_is_impossible() -> None:
    too_long = float(ENGINE.kv_capacity_tokens)
    assert not estimate(window(1, 1, prompt_tokens=too_long), regions(1), POLICY).possible.any()


def test_headroom_is_cut_to_what_keeps_tpot() -> None:
    seconds = float(ENGINE.decode_seconds(9.0, 9.0 * 876.5))
    tight = window(4, 1, tpot_slo_seconds=[seconds, 1.0, 1.0, 1.0])
    e = estimate(tight, regions(1, running=1.0, kv_tokens=876.5, idle_engines=0.0), POLICY)
    assert e.slots[0] == 32 * 39
    assert e.headroom[0] == 32 * 8


def test_tokens_as_the_unit_of_capacity() -> None:
    policy = PlacementPolicy(capacity_unit=CapacityUnit.TOKENS)
    left = 5_000.0
    full = regions(1, kv_tokens=ENGINE.kv_capacity_tokens - left - 700.0, waiting=1.0, waiting_tokens=700.0)
    e = estimate(window(3, 1), full, policy)
    assert e.weights.tolist() == [912.0] * 3
    assert e.headroom[0] == pytest.approx(32 * left)


@pytest.mark.parametrize(("recent", "room"), [(NAN, 3.0), (0.2, 3.0), (0.6, 2.0)])
def test_the_largest_share_cuts_headroom(recent: float, room: float) -> None:
    e = estimate(window(5, 2), regions(2, largest_share=[0.5, 1.0], recent_share=recent), POLICY)
    assert e.headroom[0] == room
    assert e.headroom[1] == 32 * 40


def test_standard_deviations_leave_room_to_the_slo() -> None:
    seconds = float(estimate(window(1, 1), regions(1), POLICY).ttft_seconds[0, 0])
    barely = window(1, 1, ttft_slo_seconds=seconds * 1.0001)
    assert estimate(barely, regions(1), POLICY).feasible[0, 0]
    assert not estimate(barely, regions(1), PlacementPolicy(standard_deviations=3.0)).feasible[0, 0]


def test_windows_for_other_regions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(1, 3\)"):
        estimate(window(1, 2), regions(3), POLICY)
