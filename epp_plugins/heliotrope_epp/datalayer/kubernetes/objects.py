"""What is kept of pools and pods, and the endpoints that they make."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.endpoint import REGION_LABEL, Endpoint

ACTIVE_PORTS = "llm-d.ai/active-ports"
"""Annotation of a pod: the target ports that serve, separated by commas; absent: all."""
_LEGACY_ACTIVE_PORTS = "inference.networking.k8s.io/active-ports"


@dataclass(frozen=True, slots=True)
class Pool:
    """An InferencePool."""

    match_labels: Mapping[str, str]
    target_ports: tuple[int, ...]

    @property
    def label_selector(self) -> str:
        """As a list call takes it."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.match_labels.items()))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the pool."""

    name: str
    namespace: str
    address: str | None
    serving: bool
    """Ready and not about to end."""
    node: str | None
    labels: Mapping[str, str]
    active_ports: frozenset[int] | None
    """None: all of the pool's."""
    node_address: str | None = None
    """The node's address, where its exporters listen."""


def pool_of(item: Mapping[str, Any]) -> Pool:
    """The pool in an `inference.networking.k8s.io/v1` object.

    Raises:
        InvalidInputError: if it selects nothing or has no port, which its CRD rules out.
    """
    spec = item.get("spec") or {}
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    ports = tuple(int(port["number"]) for port in spec.get("targetPorts") or ())
    if not labels or not ports:
        raise InvalidInputError("spec", "needs selector.matchLabels and targetPorts")
    return Pool({str(key): str(value) for key, value in labels.items()}, ports)


def pod_of(item: Mapping[str, Any]) -> Pod:
    """What matters of a `v1` Pod."""
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ())
    return Pod(
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        address=status.get("podIP") or None,
        serving=ready and metadata.get("deletionTimestamp") is None,
        node=(item.get("spec") or {}).get("nodeName") or None,
        labels=dict(metadata.get("labels") or {}),
        active_ports=_active_ports(metadata.get("annotations") or {}),
        node_address=status.get("hostIP") or None,
    )


def priority_of(item: Mapping[str, Any]) -> tuple[str, int]:
    """Name and priority of an `llm-d.ai/v1alpha2` InferenceObjective; without a priority it has 0, as in llm-d.

    Raises:
        InvalidInputError: if the priority is no whole number, which its CRD rules out.
    """
    name, spec = (item.get("metadata") or {}).get("name", ""), item.get("spec") or {}
    priority = spec.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int | None):
        raise InvalidInputError("spec.priority", "must be a whole number")
    return str(name), priority or 0


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of an object."""
    return dict((item.get("metadata") or {}).get("labels") or {})


def endpoints_of(pool: Pool, pods: Iterable[Pod], node_regions: Mapping[str, str | None]) -> tuple[Endpoint, ...]:
    """One endpoint per serving pod and active target port, sorted by key.

    It is called as the pod where the pool has one port, else `<pod>-rank-<i>` by the port's position.
    """
    endpoints = [
        Endpoint(
            name=pod.name if len(pool.target_ports) == 1 else f"{pod.name}-rank-{rank}",
            namespace=pod.namespace,
            address=pod.address,
            port=port,
            labels=pod.labels,
            node_region=None if pod.node is None else node_regions.get(pod.node),
            node_address=pod.node_address,
            pod=pod.name,
        )
        for pod in pods
        if pod.serving and pod.address is not None
        for rank, port in enumerate(pool.target_ports)
        if pod.active_ports is None or port in pod.active_ports
    ]
    return tuple(sorted(endpoints, key=lambda endpoint: endpoint.key))


def nodes_in_question(pods: Iterable[Pod]) -> frozenset[str]:
    """Nodes of the serving pods that do not name their region themselves."""
    return frozenset(pod.node for pod in pods if pod.serving and pod.node and REGION_LABEL not in pod.labels)


def _active_ports(annotations: Mapping[str, str]) -> frozenset[int] | None:
    """The ports of the annotation; what is no number is passed over, as llm-d does."""
    text = annotations.get(ACTIVE_PORTS, annotations.get(_LEGACY_ACTIVE_PORTS))
    if text is None:
        return None
    parts = (part.strip() for part in text.split(","))
    return frozenset(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) <= 5)
