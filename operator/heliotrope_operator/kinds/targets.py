"""What variants scale, and the keys under which it is made so: one per target, whichever variants want it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliotrope_operator.resources import Key, Kind

if TYPE_CHECKING:
    from heliotrope.api.v1alpha1 import WorkloadVariant
    from heliotrope_operator.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """An object that a variant scales; versions of one group are the same object."""

    namespace: str
    group: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


ALL_ACTUATIONS = Key(Kind.ACTUATION, "", "")
"""Has every target that is, or was, scaled looked at."""


def scale_target(key: Key, variant: WorkloadVariant) -> ScaleTarget | None:
    """What a variant scales; None if nothing."""
    ref = variant.spec.scale_target_ref
    return None if ref is None else ScaleTarget(key.namespace, group_of(ref.api_version), ref.kind, ref.name)


def group_of(api_version: str) -> str:
    """The group of an apiVersion; empty for the core group."""
    return api_version.rpartition("/")[0]


def actuation_key(target: ScaleTarget) -> Key:
    """The key under which a target's replicas are made so."""
    return Key(Kind.ACTUATION, target.namespace, f"{target.kind}.{target.group}/{target.name}")


def actuated_target(key: Key) -> ScaleTarget:
    """The target of such a key."""
    of, _, name = key.name.rpartition("/")
    kind, _, group = of.partition(".")
    return ScaleTarget(key.namespace, group, kind, name)


def actuations(cluster: Cluster, variants: Iterable[Key]) -> set[Key]:
    """The keys of what variants scale; none where nothing is scaled, because the part is switched off."""
    if not actuates(cluster):
        return set()
    known = [(key, cluster.variants.get(key)) for key in variants]
    targets = [scale_target(key, variant) for key, variant in known if variant is not None]
    return {actuation_key(target) for target in targets if target is not None}


def actuates(cluster: Cluster) -> bool:
    """Whether replicas are made so: then, and only then, autoscalers are watched."""
    return Kind.HORIZONTAL_POD_AUTOSCALER in cluster.specs
