"""How requests' energy is metered."""

from dataclasses import dataclass, field

from heliotrope.engine.counters import CounterLimits

SHORTEST_INTERVAL_SECONDS = 5.0
"""Over some seconds it averages out that work and energy are not read at the same instant (docs/energy.md)."""


@dataclass(frozen=True, slots=True)
class MeteringSettings:
    """Settings of a meter."""

    enabled: bool = True
    node_port: int | None = None
    """Port of the exporter on every node; None: counters are on the engines' own pages or nowhere."""
    node_path: str = "/metrics"
    tick_s: float = 0.2
    """Between looks at progress; longer, up to a second, while a look takes more than a fiftieth of it."""
    hold_s: float = 3.0
    """How long work stays open to correction by what is learned later: first tokens, usage."""
    limits: CounterLimits = field(default_factory=lambda: CounterLimits(shortest_seconds=SHORTEST_INTERVAL_SECONDS))
    max_waiting: int = 20_000
    """Requests that have ended and whose energy is not settled; the oldest beyond go without."""

    @property
    def longest_wait_s(self) -> float:
        """After which a request that has ended is settled with what there is."""
        return self.limits.longest_seconds + self.hold_s


def metering_settings(*, enabled: bool, node_port: int | None, node_path: str, max_watts: float) -> MeteringSettings:
    """Settings with what a command line may change; `max_watts` is of one accelerator."""
    return MeteringSettings(
        enabled=enabled,
        node_port=node_port,
        node_path=node_path,
        limits=CounterLimits(max_watts=max_watts, shortest_seconds=SHORTEST_INTERVAL_SECONDS),
    )
