"""What our AdmissionChecks say of Kueue's Workloads."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.operator.deferral.documents import check, cluster_of, job, policy, region, stamp, workload
from tests.unit.operator.objects import NOW_S
from tests.unit.operator.virtual import run_virtual

from heliotrope_operator.deferral.clock import ServerClock
from heliotrope_operator.deferral.kueue import AdmissionCheckController, WorkloadController
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import Key, Kind

DAY = (300.0, 280.0, 100.0, 120.0, 250.0, 260.0, 270.0)
SOON = (300.0, 100.0, 120.0, 250.0, 260.0, 270.0)
ASKED = job(labels={"heliotrope.io/deferrable": "true", "kueue.x-k8s.io/queue-name": "batch"})
OPTED_IN = {"heliotrope.io/deferrable": "true"}


class Recorded:
    """Takes writes: those to the API, and those to the Job."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, dict[str, Any]]] = []
        self.jobs: list[tuple[str, str]] = []

    async def apply(self, path: str, document: dict[str, Any], *, force: bool) -> dict[str, Any]:
        assert force
        self.applied.append((path, document))
        return {"metadata": {"name": "x", "uid": "x", "resourceVersion": "1", "creationTimestamp": stamp()}}

    async def plan(self, key: Key, uid: str, ask: object, verdict: Any) -> None:
        self.jobs.append(("plan", verdict.reason))

    async def start(self, key: Key, uid: str, ask: object, verdict: Any, *, resume: bool, **times: float) -> None:
        assert not resume
        self.jobs.append(("start", verdict.reason))


def look(*documents: dict[str, Any], minutes: float = 0.0) -> Recorded:
    """Reconcile the Workload `wl` among the documents."""

    async def once() -> Recorded:
        cluster, recorded = cluster_of(*documents), Recorded()
        context = SimpleNamespace(
            cluster=cluster, kube=None, writes=recorded, enqueue=lambda keys: None, unix_clock=lambda: NOW_S
        )
        clock = ServerClock(lambda: NOW_S + minutes * 60, asyncio.get_running_loop().time)
        controller = WorkloadController(cast("Context", context), clock, cast("Any", recorded))
        await controller.reconcile(Key(Kind.WORKLOAD, "ns", "wl"))
        return recorded

    return run_virtual(once())


def states(recorded: Recorded) -> list[tuple[str, str, int | None]]:
    """Name, state and time to ask again of each check that was applied."""
    return [
        (each["name"], each["state"], each.get("requeueAfterSeconds"))
        for _, document in recorded.applied
        for each in document["status"]["admissionChecks"]
    ]


def test_a_start_hours_away_gives_the_quota_back_and_is_asked_for_again() -> None:
    found = look(ASKED, policy(), region("es", *DAY), check(), workload())

    assert states(found) == [("defer", "Retry", 900)]
    assert found.jobs == [("plan", "CleanerLater")]


def test_a_start_minutes_away_keeps_the_quota() -> None:
    planned = ASKED | {
        "metadata": ASKED["metadata"]
        | {"annotations": ASKED["metadata"]["annotations"] | {"heliotrope.io/planned-start": stamp(1)}}
    }
    found = look(planned, policy(), region("es", *SOON), check(), workload(), minutes=52)

    assert states(found) == [("defer", "Pending", None)]


def test_a_clean_hour_passes_and_marks_the_job() -> None:
    found = look(ASKED, policy(), region("es", 100.0, 200.0, 300.0), check(), workload())

    assert states(found) == [("defer", "Ready", None)]
    assert found.jobs == [("start", "CleanestNow")]


@pytest.mark.parametrize("owner", [job(labels={}), None])
def test_a_workload_that_did_not_opt_in_passes_at_once(owner: dict[str, Any] | None) -> None:
    found = look(*filter(None, (owner,)), policy(), region("es", *DAY), check(), workload())

    assert states(found) == [("defer", "Ready", None)]
    assert found.jobs == []


def test_a_workload_of_another_kind_opts_in_by_its_own_label() -> None:
    own = workload(job=None, labels=OPTED_IN)
    own["metadata"]["annotations"] = {"heliotrope.io/expected-duration": "1h"}

    assert states(look(policy(), region("es", *DAY), check(), own)) == [("defer", "Retry", 900)]


def test_a_job_that_was_started_once_is_not_deferred_again_after_an_eviction() -> None:
    started = ASKED | {"metadata": ASKED["metadata"] | {"annotations": {"heliotrope.io/started": stamp(-3)}}}

    found = look(started, policy(), region("es", *DAY), check(), workload())

    assert (states(found), found.jobs) == ([("defer", "Ready", None)], [])


@pytest.mark.parametrize(
    "documents",
    [
        [check(), workload(reserved=False)],
        [check(controller="kueue.x-k8s.io/multikueue"), workload()],
        [workload()],
        [check(), workload("wl", {"name": "defer", "state": "Ready", "lastTransitionTime": stamp(), "message": ""})],
        [check(), workload("wl", {"name": "defer", "state": "Retry", "lastTransitionTime": stamp(), "message": ""})],
    ],
)
def test_it_answers_only_its_own_checks_and_only_when_it_is_asked(documents: list[dict[str, Any]]) -> None:
    assert look(ASKED, policy(), region("es", *DAY), *documents).applied == []


def test_all_of_its_checks_are_applied_together_and_others_are_not() -> None:
    entry = {"lastTransitionTime": stamp(), "message": ""}
    both = workload(
        "wl",
        {"name": "defer", "state": "Pending"} | entry,
        {"name": "defer-too", "state": "Ready"} | entry,
        {"name": "budget", "state": "Pending"} | entry,
    )

    found = look(ASKED, policy(), region("es", *DAY), check(), check("defer-too"), both)

    assert states(found) == [("defer", "Retry", 900), ("defer-too", "Ready", None)]


ACTIVE = {"status": {"conditions": [{"type": "Active", "status": "True"}]}}


@pytest.mark.parametrize(
    ("document", "writes"), [(check(), 1), (check(controller="example.com/other"), 0), (check() | ACTIVE, 0)]
)
def test_our_checks_are_said_to_be_active(document: dict[str, Any], writes: int) -> None:
    async def once() -> Recorded:
        cluster, recorded = cluster_of(document), Recorded()
        context = SimpleNamespace(cluster=cluster, writes=recorded, enqueue=lambda keys: None, unix_clock=lambda: NOW_S)
        await AdmissionCheckController(cast("Context", context)).reconcile(Key(Kind.ADMISSION_CHECK, "", "defer"))
        return recorded

    found = run_virtual(once())
    assert len(found.applied) == writes
    if writes:
        (condition,) = found.applied[0][1]["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["observedGeneration"]) == ("Active", "True", 1)
