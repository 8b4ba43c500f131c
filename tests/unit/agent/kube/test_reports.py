"""Status is not telemetry: transitions at once, the rest once a minute, and never the same twice."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from heliotrope.api.v1alpha1.common import Condition, ConditionStatus
from heliotrope.api.v1alpha1.nodepower import GpuOwner, GpuSettings, GpuStatus, NodePowerStatus
from heliotrope_agent.kube.reports import BURST, REFILL_S, REFRESH_S, Pace, patch, settled, transition

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def status(*, reason: str = "Applied", message: str = "", at: datetime = NOON, **gpu: Any) -> NodePowerStatus:
    applied = ConditionStatus.TRUE if reason == "Applied" else ConditionStatus.FALSE
    condition = Condition(type="Applied", status=applied, reason=reason, message=message, last_transition_time=at)
    return NodePowerStatus(conditions=(condition,), managed_gpus=1, gpus=(GpuStatus(uuid="GPU-1", **gpu),))


@pytest.mark.parametrize(
    "after",
    [
        status(reason="Denied"),
        status(reasons=("Clamped",)),
        status(requested=GpuSettings(sm_clock_mhz=810)),
        status(original=GpuSettings(watts=400)),
        status(owner=GpuOwner(namespace="llm", pod="a")),
        status().model_copy(update={"observed_generation": 2}),
        status().model_copy(update={"managed_gpus": 0}),
        status().model_copy(update={"gpus": ()}),
    ],
)
def test_what_a_person_should_see_is_a_transition(after: NodePowerStatus) -> None:
    assert transition(status(), after)
    assert Pace().due_s(status(), after, 1_000.0) == 0.0


@pytest.mark.parametrize(
    "after",
    [
        status(message="words"),
        status(effective=GpuSettings(sm_clock_mhz=795)),
        status().model_copy(update={"heartbeat_time": NOON}),
    ],
)
def test_what_moves_by_itself_waits_for_a_minute(after: NodePowerStatus) -> None:
    pace = Pace()
    assert not transition(status(), after)
    pace.wrote(1_000.0)
    assert pace.due_s(status(), after, 1_010.0) == REFRESH_S - 10.0
    assert pace.due_s(status(), after, 1_060.0) == 0.0


def test_the_same_is_never_written_twice() -> None:
    assert Pace().due_s(status(), status(), 0.0) is None


def test_a_gpu_that_flaps_is_written_about_now_and_then() -> None:
    pace, now_s, writes = Pace(), 0.0, 0
    for number in range(600):
        now_s += 0.1
        before, after = status(reasons=("Shared",)), status()
        if number % 2:
            before, after = after, before
        if pace.due_s(before, after, now_s) == 0.0:
            pace.wrote(now_s)
            writes += 1
    assert BURST <= writes <= BURST + 60.0 / REFILL_S + 1


def test_the_time_of_a_transition_outlives_what_is_said_about_it() -> None:
    later = NOON + timedelta(hours=1)
    assert settled(status(at=later), status()).conditions[0].last_transition_time == NOON
    assert settled(status(reason="Denied", at=later), status()).conditions[0].last_transition_time == later
    assert settled(status(at=later), None).conditions[0].last_transition_time == later


def test_a_patch_says_all_of_it_and_of_whom() -> None:
    assert patch(NodePowerStatus(managed_gpus=0), "u") == {
        "metadata": {"uid": "u"},
        "status": {
            "heartbeatTime": None,
            "observedGeneration": None,
            "gpuCount": None,
            "managedGpus": 0,
            "conditions": [],
            "gpus": [],
        },
    }
    assert "metadata" not in patch(NodePowerStatus(), None)
