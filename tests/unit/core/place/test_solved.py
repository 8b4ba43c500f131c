"""ILP, iterative ILP and facility: what they promise for whatever window and regions, and what they fall back to."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.place.cases import NAN, NOW, cases, regions, window

from heliotrope.errors import SolverError
from heliotrope.place import solved
from heliotrope.place.assignment import NOWHERE, Assignment, Outcome, Reason, Scheduler
from heliotrope.place.estimate import estimate
from heliotrope.place.policy import CapacityUnit, PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.schedulers.facility import facility
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.place.schedulers.ilp import ilp
from heliotrope.place.schedulers.iterative import iterative_ilp
from heliotrope.place.solve.facility import warm_up
from heliotrope.place.window import Window

SCHEDULERS: list[Scheduler] = [ilp, iterative_ilp, facility]
POLICY = PlacementPolicy(limit=WorkLimit(seconds=None))
TOKENS = replace(POLICY, capacity_unit=CapacityUnit.TOKENS)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    warm_up()
    for scheduler in (*SCHEDULERS, greedy):
        scheduler(window(2, 2), regions(2), POLICY, NOW, None)


def solved_part(assignment: Assignment) -> Any:
    return assignment.reasons == Reason.OBJECTIVE


@given(cases(), st.sampled_from(SCHEDULERS), st.sampled_from([POLICY, TOKENS]))
@settings(max_examples=60, deadline=None)
def test_only_allowed_regions_and_headroom_are_used_and_the_answer_is_always_the_same(
    case: tuple[Window, Regions], scheduler: Scheduler, policy: PlacementPolicy
) -> None:
    asked, found = case
    first = scheduler(asked, found, policy, NOW, None)
    second = scheduler(asked, found, policy, NOW, None)
    assert (first.regions == second.regions).all()
    assert (first.reasons == second.reasons).all()
    estimates = estimate(asked, found, policy)
    for r, at in enumerate(first.regions):
        assert (at == NOWHERE) == (not estimates.possible[r].any())
        assert at == NOWHERE or estimates.possible[r, at]
    ours = solved_part(first)
    load = np.bincount(first.regions[ours], estimates.weights[ours], len(found))
    assert (load <= estimates.headroom * (1 + 1e-9)).all()
    if scheduler is not iterative_ilp:
        assert estimates.feasible[np.flatnonzero(ours), first.regions[ours]].all()


@given(cases(unknowns=False), st.sampled_from([ilp, facility]))
@settings(max_examples=60, deadline=None)
def test_no_single_request_is_better_off_elsewhere(case: tuple[Window, Regions], scheduler: Scheduler) -> None:
    """A necessary condition of the optimum that needs no solver: a move within the opened regions never pays."""
    asked, found = case
    estimates = estimate(asked, found, POLICY)
    assignment = scheduler(asked, found, POLICY, NOW, None)
    ours = np.flatnonzero(solved_part(assignment))
    cost = estimates.cost + (estimates.activation_cost if scheduler is ilp else 0.0)
    load = np.bincount(assignment.regions[ours], minlength=len(found))
    for r in ours:
        for at in np.flatnonzero(estimates.feasible[r] & (load > 0) & (load + 1 <= estimates.headroom)):
            assert cost[r, at] >= cost[r, assignment.regions[r]] * (1 - 1e-4) - 1e-12


def test_the_facility_opens_one_region_where_the_ilp_spreads() -> None:
    """Two idle regions alike: waking both costs twice. The ILP is charged per request and cannot see it."""
    asked = window(6, 2)
    idle = regions(2, intensity_g_per_kwh=200.0, engines=2.0, idle_engines=2.0)
    assert len(set(facility(asked, idle, POLICY, NOW, None).regions.tolist())) == 1


def test_the_facility_wakes_a_cleaner_region_once_enough_requests_share_it() -> None:
    """The ILP charges each of them for waking it, however many they are, and stays where engines run."""
    found = regions(2, intensity_g_per_kwh=[150.0, 200.0], idle_engines=[32.0, 0.0], running=4.0, kv_tokens=3_000.0)
    few, many = window(1, 2), window(100, 2)
    assert facility(few, found, POLICY, NOW, None).regions.tolist() == [1]
    assert facility(many, found, POLICY, NOW, None).regions.tolist() == [0] * 100
    assert ilp(many, found, POLICY, NOW, None).regions.tolist() == [1] * 100


def test_the_iterative_ilp_sees_what_its_own_requests_do_to_a_queue() -> None:
    """Each of the prompts keeps its TTFT in the clean region, all of them together do not."""
    asked = window(40, 2, prompt_tokens=6_000.0)
    found = regions(2, engines=1.0, idle_engines=1.0, intensity_g_per_kwh=[50.0, 400.0])
    at_once = ilp(asked, found, POLICY, NOW, None)
    again = iterative_ilp(asked, found, replace(POLICY, iterations=2), NOW, None)
    assert at_once.regions.tolist() == [0] * 40
    assert again.regions.tolist() == [1] * 40
    assert (at_once.work, again.work) == (1, 2)
    settled = iterative_ilp(window(4, 2), regions(2), replace(POLICY, iterations=9), NOW, None)
    assert settled.work == 2  # the second answer is the first


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_has_no_room_goes_where_greedy_says(scheduler: Scheduler) -> None:
    """Two free slots each, five requests: the fifth goes to the cleanest, with a reason of its own."""
    full = regions(2, engines=1.0, batch_capacity=4.0, running=2.0, kv_tokens=1_800.0, idle_engines=0.0)
    assignment = scheduler(window(5, 2), full, POLICY, NOW, None)
    assert solved_part(assignment).sum() == 4
    assert (assignment.regions != NOWHERE).all()
    assert set(assignment.reasons.tolist()) > {int(Reason.OBJECTIVE)}
    assert assignment.outcome is Outcome.OPTIMAL


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_without_time_greedy_decides(scheduler: Scheduler) -> None:
    asked, found = window(5, 3), regions(3)
    assignment = scheduler(asked, found, replace(POLICY, limit=WorkLimit(0.0)), NOW, None)
    assert assignment.outcome is Outcome.FELL_BACK
    assert assignment.regions.tolist() == greedy(asked, found, POLICY, NOW, None).regions.tolist()
    assert set(assignment.reasons.tolist()) == {int(Reason.CLEANEST_WITH_HEADROOM)}
    assert np.isnan(assignment.gap)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_when_the_solver_fails_greedy_decides(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise SolverError("out of memory")

    monkeypatch.setattr(solved, "solve", fail)
    assignment = scheduler(window(5, 3), regions(3), POLICY, NOW, None)
    assert assignment.outcome is Outcome.FELL_BACK
    assert (assignment.regions != NOWHERE).all()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("policy", [POLICY, TOKENS])
def test_windows_with_nothing_to_choose(scheduler: Scheduler, policy: PlacementPolicy) -> None:
    empty = scheduler(window(0, 3), regions(3), policy, NOW, None)
    assert (len(empty.regions), empty.outcome, empty.objective) == (0, Outcome.OPTIMAL, 0.0)
    one = scheduler(window(3, 1), regions(1), policy, NOW, None)
    assert one.regions.tolist() == [0, 0, 0]
    down = scheduler(window(3, 2), regions(2, engines=0.0), policy, NOW, None)
    assert down.regions.tolist() == [NOWHERE] * 3
    assert down.reasons.tolist() == [int(Reason.NOWHERE)] * 3
    late = scheduler(window(3, 2, ttft_slo_seconds=0.0), regions(2), policy, NOW, None)
    assert late.reasons.tolist() == [int(Reason.LEAST_LATE)] * 3
    dark = scheduler(window(3, 2), regions(2, None, running=NAN, engines=NAN), policy, NOW, None)
    assert (dark.regions != NOWHERE).all()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_where_an_intensity_is_unknown_energy_decides(scheduler: Scheduler) -> None:
    dark = regions(2, intensity_g_per_kwh=[NAN, 10.0], pue=[1.0, 1.5])
    assignment = scheduler(window(3, 2), dark, POLICY, NOW, None)
    assert not assignment.carbon_counts
    assert assignment.regions.tolist() == [0, 0, 0]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_next_window_begins_where_the_last_one_ended_by_name(scheduler: Scheduler) -> None:
    asked, found = window(40, 4), regions(4, engines=1.0, idle_engines=1.0)
    first = scheduler(asked, found, POLICY, NOW, None)
    second = scheduler(asked, found, POLICY, NOW, first.memory)
    assert (second.regions == first.regions).all()
    fewer = replace(regions(2, engines=1.0, idle_engines=1.0), names=("r3", "new"))
    assert (scheduler(window(10, 2), fewer, POLICY, NOW, second.memory).regions != NOWHERE).all()
