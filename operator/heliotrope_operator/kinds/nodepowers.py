"""NodePowers: what the operator wants on each GPU node, and whether an agent answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from heliotrope.api.v1alpha1 import NodePower
from heliotrope.api.v1alpha1.nodepower import NodePowerSpec
from heliotrope_operator.kinds import read
from heliotrope_operator.kinds.spec import Document, KindSpec, Unreadable
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "heliotrope-operator"
POWER = Key(Kind.POWER, "", "")
"""The work that all of them are part of."""


@dataclass(frozen=True, slots=True)
class KnownNodePower:
    """The part of a NodePower that matters here."""

    uid: str
    managed: bool
    """Whether this operator made it, as its label says; others are nobody's to delete."""
    spec: NodePowerSpec
    answered: bool
    """Whether a node agent has ever reported."""
    heartbeat: datetime | None
    """The agent's last sign of life, by a clock that nobody here knows: only that it changes means something. None: it
    leaves none."""
    applied: tuple[str, str] | None
    """Status and reason of the condition `Applied`; None without one."""


def node_power_key(node: str) -> Key:
    """The key of a node's NodePower."""
    return Key(Kind.NODE_POWER, "", node)


def spec() -> KindSpec[KnownNodePower]:
    """How NodePowers are watched and remembered. A change has clocks and watts looked at again."""
    return KindSpec(Kind.NODE_POWER, RESOURCES[Kind.NODE_POWER], _read, dependents=_dependents, reconciled=False)


def _read(key: Key, document: Document) -> KnownNodePower | Unreadable:
    found = read.own(key, document)
    if isinstance(found, Unreadable):
        return found
    assert isinstance(found, NodePower), "the kind is that of the collection"
    conditions = () if found.status is None else found.status.conditions
    applied = next((each for each in conditions if each.type == "Applied"), None)
    return KnownNodePower(
        uid=found.metadata.uid or "",
        managed=found.metadata.labels.get(MANAGED_BY) == MANAGER,
        spec=found.spec,
        answered=found.status is not None,
        heartbeat=None if found.status is None else found.status.heartbeat_time,
        applied=None if applied is None else (applied.status.value, applied.reason),
    )


def _dependents(_cluster: Cluster, _key: Key, before: KnownNodePower | None, after: KnownNodePower | None) -> set[Key]:
    if before is not None and after is not None and replace(before, heartbeat=after.heartbeat) == after:
        return set()  # a sign of life: a pass for each of a thousand nodes a minute would be all that is done
    return {POWER}
