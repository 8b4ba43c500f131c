"""How often a region's source is asked and how long its value counts, in real time."""

from dataclasses import dataclass

from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec

SHORTEST_PUBLIC_POLL_S = 60.0
"""Of services that the public shares: none has news more often than every five minutes, and all count requests."""
_SHORTEST_POLL_S = 0.1
_PUBLIC = ("electricity_maps", "watt_time", "neso", "energy_charts", "entsoe")


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
    shortest_s = SHORTEST_PUBLIC_POLL_S if _is_public(spec) else _SHORTEST_POLL_S
    return Timing(
        poll_s=max(spec.poll_interval.total_seconds() / speed, shortest_s),
        stale_after_s=spec.stale_after.total_seconds() / speed,
    )


def _is_public(spec: RegionProfileSpec) -> bool:
    """Whether the source is asked at its public address, not at a proxy of the user's own."""
    for name in _PUBLIC:
        source = getattr(spec.source, name)
        if source is not None:
            return bool(source.base_url == type(source).model_fields["base_url"].default)
    return False


def replay_speed(spec: RegionProfileSpec) -> int:
    """How many times faster than real time the source's series plays; 1 for what is not replayed."""
    for recorded in (spec.source.file, spec.source.config_map):
        if recorded is not None and recorded.replay is not None:
            return recorded.replay.speed
    return 1
