"""Conditions: transition times, and which changes are told."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.objects import NOW

from heliotrope.api.v1alpha1.common import Condition, ConditionStatus
from heliotrope_operator.conditions import MAX_MESSAGE, ConditionType, Finding, settle, transitions

LATER = NOW + timedelta(hours=1)
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def finding(kind: ConditionType, status: ConditionStatus, reason: str, message: str = "why") -> Finding:
    return Finding(kind, status, reason, message)


def condition(kind: ConditionType, status: ConditionStatus, reason: str, message: str = "why") -> Condition:
    return settle((), [finding(kind, status, reason, message)], 1, NOW)[0]


def test_a_status_that_stays_keeps_its_time_whatever_else_changes() -> None:
    before = settle((), [finding(ConditionType.ACCEPTED, FALSE, "Conflicted")], 1, NOW)

    (after,) = settle(before, [finding(ConditionType.ACCEPTED, FALSE, "TargetNotFound", "other")], 2, LATER)

    assert (after.last_transition_time, after.reason, after.message, after.observed_generation) == (
        NOW,
        "TargetNotFound",
        "other",
        2,
    )


def test_a_status_that_changes_gets_the_time_of_the_change() -> None:
    before = settle((), [finding(ConditionType.ACCEPTED, FALSE, "Conflicted")], 1, NOW)

    (after,) = settle(before, [finding(ConditionType.ACCEPTED, TRUE, "Accepted")], 1, LATER)

    assert after.last_transition_time == LATER


def test_conditions_that_were_not_found_are_gone() -> None:
    before = settle((), [finding(ConditionType.TARGET_RESOLVED, TRUE, "TargetResolved")], 1, NOW)

    assert settle(before, [], 1, LATER) == ()


@given(st.lists(st.sampled_from(["one", "other", "all"]), min_size=1, max_size=6))
def test_controllers_that_take_turns_at_an_object_change_nothing(turns: list[str]) -> None:
    """Lists are compared in order: one that is only ordered anew would be written, seen and ordered again."""
    accepted = finding(ConditionType.ACCEPTED, TRUE, "Accepted")
    enforced = finding(ConditionType.ENFORCED, TRUE, "Enforced")
    demand = finding(ConditionType.DEMAND_KNOWN, TRUE, "DemandKnown")
    power = finding(ConditionType.POWER_MANAGED, TRUE, "PowerManaged")
    speakers = {
        "one": ([accepted, enforced], {ConditionType.ACCEPTED, ConditionType.ENFORCED}),
        "other": ([power, demand], {ConditionType.DEMAND_KNOWN, ConditionType.POWER_MANAGED}),
        "all": ([demand, power, enforced, accepted], None),
    }

    def after(conditions: tuple[Condition, ...], name: str, now: datetime) -> tuple[Condition, ...]:
        findings, own = speakers[name]
        return settle(conditions, findings, 1, now, own=own)

    everything = after(after((), "one", NOW), "other", NOW)
    assert [each.type for each in everything] == ["Accepted", "Enforced", "PowerManaged", "DemandKnown"]
    told = everything
    for name in turns:
        told = after(told, name, LATER)
    assert told == everything


def test_what_another_controller_said_stays_in_its_place() -> None:
    before = settle((), [finding(ConditionType.ACCEPTED, TRUE, "Accepted")], 1, NOW)
    both = settle(
        before, [finding(ConditionType.DEMAND_KNOWN, TRUE, "DemandKnown")], 1, NOW, own={ConditionType.DEMAND_KNOWN}
    )
    assert [each.type for each in both] == ["Accepted", "DemandKnown"]
    assert settle(both, [], 2, LATER, own={ConditionType.DEMAND_KNOWN}) == before


def test_a_long_message_is_cut_where_the_api_would_refuse_it() -> None:
    assert len(condition(ConditionType.ACCEPTED, FALSE, "Invalid", "x" * 9_999).message) == MAX_MESSAGE


A, S, E, C = (
    ConditionType.ACCEPTED,
    ConditionType.SIGNAL_FRESH,
    ConditionType.ENFORCED,
    ConditionType.CONFLICTED,
)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, (A, TRUE, "Accepted"), None),
        (None, (A, FALSE, "Conflicted"), (True, "Conflicted")),
        ((A, FALSE, "Conflicted"), (A, FALSE, "Conflicted"), None),
        ((A, FALSE, "Conflicted"), (A, FALSE, "TargetNotFound"), (True, "TargetNotFound")),
        ((A, FALSE, "Conflicted"), (A, TRUE, "Accepted"), (False, "Accepted")),
        ((S, TRUE, "SignalFresh"), (S, TRUE, "SourceFailing"), (True, "SourceFailing")),
        ((S, TRUE, "SourceFailing"), (S, TRUE, "SignalFresh"), (False, "SignalFresh")),
        ((S, TRUE, "SignalFresh"), (S, FALSE, "SignalStale"), (True, "SignalStale")),
        (None, (E, FALSE, "AdviseOnly"), None),
        ((E, TRUE, "Enforced"), (E, FALSE, "AdviseOnly"), (False, "AdviseOnly")),
        ((E, FALSE, "AdviseOnly"), (E, TRUE, "Enforced"), (False, "Enforced")),
        ((E, TRUE, "Enforced"), (E, FALSE, "NotAccepted"), None),
        ((E, FALSE, "NotAccepted"), (E, TRUE, "Enforced"), None),
        (None, (C, FALSE, "NoConflict"), None),
        ((C, FALSE, "NoConflict"), (C, TRUE, "TargetTaken"), (True, "TargetTaken")),
        (
            (ConditionType.SIGNALS_FRESH, UNKNOWN, "SignalsPending"),
            (ConditionType.SIGNALS_FRESH, TRUE, "SignalsFresh"),
            None,
        ),
    ],
)
def test_what_is_told(
    before: tuple[ConditionType, ConditionStatus, str] | None,
    after: tuple[ConditionType, ConditionStatus, str],
    told: tuple[bool, str] | None,
) -> None:
    previous = [] if before is None else [condition(*before)]

    changes = transitions(previous, [condition(*after)])

    assert [(change.warning, change.reason) for change in changes] == ([] if told is None else [told])


def test_wording_alone_is_not_told() -> None:
    assert transitions([condition(S, FALSE, "SignalStale", "1h")], [condition(S, FALSE, "SignalStale", "2h")]) == []
