"""Nodes: where they are and whether pods may be placed on them."""

from __future__ import annotations

from dataclasses import dataclass

from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.resources import RESOURCES, Key, Kind

TOPOLOGY_REGION = "topology.kubernetes.io/region"


@dataclass(frozen=True, slots=True)
class Node:
    """The part of a Node that matters here."""

    uid: str
    region: str | None
    """Its label `topology.kubernetes.io/region`."""
    unschedulable: bool
    ready: bool
    annotations: tuple[tuple[str, str], ...]
    """Those of Heliotrope, sorted."""


def node_key(name: str) -> Key:
    """The key of a Node."""
    return Key(Kind.NODE, "", name)


def spec() -> KindSpec[Node]:
    """How Nodes are watched and remembered; the heartbeats in their statuses are no news."""
    return KindSpec(Kind.NODE, RESOURCES[Kind.NODE], _read, reconciled=False)


def _read(_key: Key, document: Document) -> Node:
    metadata, conditions = document["metadata"], document.get("status", {}).get("conditions") or ()
    annotations = (metadata.get("annotations") or {}).items()
    return Node(
        uid=metadata.get("uid", ""),
        region=(metadata.get("labels") or {}).get(TOPOLOGY_REGION),
        unschedulable=bool(document.get("spec", {}).get("unschedulable")),
        ready=any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions),
        annotations=tuple(sorted(each for each in annotations if each[0].startswith("heliotrope.io/"))),
    )
