"""What people and the operator read of a plan."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.unit.agent.control.world import OTHER, POD, eligible, facts, intent, wishes

from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope_agent.control.plan import Facts, plan
from heliotrope_agent.control.reasons import Reason
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.control.status import _HARMLESS, _WORST_FIRST, status_of


def said(found: Facts) -> dict[str, tuple[ConditionStatus, str | None]]:
    """Status and reason by condition."""
    status = status_of(plan(found, Rules()), found, Rules(), None, datetime(2026, 11, 30, tzinfo=UTC))
    return {each.type: (each.status, each.reason) for each in status.conditions}


def test_every_reason_is_harmless_or_can_be_the_worst() -> None:
    assert {*_HARMLESS, *_WORST_FIRST} == set(Reason)
    assert len(_WORST_FIRST) == len(set(_WORST_FIRST))


def test_a_pod_that_two_intents_name_is_asked_for_and_not_served() -> None:
    wish = wishes(intent(POD, OTHER, variant="a", watts=300), intent(OTHER, variant="b", watts=200))
    assert said(facts(wish, eligible(POD, OTHER)))["Applied"] == (ConditionStatus.FALSE, "Ambiguous")


def test_what_is_said_of_the_lease() -> None:
    wish = wishes(intent(POD, watts=300))
    expected = {
        float("inf"): (ConditionStatus.TRUE, "NotNeeded"),
        float("-inf"): (ConditionStatus.UNKNOWN, "NotSeen"),
        1001.0: (ConditionStatus.TRUE, "Renewed"),
        1000.0: (ConditionStatus.FALSE, "Expired"),
    }
    for until_s, condition in expected.items():
        assert said(facts(replace(wish, lease_until_s=until_s), eligible(POD)))["LeaseValid"] == condition
