"""Jobs, Workloads and regions with forecasts, as short as a test needs them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.operator import objects
from tests.unit.operator.objects import NOW, Document

from heliotrope.api.scalars import format_time
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.resources import Kind
from heliotrope_operator.settings import Parts


def stamp(hours: float = 0.0) -> str:
    """RFC 3339, hours from now."""
    return format_time(NOW + timedelta(hours=hours))


def job(
    name: str = "train",
    annotations: dict[str, str] | None = None,
    *,
    created_h: float = 0.0,
    labels: dict[str, str] | None = None,
    version: int = 1,
    metadata: Document | None = None,
    status: Document | None = None,
    **spec: Any,
) -> Document:
    """A suspended Job that opted in and is expected to take an hour."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": stamp(created_h),
            "labels": {"heliotrope.io/deferrable": "true"} if labels is None else labels,
            "annotations": {"heliotrope.io/expected-duration": "1h"} if annotations is None else annotations,
        }
        | (metadata or {}),
        "spec": {"suspend": True, "template": {"spec": {"containers": []}}} | spec,
        "status": status or {},
    }


def region(name: str = "es", *values: float, freshness: str = "Fresh", version: int = 1, **spec: Any) -> Document:
    """A RegionProfile whose forecast has these hourly values from now on; the first is the reading."""
    now, *ahead = values or (300.0,)
    start = datetime.fromtimestamp(NOW.timestamp(), UTC)
    status: Document = {
        "freshness": freshness,
        "intensity": {
            "value": str(now),
            "time": format_time(start),
            "source": "test",
            "signalType": "average",
            "emissionFactor": "lifecycle",
        },
        "forecastError": {"horizonHours": 24, "meanAbsoluteError": "1", "samples": 100},
    }
    if ahead:
        points = [
            {"time": format_time(start + timedelta(hours=hour)), "value": str(value)}
            for hour, value in enumerate(values)
        ]
        status["forecast"] = {"issuedAt": format_time(start), "source": "test", "points": points}
    return objects.region(name, version=version, status=status, **spec)


def policy(name: str = "green", *, enforcement: str = "Enforce", version: int = 1, **deferral: Any) -> Document:
    """A CarbonPolicy that defers."""
    return objects.policy(name, enforcement=enforcement, version=version, deferral=deferral)


def workload(
    name: str = "wl",
    *checks: Document,
    job: str | None = "train",
    reserved: bool = True,
    labels: dict[str, str] | None = None,
    version: int = 1,
) -> Document:
    """A Workload with quota, whose check `defer` is pending unless others are given."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}
    conditions = [{"type": "QuotaReserved", "status": "True"}] if reserved else []
    pending = {"name": "defer", "state": "Pending", "lastTransitionTime": stamp(), "message": ""}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": stamp(),
            "labels": labels or {},
            "ownerReferences": [] if job is None else [owner],
        },
        "spec": {"podSets": []},
        "status": {"conditions": conditions, "admissionChecks": list(checks or (pending,))},
    }


def check(name: str = "defer", *, controller: str = "heliotrope.io/deferral", version: int = 1) -> Document:
    """An AdmissionCheck."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1},
        "spec": {"controllerName": controller},
    }


def cluster_of(*documents: Document) -> Cluster:
    """A cluster that watches what deferral needs."""
    cluster = Cluster(watched(Parts(deferral=True, kueue=True)))
    for document in documents:
        cluster.observe(Kind(document["kind"]), document)
    return cluster
