"""Schedulers that take one request after the other choose as their formula says, and fall back as documented."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.place.cases import NAN, NOW, cases, regions, window

from heliotrope.engine.coefficients import Coefficient
from heliotrope.place.assignment import NOWHERE, Assignment, Outcome, Reason, Scheduler
from heliotrope.place.estimate import Estimates, estimate
from heliotrope.place.in_turn import NO_TURN_YET, place_rest
from heliotrope.place.policy import CapacityUnit, Fallback, PlacementPolicy
from heliotrope.place.projection import with_assigned
from heliotrope.place.regions import Regions
from heliotrope.place.schedulers.cleanest_first import cleanest_first
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.place.schedulers.least_loaded import least_loaded
from heliotrope.place.schedulers.lowest_intensity import lowest_intensity
from heliotrope.place.schedulers.round_robin import round_robin
from heliotrope.place.schedulers.soft_multiplier import soft_multiplier
from heliotrope.place.window import Window

ALL: list[Scheduler] = [round_robin, least_loaded, lowest_intensity, greedy, soft_multiplier, cleanest_first]


def one(asked: Window, r: int) -> Window:
    """The window of one of its requests."""
    part = slice(r, r + 1)
    return Window(
        prompt_tokens=asked.prompt_tokens[part],
        output_tokens=asked.output_tokens[part],
        waited_seconds=asked.waited_seconds[part],
        ttft_slo_seconds=asked.ttft_slo_seconds[part],
        tpot_slo_seconds=asked.tpot_slo_seconds[part],
        cached_tokens=asked.cached_tokens[part],
        allowed=asked.allowed[part],
        home=asked.home[part],
    )


def one_by_one(
    scheduler: Scheduler, asked: Window, found: Regions, policy: PlacementPolicy
) -> tuple[list[int], list[int]]:
    places, reasons, memory = [], [], None
    for r in range(len(asked)):
        assignment = scheduler(one(asked, r), found, policy, NOW, memory)
        memory = assignment.memory
        places.append(int(assignment.regions[0]))
        reasons.append(int(assignment.reasons[0]))
        found = with_assigned(one(asked, r), found, assignment.regions)
    return places, reasons


def score(e: Estimates, found: Regions, alpha: float, d: int) -> tuple[float, float]:
    """Of the only request of a window."""
    feasible = np.flatnonzero(e.feasible[0])
    latency, dirt = e.latency_seconds[0], found.intensity_g_per_kwh
    total = alpha * latency[d] / latency[feasible].max()
    if e.carbon_counts and dirt[feasible].max() > 0.0:
        total += (1.0 - alpha) * dirt[d] / dirt[feasible].max()
    return total, latency[d]


@given(cases(), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
@settings(max_examples=120, deadline=None)
def test_greedy_takes_the_least_score_of_what_is_feasible(case: tuple[Window, Regions], alpha: float) -> None:
    asked, found = case
    policy = PlacementPolicy(latency_weight=alpha)
    asked = one(asked, 0)
    assignment = greedy(asked, found, policy, NOW)
    e = estimate(asked, found, policy)
    chosen = int(assignment.regions[0])
    feasible = np.flatnonzero(e.feasible[0])
    if len(feasible):
        assert assignment.reasons[0] == Reason.OBJECTIVE
        scores = {int(d): score(e, found, alpha, int(d)) for d in feasible}
        assert chosen in scores
        least = min(value for value, _ in scores.values())
        assert scores[chosen][0] == pytest.approx(least, rel=1e-9, abs=1e-12)
        assert assignment.objective == pytest.approx(e.cost[0, chosen], rel=1e-9)
        assert assignment.carbon_counts == e.carbon_counts
        return
    late = np.where(e.possible[0], e.ttft_seconds[0], NAN)
    if np.isfinite(late).any():
        assert assignment.reasons[0] == Reason.LEAST_LATE
        assert late[chosen] == np.nanmin(late)
    elif e.possible.any():
        assert assignment.reasons[0] == Reason.ROUND_ROBIN
        assert chosen == int(np.flatnonzero(e.possible[0])[0])
    else:
        assert (chosen, int(assignment.reasons[0])) == (NOWHERE, Reason.NOWHERE)


@pytest.mark.parametrize("scheduler", [greedy, lowest_intensity, least_loaded, soft_multiplier, round_robin])
@given(case=cases(), fallback=st.sampled_from(Fallback), alpha=st.sampled_from([0.0, 0.5]))
@settings(max_examples=60, deadline=None)
def test_a_window_is_as_its_requests_one_at_a_time(
    scheduler: Scheduler, case: tuple[Window, Regions], fallback: Fallback, alpha: float
) -> None:
    asked, found = case
    # Whether carbon counts is decided per window, over all regions that any of its requests may use.
    asked.allowed[:] = asked.allowed[0]
    policy = PlacementPolicy(latency_weight=alpha, fallback=fallback)
    together = scheduler(asked, found, policy, NOW, None)
    places, reasons = one_by_one(scheduler, asked, found, policy)
    assert together.regions.tolist() == places
    assert together.reasons.tolist() == reasons


@pytest.mark.parametrize("scheduler", ALL)
@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_residency_is_hard_and_nothing_is_lost(scheduler: Scheduler, case: tuple[Window, Regions]) -> None:
    asked, found = case
    policy = PlacementPolicy()
    assignment = scheduler(asked, found, policy, NOW, None)
    possible = estimate(asked, found, policy).possible
    for r, place in enumerate(assignment.regions):
        if place == NOWHERE:
            assert not possible[r].any()
            assert assignment.reasons[r] == Reason.NOWHERE
        else:
            assert possible[r, place]
            assert assignment.reasons[r] != Reason.NOWHERE
    assert assignment.outcome is Outcome.HEURISTIC
    assert math.isnan(assignment.gap)


@pytest.mark.parametrize("scheduler", [soft_multiplier, cleanest_first])
@given(case=cases(requests=12), unit=st.sampled_from(CapacityUnit))
@settings(max_examples=80, deadline=None)
def test_limited_schedulers_stay_within_headroom(
    scheduler: Scheduler, case: tuple[Window, Regions], unit: CapacityUnit
) -> None:
    asked, found = case
    asked.home[:] = -1
    policy = PlacementPolicy(capacity_unit=unit, share_cap=1.0)
    assignment = scheduler(asked, found, policy, NOW, None)
    e = estimate(asked, found, policy)
    chosen = (assignment.reasons == Reason.OBJECTIVE) | (assignment.reasons == Reason.CLEANEST_WITH_HEADROOM)
    taken = np.bincount(assignment.regions[chosen], weights=e.weights[chosen], minlength=len(found))
    engines, capacity = np.nan_to_num(found.engines), found.engine_rows[:, Coefficient.KV_CAPACITY_TOKENS]
    free = e.slots
    if unit is CapacityUnit.TOKENS:
        free = np.nan_to_num(engines * np.maximum(capacity - found.kv_tokens - found.waiting_tokens, 0.0))
    assert (taken <= free + 1e-6).all()


def counts(assignment: Assignment, places: int) -> list[int]:
    return np.bincount(assignment.regions, minlength=places).tolist()


def test_round_robin_goes_round_from_window_to_window() -> None:
    found, policy = regions(3, engines=[1.0, 0.0, NAN]), PlacementPolicy()
    first = round_robin(window(3, 3), found, policy, NOW)
    assert first.regions.tolist() == [0, 2, 0]
    assert round_robin(window(2, 3), found, policy, NOW, first.memory).regions.tolist() == [2, 0]
    assert (first.reasons == Reason.ROUND_ROBIN).all()
    assert not first.carbon_counts


def test_least_loaded_levels_what_regions_have_in_use_of_their_slots() -> None:
    found = regions(2, engines=[10.0, 20.0], running=[2.0, 2.0], batch_capacity=[40.0, 40.0])
    assert counts(least_loaded(window(30, 2), found, PlacementPolicy(), NOW), 2) == [10, 20]


def test_lowest_intensity_herds_only_as_far_as_slos_are_kept() -> None:
    found = regions(3, engines=1.0, idle_engines=1.0)
    herd = counts(lowest_intensity(window(60, 3), found, PlacementPolicy(), NOW), 3)
    assert herd[0] > herd[1] > 0
    blind = lowest_intensity(window(60, 3), found, PlacementPolicy(projects=False), NOW)
    assert counts(blind, 3) == [60, 0, 0]


@pytest.mark.parametrize(("weight", "expected"), [(0.0, [60, 60]), (1.0, [80, 40])])
def test_the_soft_multiplier_levels_weighted_pressure(weight: float, expected: list[int]) -> None:
    found = regions(2, engines=4.0, intensity_g_per_kwh=[0.0, 400.0])
    fast = window(120, 2, prompt_tokens=1.0)
    assignment = soft_multiplier(fast, found, PlacementPolicy(carbon_weight=weight), NOW)
    np.testing.assert_allclose(counts(assignment, 2), expected, atol=2)


def test_without_a_signal_the_soft_multiplier_is_pressure_alone() -> None:
    found = regions(2, engines=4.0, intensity_g_per_kwh=[0.0, NAN])
    assignment = soft_multiplier(window(40, 2), found, PlacementPolicy(), NOW)
    assert counts(assignment, 2) == [20, 20]
    assert not assignment.carbon_counts


def test_cleanest_first_fills_to_its_cap() -> None:
    found = regions(4, intensity_g_per_kwh=[400.0, 100.0, 300.0, 200.0])
    assert counts(cleanest_first(window(10, 4), found, PlacementPolicy(share_cap=0.5), NOW), 4) == [0, 5, 0, 5]
    assert counts(cleanest_first(window(10, 4), found, PlacementPolicy(share_cap=0.4), NOW), 4) == [0, 4, 2, 4]


def test_cleanest_first_leaves_sessions_where_they_are() -> None:
    found = regions(3, engines=[32.0, 32.0, 0.0])
    home = [1, 1, 1, 1, -1, -1, 2]
    assignment = cleanest_first(window(7, 3, home=home), found, PlacementPolicy(share_cap=0.5), NOW)
    assert assignment.regions.tolist() == [1, 1, 1, 1, 0, 0, 0]


def test_cleanest_first_without_a_signal_goes_by_pressure() -> None:
    found = regions(2, intensity_g_per_kwh=[NAN, 100.0])
    assert counts(cleanest_first(window(10, 2), found, PlacementPolicy(), NOW), 2) == [5, 5]


def test_a_home_is_worth_what_it_caches_to_greedy() -> None:
    found, policy = regions(2, intensity_g_per_kwh=100.0), PlacementPolicy(latency_weight=1.0)
    assert greedy(window(1, 2, home=1), found, policy, NOW).regions.tolist() == [0]
    assert greedy(window(1, 2, cached_tokens=[[0.0, 800.0]]), found, policy, NOW).regions.tolist() == [1]


def test_the_largest_share_yields_to_the_slo() -> None:
    found = regions(2, largest_share=[0.3, 1.0], rtt_seconds=[0.0, 5.0])
    assignment = lowest_intensity(window(10, 2), found, PlacementPolicy(), NOW)
    assert counts(assignment, 2) == [10, 0]
    assert assignment.reasons.tolist() == [Reason.OBJECTIVE] * 3 + [Reason.CLEANEST_WITH_HEADROOM] * 7


def test_the_last_resort_is_the_policys() -> None:
    found = regions(3, rtt_seconds=[9.0, 7.0, 8.0])
    late = greedy(window(2, 3), found, PlacementPolicy(), NOW)
    assert late.regions.tolist() == [1, 1]
    assert (late.reasons == Reason.LEAST_LATE).all()
    turns = greedy(window(2, 3), found, PlacementPolicy(fallback=Fallback.ROUND_ROBIN), NOW)
    assert turns.regions.tolist() == [0, 1]
    assert (turns.reasons == Reason.ROUND_ROBIN).all()


def test_unknown_regions_come_after_known_ones_and_take_turns() -> None:
    policy = PlacementPolicy()
    some = regions(3, rtt_seconds=[NAN, 9.0, NAN])
    assert greedy(window(1, 3), some, policy, NOW).regions.tolist() == [1]
    none = greedy(window(3, 3), regions(3, rtt_seconds=NAN), policy, NOW)
    assert none.regions.tolist() == [0, 1, 2]
    assert (none.reasons == Reason.ROUND_ROBIN).all()


def test_what_a_solver_left_goes_to_the_cleanest_region_with_headroom() -> None:
    found = regions(3, engines=1.0, batch_capacity=[2.0, 1.0, 40.0])
    places = np.array([0, NOWHERE, NOWHERE, NOWHERE])
    reasons = np.array([Reason.OBJECTIVE, 0, 0, 0])
    filled, why, cursor = place_rest(window(4, 3), found, PlacementPolicy(), NO_TURN_YET, places, reasons)
    assert filled.tolist() == [0, 0, 1, 2]
    assert why.tolist() == [Reason.OBJECTIVE] + [Reason.CLEANEST_WITH_HEADROOM] * 3
    assert cursor == NO_TURN_YET
    assert places.tolist() == [0, NOWHERE, NOWHERE, NOWHERE]


def test_a_full_assignment_has_no_rest() -> None:
    places, reasons = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    filled, why, cursor = place_rest(window(2, 2), regions(2), PlacementPolicy(), 1, places, reasons)
    assert filled is places
    assert why is reasons
    assert cursor == 1


@pytest.mark.parametrize("scheduler", ALL)
def test_an_empty_window_is_an_empty_assignment(scheduler: Scheduler) -> None:
    assert len(scheduler(window(0, 2), regions(2), PlacementPolicy(), NOW, None).regions) == 0
