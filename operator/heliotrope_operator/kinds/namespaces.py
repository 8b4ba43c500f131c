"""Namespaces: the labels with which an administrator grants tenants' rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.kinds.targets import actuations
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster

PREFIX = "heliotrope.io/"
"""Labels that begin so are remembered."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The part of a Namespace that matters here."""

    labels: tuple[tuple[str, str], ...]
    """Those of Heliotrope, sorted."""

    def label(self, name: str) -> str | None:
        """The value of a label; None without it."""
        return dict(self.labels).get(name)


def namespace_key(name: str) -> Key:
    """The key of a Namespace."""
    return Key(Kind.NAMESPACE, "", name)


def spec() -> KindSpec[Namespace]:
    """How Namespaces are watched and remembered. A change touches the namespace's policies and variants."""
    return KindSpec(Kind.NAMESPACE, RESOURCES[Kind.NAMESPACE], _read, dependents=_dependents, reconciled=False)


def _read(_key: Key, document: Document) -> Namespace:
    labels = document["metadata"].get("labels") or {}
    return Namespace(tuple(sorted(each for each in labels.items() if each[0].startswith(PREFIX))))


def _dependents(cluster: Cluster, key: Key, _before: Namespace | None, _after: Namespace | None) -> set[Key]:
    tables = (cluster.policies, cluster.variants)
    touched = {each for table in tables for each in table if each.namespace == key.name}
    return touched | actuations(cluster, touched)
