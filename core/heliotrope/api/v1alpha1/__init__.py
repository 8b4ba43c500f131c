"""The resources of `heliotrope.io/v1alpha1`."""

from heliotrope.api.v1alpha1.carbonpolicy import CarbonPolicy
from heliotrope.api.v1alpha1.nodepower import NodePower
from heliotrope.api.v1alpha1.regionprofile import RegionProfile
from heliotrope.api.v1alpha1.workloadvariant import WorkloadVariant

KINDS = {kind.__name__: kind for kind in (RegionProfile, CarbonPolicy, WorkloadVariant, NodePower)}
"""The resources by kind."""

__all__ = ["KINDS", "CarbonPolicy", "NodePower", "RegionProfile", "WorkloadVariant"]
