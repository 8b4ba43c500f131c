"""What people and the operator read of a plan."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.unit.agent.control.world import OTHER, POD, eligible, facts, intent, wishes

from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope_agent.control.plan import Facts, plan
from heliotrope_agent.control.reasons import Reason
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.control.status import _HARMLESS, _WORST_FIRST, beating, status_of, stopped


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


def test_a_sign_of_life_goes_with_each_news_and_once_a_minute_else() -> None:
    found = facts(wishes(intent(POD, watts=300)), eligible(POD))
    start = datetime(2026, 11, 30, 12, 0, 0, 400_000, tzinfo=UTC)
    said = status_of(plan(found, Rules()), found, Rules(), None, start)
    first = beating(said, None, start)
    assert first.heartbeat_time == start.replace(microsecond=0)
    for seconds, moves in ((1.0, False), (59.0, False), (60.0, True), (-1.0, True)):
        now = start + timedelta(seconds=seconds)
        assert (beating(said, first, now).heartbeat_time != first.heartbeat_time) is moves, seconds
    news = said.model_copy(update={"managed_gpus": 7})
    now = start + timedelta(seconds=2)
    assert beating(news, first, now).heartbeat_time == now.replace(microsecond=0)
    assert stopped(first, 0, now).heartbeat_time == now.replace(microsecond=0)
