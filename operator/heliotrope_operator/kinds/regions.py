"""RegionProfiles: policies need to know how fresh one is and of what kind, variants only whether it exists."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, cast

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope_operator.kinds import read
from heliotrope_operator.kinds.spec import KindSpec, Reader
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster


def region_key(name: str) -> Key:
    """The key of a RegionProfile."""
    return Key(Kind.REGION_PROFILE, "", name)


def spec() -> KindSpec[RegionProfile]:
    """How RegionProfiles are watched and remembered."""
    return KindSpec(
        Kind.REGION_PROFILE,
        RESOURCES[Kind.REGION_PROFILE],
        cast("Reader[RegionProfile]", read.own),
        dependents=_dependents,
    )


def _dependents(cluster: Cluster, key: Key, before: RegionProfile | None, after: RegionProfile | None) -> set[Key]:
    was, now = _facts(before), _facts(after)
    if was == now:
        return set()
    variants = cluster.variants.by("region", key.name)
    policies: set[Key] = set()
    for variant in variants:
        policies |= cluster.policies_of(variant, cluster.variants.get(variant))
    return policies if was is not None and now is not None else policies | variants


def _facts(region: RegionProfile | None) -> Hashable:
    if region is None:
        return None
    return (region.spec.signal, None if region.status is None else region.status.freshness)
