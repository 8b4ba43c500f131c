"""Every scheduler has a name, and whatever is unknown to it, it loses no request and breaks no residency."""

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.core.place.cases import NAN, NOW, cases, regions, window

from heliotrope.api.v1alpha1.objective import Scheduler as Named
from heliotrope.errors import InvalidInputError
from heliotrope.place.assignment import NOWHERE, Reason
from heliotrope.place.estimate import estimate
from heliotrope.place.policy import PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.registry import scheduler_named, shipped
from heliotrope.place.window import Window

POLICY = PlacementPolicy(limit=WorkLimit(seconds=None, nodes=1_000))


def test_the_resources_names_are_there() -> None:
    assert {name.value for name in Named} <= set(shipped())


def test_an_unknown_name_is_refused_with_all_that_there_are() -> None:
    assert scheduler_named(shipped(), "Greedy") is shipped()["Greedy"]
    with pytest.raises(InvalidInputError, match=r"spec\.scheduler: .* 'Best'; there are RoundRobin,"):
        scheduler_named(shipped(), "Best", "spec.scheduler")


@pytest.mark.parametrize("name", shipped())
@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_no_request_is_lost_and_none_goes_where_it_may_not(name: str, case: tuple[Window, Regions]) -> None:
    asked, found = case
    scheduler = shipped()[name]
    possible = estimate(asked, found, POLICY).possible
    memory = None
    for _ in range(2):
        assignment = scheduler(asked, found, POLICY, NOW, memory)
        memory = assignment.memory
        nowhere = assignment.regions == NOWHERE
        assert (nowhere == ~possible.any(axis=1)).all()
        assert (nowhere == (assignment.reasons == Reason.NOWHERE)).all()
        assert possible[np.flatnonzero(~nowhere), assignment.regions[~nowhere]].all()


@pytest.mark.parametrize("name", shipped())
@given(case=cases(unknowns=False))
@settings(max_examples=20, deadline=None)
def test_the_same_window_is_the_same_assignment_and_inputs_stay(name: str, case: tuple[Window, Regions]) -> None:
    asked, found = case
    before = found.running.copy(), found.waiting.copy(), asked.allowed.copy()
    first = shipped()[name](asked, found, POLICY, NOW, None)
    again = shipped()[name](asked, found, POLICY, NOW, None)
    assert first.regions.tolist() == again.regions.tolist()
    assert first.reasons.tolist() == again.reasons.tolist()
    for left, right in zip(before, (found.running, found.waiting, asked.allowed), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", shipped())
def test_an_empty_window_keeps_what_the_scheduler_remembers(name: str) -> None:
    scheduler, found = shipped()[name], regions(2)
    first = scheduler(window(3, 2), found, POLICY, NOW, None)
    empty = scheduler(window(0, 2), found, POLICY, NOW, first.memory)
    assert len(empty.regions) == 0
    assert scheduler(window(3, 2), found, POLICY, NOW, empty.memory) is not None


def test_a_region_of_unknown_load_does_not_hide_what_waking_the_others_costs() -> None:
    idle = {"idle_engines": [32.0, 0.0, 0.0], "running": [0.0, 4.0, 4.0], "kv_tokens": 3_000.0}
    clean_but_asleep = regions(3, intensity_g_per_kwh=[100.0, 105.0, 110.0], **idle)
    facility = shipped()["Facility"]
    assert facility(window(3, 3), clean_but_asleep, POLICY, NOW, None).regions.tolist() == [1, 1, 1]
    unknown = idle | {"running": [0.0, 4.0, NAN], "idle_engines": [32.0, 0.0, NAN]}
    hidden = regions(3, intensity_g_per_kwh=[100.0, 105.0, 110.0], **unknown)
    assert facility(window(3, 3), hidden, POLICY, NOW, None).regions.tolist() == [1, 1, 1]
