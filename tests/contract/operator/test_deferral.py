"""Deferral on a real API server: Jobs wait, are resumed once, and nothing else about any Job is touched."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.cluster import NAMESPACE, Api, Document
from tests.contract.operator.conftest import Start
from tests.contract.operator.process import eventually
from tests.support.controlplane import ControlPlane

from heliotrope_operator.actuation.restore import RestoreSettings, Result, restore
from heliotrope_operator.deferral.release import release

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(240)]

DEFERRAL = {"parts": {"deferral": True}}
PLANNED, STARTED, REASON = (f"heliotrope.io/{name}" for name in ("planned-start", "started", "deferral-reason"))


@pytest.fixture
def grid(api: Api, unique: Callable[[str], str], tmp_path: Path) -> Callable[..., str]:
    """A region whose series has these values from these seconds on; returns its name."""

    def grid(*rows: tuple[float, float], **spec: Any) -> str:
        name, path = unique("es"), tmp_path / f"{unique('series')}.csv"
        now = datetime.now(UTC).replace(microsecond=0)
        lines = [f"{(now + timedelta(seconds=offset)).isoformat()},{value}" for offset, value in rows]
        path.write_text("\n".join(["datetime_utc,g", *lines, ""]))
        source = {"file": {"path": str(path), "valueColumn": "g"}}
        api.apply(api.region(name, source=source, pollInterval="2s", **spec))
        eventually(lambda: api.get("RegionProfile", name).get("status", {}).get("forecast"))
        return name

    return grid


def job(api: Api, name: str, region: str, annotations: dict[str, str] | None = None, **spec: Any) -> Document:
    """A suspended Job that opted in and takes a few seconds."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "work"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": api.namespace,
            "labels": {"heliotrope.io/deferrable": "true"},
            "annotations": {"heliotrope.io/expected-duration": "5s", "heliotrope.io/region": region}
            | (annotations or {}),
        },
        "spec": {"suspend": True, "template": template} | spec,
    }


def noted(api: Api, name: str, annotation: str) -> str | None:
    found: str | None = api.get("Job", name)["metadata"].get("annotations", {}).get(annotation)
    return found


def deferring(api: Api, **deferral: str) -> Document:
    return api.policy("green", deferral={"safetyMargin": "0s"} | deferral)


def later(seconds: float) -> list[tuple[float, float]]:
    """Dirty now, clean from then on for an hour."""
    return [(-3600, 400), (0, 400), (seconds, 50), (seconds + 3600, 300)]


def resumed_once(api: Api, name: str) -> bool:
    """The spec has changed once since the Job was created, and the Job says when and why."""
    found = api.get("Job", name)
    return found["spec"]["suspend"] is False and found["metadata"]["generation"] == 2


def test_a_job_waits_for_its_window_and_is_resumed_then(api: Api, start: Start, grid: Callable[..., str]) -> None:
    operator = start(**DEFERRAL).wait_ready()
    region = grid(*later(20))
    api.apply(deferring(api), job(api, "train", region, {"heliotrope.io/deadline": "1h"}))

    planned = eventually(lambda: noted(api, "train", PLANNED))
    assert api.get("Job", "train")["spec"]["suspend"] is True
    assert operator.metric("heliotrope_deferral_waiting_jobs", {"namespace": api.namespace}) == 1
    eventually(lambda: resumed_once(api, "train"))

    started = noted(api, "train", STARTED)
    assert started is not None
    assert abs(_seconds(started) - _seconds(planned)) < 5
    assert api.told("train")[0] == ("Normal", "Deferred")
    assert len(api.told("train")) == 2
    assert operator.metric("heliotrope_deferral_waiting_jobs", {"namespace": api.namespace}) == 0
    described = api.cluster.kubectl("describe", "job", "train", "-n", api.namespace).split("Events:")[1]
    assert "it waits until" in described


def test_jobs_that_did_not_opt_in_or_were_suspended_again_are_not_touched(
    api: Api, start: Start, grid: Callable[..., str]
) -> None:
    start(**DEFERRAL).wait_ready()
    region = grid((-3600, 50), (0, 50), (3600, 400))
    other = job(api, "other", region)
    other["metadata"]["labels"] = {}
    api.apply(deferring(api), other, job(api, "mine", region))
    eventually(lambda: resumed_once(api, "mine"))
    before = api.get("Job", "other")["metadata"]["resourceVersion"]

    api.merge("Job", "mine", {"spec": {"suspend": True}})
    api.apply(job(api, "next", region))
    eventually(lambda: resumed_once(api, "next"))
    time.sleep(12)

    assert api.get("Job", "mine")["spec"]["suspend"] is True
    assert api.get("Job", "other")["spec"]["suspend"] is True
    assert api.get("Job", "other")["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"heliotrope.io/deadline": "tomorrow"}, "InvalidAnnotation"),
        ({"heliotrope.io/deadline": "1s"}, "DeadlineRisk"),
    ],
)
def test_an_ask_that_cannot_be_met_starts_at_once_and_is_told(
    api: Api, start: Start, grid: Callable[..., str], annotations: dict[str, str], reason: str
) -> None:
    start(**DEFERRAL).wait_ready()
    region = grid(*later(600))

    api.apply(deferring(api), job(api, "train", region, annotations))

    eventually(lambda: resumed_once(api, "train"))
    eventually(lambda: api.told("train") == [("Warning", reason)])
    assert noted(api, "train", REASON) == reason


