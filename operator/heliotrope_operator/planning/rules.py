"""What a CarbonPolicy says on scaling, as allocation takes it."""

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.api.v1alpha1.controls import Autoscaling, ScaleStep
from heliotrope.scale.facts import ScalingRules, Step


def scaling_rules(policy: CarbonPolicy, autoscaling: Autoscaling) -> ScalingRules:
    """The rules of a policy with `spec.autoscaling`."""
    spec, saturation, activation = policy.spec, autoscaling.saturation, autoscaling.activation
    allowed = spec.placement.allowed_regions
    return ScalingRules(
        objective=spec.objective,
        embodied=spec.accounting_boundary.embodied,
        scale_up=_step(autoscaling.scale_up),
        scale_down=_step(autoscaling.scale_down),
        scale_up_share=saturation.scale_up_percent / 100,
        scale_down_share=saturation.scale_down_percent / 100,
        interval_seconds=autoscaling.interval.total_seconds(),
        scale_to_zero=autoscaling.scale_to_zero,
        warm_reserve_share=0.0 if activation is None else activation.warm_reserve_percent / 100,
        least_awake=1 if activation is None else activation.least_awake,
        allowed_regions=None if allowed is None else frozenset(allowed),
        largest_region_share=spec.placement.largest_region_share_percent / 100,
        quality_floor=spec.quality_floor,
    )


def _step(step: ScaleStep) -> Step:
    return Step(step.max_replicas_per_step, step.dwell.total_seconds())
