"""How requests' energy is metered."""

from dataclasses import dataclass, field

from heliotrope.engine.counters import CounterLimits


@dataclass(frozen=True, slots=True)
class MeteringSettings:
    """Settings of a meter."""

    enabled: bool = True
    node_port: int | None = None
    """Port of the exporter on every node; None: counters are on the engines' own pages or nowhere."""
    node_path: str = "/metrics"
    tick_s: float = 0.2
    """Between looks at progress; longer, up to a second, while a look takes more than a twentieth of it."""
    hold_s: float = 3.0
    """How long work stays open to correction by what is learned later: first tokens, usage."""
    limits: CounterLimits = field(default_factory=lambda: CounterLimits(shortest_seconds=5.0))
    """Intervals of some seconds average out that work and energy are not read at the same instant (docs/energy.md)."""
    max_waiting: int = 20_000
    """Requests that have ended and whose energy is not settled; the oldest beyond go without."""

    @property
    def longest_wait_s(self) -> float:
        """After which a request that has ended is settled with what there is."""
        return self.limits.longest_seconds + self.hold_s