def test_news_resumes_what_waits(api: Api, start: Start, grid: Callable[..., str]) -> None:
    """The policy turns Advise, or goes: what it held back starts."""
    start(**DEFERRAL).wait_ready()
    region = grid(*later(600))
    api.apply(deferring(api), job(api, "one", region))
    eventually(lambda: noted(api, "one", PLANNED))

    api.apply(deferring(api) | {"spec": deferring(api)["spec"] | {"enforcement": "Advise"}})
    eventually(lambda: resumed_once(api, "one"))
    assert noted(api, "one", REASON) == "AdviseOnly"
    (told,) = [each for each in api.events("one") if each["reason"] == "AdviseOnly"]
    assert "under Enforce: it waits until" in told["note"]


def test_a_signal_that_goes_stale_resumes_what_waits(api: Api, start: Start, unique: Callable[[str], str]) -> None:
    start(**DEFERRAL).wait_ready()
    region, series = unique("es"), unique("series")
    now = datetime.now(UTC).replace(microsecond=0)
    rows = "".join(f"{(now + timedelta(seconds=at)).isoformat()},{value}\n" for at, value in later(600))
    api.apply(api.config_map(series, f"datetime_utc,g\n{rows}", "heliotrope-system"))
    source = {"configMap": {"name": series, "key": "carbon.csv", "valueColumn": "g"}}
    api.apply(api.region(region, source=source, pollInterval="1s", staleAfter="15s"))
    eventually(lambda: api.get("RegionProfile", region).get("status", {}).get("freshness") == "Fresh")
    api.apply(deferring(api), job(api, "train", region))
    eventually(lambda: noted(api, "train", PLANNED))

    eventually(lambda: resumed_once(api, "train"))

    assert noted(api, "train", REASON) == "SignalLost"
    assert ("Warning", "SignalLost") in api.told("train")


def test_a_killed_operator_leaves_the_job_suspended_and_the_next_one_keeps_its_plan(
    api: Api, start: Start, grid: Callable[..., str]
) -> None:
    first = start("first", **DEFERRAL).wait_ready()
    region = grid(*later(25))
    api.apply(deferring(api), job(api, "train", region))
    planned = eventually(lambda: noted(api, "train", PLANNED))

    first.kill()
    time.sleep(2)
    assert api.get("Job", "train")["spec"]["suspend"] is True
    start("second", **DEFERRAL).wait_ready()

    eventually(lambda: resumed_once(api, "train"))
    assert noted(api, "train", PLANNED) == planned
    assert [reason for _, reason in api.told("train")].count("Deferred") == 1


def test_of_two_operators_one_resumes(api: Api, start: Start, grid: Callable[..., str]) -> None:
    start("one", **DEFERRAL).wait_ready()
    start("two", **DEFERRAL).wait_alive()
    region = grid(*later(10))
    names = [f"train-{number}" for number in range(5)]
    api.apply(deferring(api), *(job(api, name, region) for name in names))

    for name in names:
        eventually(lambda name=name: resumed_once(api, name))
        assert len(api.told(name)) <= 2


def test_an_outage_over_the_planned_start_delays_it_to_the_end_of_the_outage(
    restartable: ControlPlane, api: Api, start: Start, grid: Callable[..., str], refusals_allowed: None
) -> None:
    start(**DEFERRAL).wait_ready()
    region = grid(*later(15))
    api.apply(deferring(api), job(api, "train", region))
    eventually(lambda: noted(api, "train", PLANNED))

    restartable.stop_apiserver()
    time.sleep(16)
    restartable.start_apiserver()

    eventually(lambda: resumed_once(api, "train"), seconds=60)


def test_a_clock_that_is_an_hour_behind_keeps_the_longest_delay(
    api: Api, start: Start, grid: Callable[..., str]
) -> None:
    operator = start(**DEFERRAL, clock_offset_s=-3600.0).wait_ready()
    region = grid((-7200, 400), *later(600)[1:])
    created = time.time()

    api.apply(deferring(api, longestDelay="6s"), job(api, "train", region))

    eventually(lambda: resumed_once(api, "train"))
    assert time.time() - created < 30
    assert operator.metric("heliotrope_deferral_clock_behind_seconds") > 3500


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


async def test_jobs_that_wait_are_started_when_the_operator_goes_for_good(
    api: Api, start: Start, account: Path, grid: Callable[..., str]
) -> None:
    operator = start(**DEFERRAL).wait_ready()
    region = grid(*later(600))
    other = job(api, "other", region)
    other["metadata"]["labels"] = {}
    api.apply(deferring(api), other, job(api, "train", region))
    eventually(lambda: noted(api, "train", PLANNED))
    assert operator.terminate()[0] == 0
    settings = RestoreSettings(operator_namespace=NAMESPACE, kubeconfig=account, namespaces=(api.namespace,))

    dry = await restore(replace(settings, dry_run=True), [release])
    assert api.get("Job", "train")["spec"]["suspend"] is True
    done = await restore(settings, [release])

    assert dry == done
    (released,) = [each for each in done if each.where.path == "spec.suspend"]
    assert (released.where.name, released.after, released.result) == ("train", False, Result.RESTORED)
    assert resumed_once(api, "train")
    assert noted(api, "train", REASON) == "Released"
    assert api.get("Job", "other")["spec"]["suspend"] is True
