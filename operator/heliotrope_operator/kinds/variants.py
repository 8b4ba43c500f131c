"""WorkloadVariants: others may win or lose what one scales, and policies reach its region."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, cast

from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope_operator.kinds import read
from heliotrope_operator.kinds.spec import KindSpec, Reader
from heliotrope_operator.kinds.targets import actuates, actuation_key, scale_target
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster


def spec() -> KindSpec[WorkloadVariant]:
    """How WorkloadVariants are watched and remembered; found by `region`, `target`, `shape` and `label`."""
    return KindSpec(
        Kind.WORKLOAD_VARIANT,
        RESOURCES[Kind.WORKLOAD_VARIANT],
        cast("Reader[WorkloadVariant]", read.own),
        indexes={
            "region": lambda _, variant: [] if variant.spec.region_ref is None else [variant.spec.region_ref.name],
            "target": lambda key, variant: [] if (target := scale_target(key, variant)) is None else [target],
            "shape": lambda key, variant: [shape(key, variant)],
            "label": lambda key, variant: [
                (*shape(key, variant), label) for label in variant.spec.endpoint_selector.match_labels.items()
            ],
        },
        dependents=_dependents,
    )


def shape(key: Key, variant: WorkloadVariant) -> tuple[str, frozenset[str]]:
    """Namespace and names of the labels that a variant selects by; few differ."""
    return key.namespace, frozenset(variant.spec.endpoint_selector.match_labels)


def _dependents(cluster: Cluster, key: Key, before: WorkloadVariant | None, after: WorkloadVariant | None) -> set[Key]:
    touched: set[Key] = set()
    targets = [None if variant is None else scale_target(key, variant) for variant in (before, after)]
    if targets[0] != targets[1]:
        touched.update(*(cluster.variants.by("target", target) for target in targets if target is not None))
    if actuates(cluster) and _scaled(before) != _scaled(after):
        touched.update(actuation_key(target) for target in targets if target is not None)
    if _reach(before) != _reach(after):
        touched |= cluster.policies_of(key, before) | cluster.policies_of(key, after)
    return touched


def _scaled(variant: WorkloadVariant | None) -> Hashable:
    return None if variant is None else (variant.metadata.uid, variant.metadata.generation)


def _reach(variant: WorkloadVariant | None) -> Hashable:
    if variant is None:
        return None
    return (variant.spec.region_ref, tuple(sorted(variant.spec.endpoint_selector.match_labels.items())))
