"""What a RegionProfile says, as allocation takes it."""

from collections.abc import Sequence

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.scale.facts import RegionFacts
from heliotrope_operator.outlook import outlook


def region_facts(profile: RegionProfile, starts_unix_s: Sequence[float], step_seconds: float) -> RegionFacts:
    """One region.

    Args:
        profile: with its status.
        starts_unix_s: when each step of the horizon begins, the first one now.
        step_seconds: how long each is.
    """
    spec = profile.spec
    return RegionFacts(
        name=profile.metadata.name,
        intensity_g_per_kwh=_intensities(profile, starts_unix_s, step_seconds),
        signal=(SignalType(spec.signal.type.value), EmissionFactor(spec.signal.emission_factor.value)),
        pue=spec.pue,
        electricity_price_per_kwh=spec.electricity_price_per_kwh,
        currency=spec.currency,
        accelerators={quota.type: quota.count for quota in spec.capacity.accelerators},
        max_watts=None if spec.capacity.max_watts is None else float(spec.capacity.max_watts),
        largest_share=spec.largest_share_percent / 100,
    )


def _intensities(
    profile: RegionProfile, starts_unix_s: Sequence[float], step_seconds: float
) -> tuple[float, ...] | None:
    """Expected in each step; beyond the forecast's end its last value goes on. None unless the signal is fresh."""
    ahead = outlook(profile)
    if ahead is None:
        return None
    found: list[float] = []
    for start in starts_unix_s:
        expectation = ahead.mean_over(start, start + step_seconds) or ahead.mean_over(start, start)
        if expectation is not None:
            found.append(expectation.expected)
        elif found:
            found.append(found[-1])
        else:
            return None
    return tuple(found)
