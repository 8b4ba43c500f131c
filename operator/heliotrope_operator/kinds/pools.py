"""InferencePools: which pods they hold, and the mark of the policy that holds on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliotrope.api.v1alpha1.common import AFFECTED_MARKER, ObjectMeta
from heliotrope_operator.kinds.read import metadata_of
from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.kinds.targets import actuations
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Pool:
    """The part of an InferencePool that matters here."""

    metadata: ObjectMeta
    match_labels: tuple[tuple[str, str], ...]
    picker: str | None = None
    """Name of the Service of its endpoint picker."""
    ports: tuple[int, ...] = ()
    """On which its pods serve."""

    @property
    def marker(self) -> str | None:
        """The affected-marker; None without one."""
        return self.metadata.annotations.get(AFFECTED_MARKER)

    def may_hold(self, selector: Mapping[str, str]) -> bool:
        """Whether a pod with these labels can be in the pool: no label is asked for with two values."""
        return all(selector.get(name, value) == value for name, value in self.match_labels)


def pool_key(namespace: str, name: str) -> Key:
    """The key of an InferencePool."""
    return Key(Kind.INFERENCE_POOL, namespace, name)


def spec() -> KindSpec[Pool]:
    """How InferencePools are watched and remembered; found by `namespace`."""
    return KindSpec(
        Kind.INFERENCE_POOL,
        RESOURCES[Kind.INFERENCE_POOL],
        _read,
        indexes={"namespace": lambda key, _: [key.namespace]},
        dependents=_dependents,
    )


def _read(_key: Key, document: Document) -> Pool:
    about = document.get("spec", {})
    labels = about.get("selector", {}).get("matchLabels", {})
    picker = about.get("endpointPickerRef") or {}
    service = picker.get("name") if picker.get("kind", "Service") == "Service" else None
    ports = tuple(int(port["number"]) for port in about.get("targetPorts") or ())
    return Pool(metadata_of(document), tuple(sorted(labels.items())), service, ports)


def _dependents(cluster: Cluster, key: Key, before: Pool | None, after: Pool | None) -> set[Key]:
    same = before is not None and after is not None and before.match_labels == after.match_labels
    return set() if same else {*cluster.policies.by("pool", key), *actuations(cluster, cluster.variants_of(key))}
