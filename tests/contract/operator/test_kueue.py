"""AdmissionChecks on a real API server with Kueue's own CRDs; quota and eviction, Kueue's part, are played."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.cluster import Api, Document, conditions, operator_account
from tests.contract.operator.conftest import ROOT
from tests.contract.operator.process import OperatorProcess, eventually
from tests.contract.operator.test_deferral import PLANNED, STARTED, deferring, job, later, noted
from tests.support.controlplane import Cluster

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(240)]

NAMESPACE = "heliotrope-kueue"


@pytest.fixture(scope="module")
def operator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """An operator with Kueue's part, and the rights that the chart gives for it."""
    control_plane.apply_crds(ROOT / "tests" / "support" / "kueue")
    account = operator_account(control_plane, NAMESPACE, {"operator": {"parts": {"kueue": True}}})
    log = tmp_path_factory.mktemp("kueue") / "operator.log"
    parts = {"deferral": True, "kueue": True}
    with OperatorProcess(account, log, namespace=NAMESPACE, parts=parts) as operator:
        yield operator.wait_ready()


@pytest.fixture
def region(api: Api, unique: Callable[[str], str], tmp_path: Path) -> str:
    """Dirty for another 20 minutes, then clean."""
    name, path = unique("es"), tmp_path / "series.csv"
    now = datetime.now(UTC).replace(microsecond=0)
    rows = [f"{(now + timedelta(seconds=offset)).isoformat()},{value}" for offset, value in later(1_200)]
    path.write_text("\n".join(["datetime_utc,g", *rows, ""]))
    api.apply(api.region(name, source={"file": {"path": str(path), "valueColumn": "g"}}, pollInterval="2s"))
    eventually(lambda: api.get("RegionProfile", name).get("status", {}).get("forecast"))
    return name


def check(name: str, controller: str = "heliotrope.io/deferral") -> Document:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


def queued(api: Api, name: str, region: str, *, opted_in: bool = True) -> Document:
    """A Job in a queue of Kueue."""
    found = job(api, name, region)
    found["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "batch"} | (
        {"heliotrope.io/deferrable": "true"} if opted_in else {}
    )
    return found


def workload(api: Api, name: str) -> Document:
    """What Kueue makes of the Job."""
    owner = api.get("Job", name)["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["uid"], "controller": True}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": f"job-{name}", "namespace": api.namespace, "ownerReferences": [reference]},
        "spec": {"queueName": "batch", "podSets": [{"name": "main", "count": 1, "template": {"spec": {}}}]},
    }


def reserve(api: Api, name: str, *checks: str) -> None:
    """Kueue sets quota aside and asks the checks."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    quota = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": now,
    }
    entries = [{"name": each, "state": "Pending", "lastTransitionTime": now, "message": ""} for each in checks]
    api.merge("Workload", f"job-{name}", {"status": {"conditions": [quota], "admissionChecks": entries}}, "status")


def said(api: Api, name: str) -> dict[str, Any]:
    """State by check."""
    found = api.get("Workload", f"job-{name}").get("status", {}).get("admissionChecks", ())
    return {each["name"]: each["state"] for each in found}


def test_a_workload_gives_its_quota_back_until_its_window(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str], region: str
) -> None:
    ours, other = unique("defer"), unique("other")
    api.apply(check(ours), check(other, "example.com/other"), deferring(api), queued(api, "train", region))
    eventually(lambda: conditions(api.get("AdmissionCheck", ours)).get("Active") == ("True", "Active"))
    api.apply(workload(api, "train"))

    reserve(api, "train", ours, other)

    eventually(lambda: said(api, "train") == {ours: "Retry", other: "Pending"})
    (entry,) = [each for each in api.get("Workload", "job-train")["status"]["admissionChecks"] if each["name"] == ours]
    assert 600 < entry["requeueAfterSeconds"] <= 900
    assert "it waits until" in entry["message"]
    assert noted(api, "train", PLANNED) is not None
    assert api.get("Job", "train")["spec"]["suspend"] is True
    assert api.get("AdmissionCheck", other).get("status") is None

    api.apply(deferring(api) | {"spec": deferring(api)["spec"] | {"enforcement": "Advise"}})
    reserve(api, "train", ours, other)  # Kueue asks again

    eventually(lambda: said(api, "train") == {ours: "Ready", other: "Pending"})
    assert noted(api, "train", STARTED) is not None
    assert api.get("Job", "train")["spec"]["suspend"] is True, "Kueue resumes its Jobs itself"

    reserve(api, "train", ours, other)  # and again after an eviction
    eventually(lambda: said(api, "train") == {ours: "Ready", other: "Pending"})


def test_a_workload_that_did_not_opt_in_passes_at_once(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str], region: str
) -> None:
    ours = unique("defer")
    api.apply(check(ours), deferring(api), queued(api, "plain", region, opted_in=False))
    before = api.get("Job", "plain")["metadata"]["resourceVersion"]
    api.apply(workload(api, "plain"))

    reserve(api, "plain", ours)

    eventually(lambda: said(api, "plain") == {ours: "Ready"})
    assert api.get("Job", "plain")["metadata"]["resourceVersion"] == before
    assert api.told("plain") == []
