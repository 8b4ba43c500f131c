"""How often a region's source is asked and how long its value counts, in real time."""

from dataclasses import dataclass

from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec

_SHORTEST_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Timing:
    """Both in seconds of the real clock."""

    poll_s: float
    stale_after_s: float


def timing(spec: RegionProfileSpec) -> Timing:
    """The spec's poll interval and age limit; a series that plays faster shortens both, for they are in its time."""
    speed = 1
    for recorded in (spec.source.file, spec.source.config_map):
        if recorded is not None and recorded.replay is not None:
            speed = recorded.replay.speed
    return Timing(
        poll_s=max(spec.poll_interval.total_seconds() / speed, _SHORTEST_POLL_S),
        stale_after_s=spec.stale_after.total_seconds() / speed,
    )
