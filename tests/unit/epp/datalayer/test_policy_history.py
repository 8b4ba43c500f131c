"""Which version of a policy holds since when, and what is said when a newer one is refused."""

import logging
from dataclasses import replace

import pytest
from tests.unit.epp.datalayer.test_world import policy

from heliotrope.decide.policy import DecisionPolicy, DemandEvent, ServiceClass
from heliotrope_epp.datalayer.policy_history import PolicyHistory
from heliotrope_epp.datalayer.resources import Resources
from heliotrope_epp.datalayer.world import World, resolve

FIRST = World(policy=DecisionPolicy("llm/green", revision="generation 1", classes=(ServiceClass("batch"),)))
SECOND = World(policy=DecisionPolicy("llm/green", revision="generation 2", enforce=False))
REFUSED = replace(FIRST, policy_outdated_because="spec.slo: required")


def test_versions_are_counted_and_dated(caplog: pytest.LogCaptureFixture) -> None:
    history = PolicyHistory()
    assert history.document(0.0) is None
    with caplog.at_level(logging.INFO):
        for at, world in enumerate((World(), FIRST, FIRST, REFUSED, REFUSED, SECOND, World()), start=1):
            history.follow(world, float(at))
    assert (history.applied, history.refused, history.removed) == (2, 1, 1)
    assert history.since_unix_s is None
    assert [record.message for record in caplog.records] == [
        "policy in force",
        "a new version of the policy is refused; the last good one stays",
        "policy in force",
        "the policy is gone; the configured picker decides",
    ]


def test_the_debug_page_shows_what_holds_and_why_nothing_newer() -> None:
    history = PolicyHistory()
    history.follow(FIRST, 5.0)
    history.follow(replace(REFUSED, endpoints=()), 9.0)
    assert history.document(9.0) == {
        "name": "llm/green",
        "enforce": True,
        "revision": "generation 1",
        "since_unix_s": 5.0,
        "outdated_because": "spec.slo: required",
        "classes": ["batch"],
        "event": None,
        "models_withheld_because": None,
    }


def test_the_event_that_holds_is_shown() -> None:
    history = PolicyHistory()
    planned = DecisionPolicy("p", events=(DemandEvent("evening", 10.0, 20.0),))
    history.follow(World(policy=planned), 0.0)
    shown = [(history.document(at) or {})["event"] for at in (9.0, 10.0, 20.0)]
    assert shown == [None, "evening", None]


def test_an_event_of_a_source_is_no_new_version() -> None:
    history = PolicyHistory()
    quiet = DecisionPolicy("p", revision="generation 1")
    for at, events in enumerate(((), (DemandEvent("vtn", 1.0, 9.0),), (DemandEvent("vtn", 1.0, 19.0),), ())):
        history.follow(World(policy=replace(quiet, events=events)), float(at))
        assert (history.document(5.0) or {})["event"] == (events[0].name if events else None)
    assert (history.applied, history.since_unix_s) == (1, 0.0)


def test_only_the_policy_in_force_can_be_outdated() -> None:
    resources = Resources(policies=(policy("a"),), outdated_policies={"llm/a": "why", "llm/b": "other"})
    assert resolve(resources, None, {}).policy_outdated_because == "why"
    assert resolve(Resources(outdated_policies={"llm/a": "why"}), None, {}).policy_outdated_because is None
