"""Jobs that opted in to being started for them. Of all others nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from heliotrope_operator.kinds.deferrable import opted_in, own_annotations
from heliotrope_operator.kinds.nodes import TOPOLOGY_REGION
from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.kinds.workloads import workloads_of_job
from heliotrope_operator.resources import RESOURCES, Key, Kind

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Jobs with it are suspended and resumed by Kueue."""
_OWN_CONTROLLER = "kubernetes.io/job-controller"
_OWNERS = frozenset({"CronJob"})
"""Controllers of Jobs that leave `spec.suspend` alone once the Job is there."""


@dataclass(frozen=True, slots=True)
class Job:
    """The part of an opted-in Job that matters here."""

    uid: str
    created_unix_s: float
    annotations: tuple[tuple[str, str], ...]
    """Those of Heliotrope, sorted."""
    active_deadline_s: float | None
    """`spec.activeDeadlineSeconds`: the Job is ended when it has run for so long."""
    topology_region: str | None
    """The node label `topology.kubernetes.io/region` that its pods ask for."""
    suspended: bool
    has_run: bool
    """Whether it was started before: who suspends it then wants it suspended."""
    ended: bool
    """Finished, or being deleted."""
    foreign: str | None
    """Who else decides when it runs; None if nobody does."""


NOT_OPTED_IN = Job("", 0.0, (), None, None, False, False, False, None)
"""Stands for every Job that did not opt in, so that no change of one is news."""


def job_key(namespace: str, name: str) -> Key:
    """The key of a Job."""
    return Key(Kind.JOB, namespace, name)


def spec() -> KindSpec[Job]:
    """How Jobs are watched and remembered. A change touches the Workload that stands for the Job."""
    return KindSpec(
        Kind.JOB,
        RESOURCES[Kind.JOB],
        _read,
        dependents=lambda cluster, key, _before, _after: workloads_of_job(cluster, key),
    )


def _read(_key: Key, document: Document) -> Job:
    metadata = document["metadata"]
    if not opted_in(metadata):
        return NOT_OPTED_IN
    about, status = document.get("spec", {}), document.get("status", {})
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    template = about.get("template", {}).get("spec", {})
    seconds = about.get("activeDeadlineSeconds")
    return Job(
        uid=metadata.get("uid", ""),
        created_unix_s=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        annotations=own_annotations(metadata),
        active_deadline_s=None if seconds is None else float(seconds),
        topology_region=(template.get("nodeSelector") or {}).get(TOPOLOGY_REGION),
        suspended=about.get("suspend") is True,
        has_run=status.get("startTime") is not None or conditions.get("Suspended") == "False",
        ended="True" in (conditions.get("Complete"), conditions.get("Failed"))
        or metadata.get("deletionTimestamp") is not None,
        foreign=_foreign(metadata, about),
    )


def _foreign(metadata: Document, about: Document) -> str | None:
    """Whoever else writes `spec.suspend`: it has one writer."""
    queue = (metadata.get("labels") or {}).get(QUEUE_LABEL)
    if queue is not None:
        return f"Kueue, through its LocalQueue {queue}"
    manager = about.get("managedBy") or _OWN_CONTROLLER
    if manager != _OWN_CONTROLLER:
        return str(manager)
    owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    return None if owner is None or owner["kind"] in _OWNERS else f"its {owner['kind']} {owner['name']}"
