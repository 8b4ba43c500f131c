"""Kueue's Workloads, as far as an AdmissionCheck of ours has to answer for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from heliotrope_operator.kinds.deferrable import opted_in, own_annotations
from heliotrope_operator.kinds.nodes import TOPOLOGY_REGION
from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster


PENDING, READY, RETRY = "Pending", "Ready", "Retry"
"""States of a check: not answered; passed; give the quota back and ask again later."""


@dataclass(frozen=True, slots=True)
class Check:
    """What one AdmissionCheck says of a Workload."""

    name: str
    state: str
    since: str
    """RFC 3339 time of its last transition."""
    message: str
    requeue_after_s: int | None = None

    def document(self) -> dict[str, Any]:
        """As an entry of `status.admissionChecks`."""
        entry = {"name": self.name, "state": self.state, "lastTransitionTime": self.since, "message": self.message}
        return entry if self.requeue_after_s is None else {**entry, "requeueAfterSeconds": self.requeue_after_s}


@dataclass(frozen=True, slots=True)
class Workload:
    """The part of a Workload that matters here."""

    uid: str
    created_unix_s: float
    opted_in: bool
    """By a label of its own; its Job's counts, too."""
    annotations: tuple[tuple[str, str], ...]
    """Those of Heliotrope, sorted."""
    longest_run_s: float | None
    """`spec.maximumExecutionTimeSeconds`: Kueue ends it when it has run for so long."""
    topology_region: str | None
    """The node label `topology.kubernetes.io/region` that its pods ask for."""
    job: str | None
    """The batch Job that it stands for."""
    reserved: bool
    """Whether quota is set aside for it: only then its checks are asked."""
    ended: bool
    checks: tuple[Check, ...]
    """What all its AdmissionChecks say, by name."""


def spec() -> KindSpec[Workload]:
    """How Workloads are watched and remembered; found by `job`."""
    return KindSpec(
        Kind.WORKLOAD,
        RESOURCES[Kind.WORKLOAD],
        _read,
        indexes={"job": lambda key, workload: [] if workload.job is None else [(key.namespace, workload.job)]},
    )


def workloads_of_job(cluster: Cluster, key: Key) -> set[Key]:
    """Workloads that stand for a Job; none where Workloads are not watched."""
    if Kind.WORKLOAD not in cluster.specs:
        return set()
    return set(cluster.table(Kind.WORKLOAD).by("job", (key.namespace, key.name)))


def _read(_key: Key, document: Document) -> Workload:
    metadata, about, status = document["metadata"], document.get("spec", {}), document.get("status", {})
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    regions = {
        (each.get("template", {}).get("spec", {}).get("nodeSelector") or {}).get(TOPOLOGY_REGION)
        for each in about.get("podSets") or ()
    }
    seconds = about.get("maximumExecutionTimeSeconds")
    return Workload(
        uid=metadata.get("uid", ""),
        created_unix_s=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        opted_in=opted_in(metadata),
        annotations=own_annotations(metadata),
        longest_run_s=None if seconds is None else float(seconds),
        topology_region=regions.pop() if len(regions) == 1 else None,
        job=owner["name"] if owner is not None and owner["kind"] == "Job" else None,
        reserved=conditions.get("QuotaReserved") == "True",
        ended=conditions.get("Finished") == "True" or metadata.get("deletionTimestamp") is not None,
        checks=tuple(
            Check(
                each["name"],
                each.get("state", PENDING),
                each.get("lastTransitionTime", ""),
                each.get("message", ""),
                each.get("requeueAfterSeconds"),
            )
            for each in sorted(status.get("admissionChecks") or (), key=lambda each: str(each["name"]))
        ),
    )
