"""Kueue's AdmissionChecks: which are ours, and whether they say that we answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliotrope_operator.kinds.spec import Document, KindSpec
from heliotrope_operator.kinds.workloads import Workload
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster

CONTROLLER_NAME = "heliotrope.io/deferral"
"""The `spec.controllerName` of our checks."""


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """The part of an AdmissionCheck that matters here."""

    ours: bool
    active: bool
    """Whether its status says that its controller answers."""
    generation: int


_FOREIGN = AdmissionCheck(ours=False, active=False, generation=0)


def check_key(name: str) -> Key:
    """The key of an AdmissionCheck."""
    return Key(Kind.ADMISSION_CHECK, "", name)


def spec() -> KindSpec[AdmissionCheck]:
    """How AdmissionChecks are watched and remembered. One that becomes ours touches the Workloads that wait for it."""
    return KindSpec(Kind.ADMISSION_CHECK, RESOURCES[Kind.ADMISSION_CHECK], _read, dependents=_dependents)


def _read(_key: Key, document: Document) -> AdmissionCheck:
    if document.get("spec", {}).get("controllerName") != CONTROLLER_NAME:
        return _FOREIGN
    conditions = document.get("status", {}).get("conditions") or ()
    active = any(each.get("type") == "Active" and each.get("status") == "True" for each in conditions)
    return AdmissionCheck(ours=True, active=active, generation=int(document["metadata"].get("generation") or 0))


def _dependents(cluster: Cluster, key: Key, before: AdmissionCheck | None, after: AdmissionCheck | None) -> set[Key]:
    if (before is not None and before.ours) == (after is not None and after.ours):
        return set()
    workloads: list[tuple[Key, Workload]] = cluster.table(Kind.WORKLOAD).items()
    return {each for each, workload in workloads if any(check.name == key.name for check in workload.checks)}
