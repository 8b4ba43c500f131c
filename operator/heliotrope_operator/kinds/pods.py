"""Pods: where engines run and whether they serve. Only what decisions need is kept of each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster

_OF_ONE_POD = frozenset(
    {
        "pod-template-hash",
        "controller-revision-hash",
        "pod-template-generation",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
    }
)
"""Labels that controllers add, by which nobody selects engines."""


_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""Label of a LeaderWorkerSet's pods."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The part of a Pod that matters here."""

    uid: str
    labels: tuple[tuple[str, str], ...]
    """Sorted, without those that controllers add to each."""
    node: str | None
    """None until it is scheduled."""
    ip: str | None
    phase: str
    ready: bool
    terminating: bool
    created_unix_s: float
    ready_since_unix_s: float | None
    """None while it is not ready."""
    owner: tuple[str, str] | None
    """Kind and name of the controller that made it."""
    accelerators: int
    """Extended resources of names ending in `gpu` (`nvidia.com/gpu`, …) that its containers ask for."""

    @property
    def serves(self) -> bool:
        """Whether requests may be sent to it."""
        return self.ready and not self.terminating

    @property
    def leads(self) -> bool:
        """Whether it speaks for its replica: a group of a LeaderWorkerSet is one replica, its pod 0 the leader."""
        return dict(self.labels).get(_WORKER_INDEX, "0") == "0"

    @property
    def starts(self) -> bool:
        """Whether it exists and has not served yet, or does not at the moment, and may again."""
        return not self.ready and not self.terminating and self.phase in ("Pending", "Running")


def pod_key(namespace: str, name: str) -> Key:
    """The key of a Pod."""
    return Key(Kind.POD, namespace, name)


def spec() -> KindSpec[Pod]:
    """How Pods are watched and remembered; found by `label` (namespace and label) and `node`.

    A change touches the variants that select the pod.
    """
    return KindSpec(
        Kind.POD,
        RESOURCES[Kind.POD],
        _read,
        indexes={"label": _labels, "node": lambda _, pod: [] if pod.node is None else [pod.node]},
        dependents=_dependents,
        reconciled=False,
    )


def _labels(key: Key, pod: Pod) -> Iterable[Hashable]:
    return [(key.namespace, label) for label in pod.labels]


def _read(_key: Key, document: Document) -> Pod:
    metadata, about, status = document["metadata"], document.get("spec", {}), document.get("status", {})
    ready: Document = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    serves = ready.get("status") == "True"
    owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    return Pod(
        uid=metadata.get("uid", ""),
        labels=tuple(sorted(each for each in (metadata.get("labels") or {}).items() if each[0] not in _OF_ONE_POD)),
        node=about.get("nodeName") or None,
        ip=status.get("podIP") or None,
        phase=status.get("phase", "Pending"),
        ready=serves,
        terminating=metadata.get("deletionTimestamp") is not None,
        created_unix_s=_unix_s(metadata.get("creationTimestamp")) or 0.0,
        ready_since_unix_s=_unix_s(ready.get("lastTransitionTime")) if serves else None,
        owner=None if owner is None else (owner["kind"], owner["name"]),
        accelerators=sum(_accelerators(each) for each in about.get("containers") or ()),
    )


def _accelerators(container: Document) -> int:
    resources = container.get("resources") or {}
    asked = (resources.get("requests") or {}) | (resources.get("limits") or {})
    return sum(int(count) for name, count in asked.items() if name.endswith("/gpu") and str(count).isdecimal())


def _unix_s(time: str | None) -> float | None:
    return None if time is None else datetime.fromisoformat(time).timestamp()


def _dependents(cluster: Cluster, key: Key, before: Pod | None, after: Pod | None) -> set[Key]:
    touched: set[Key] = set()
    for labels in {pod.labels for pod in (before, after) if pod is not None}:
        touched |= cluster.variants_selecting(key.namespace, dict(labels))
    return touched
