"""To whom energy is credited: a request on the engines that prefill and decode it, or its images at an encoder."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliotrope_epp.metering.work import Work

if TYPE_CHECKING:
    from heliotrope_epp.metering.timeline import Timeline


@dataclass(slots=True)
class Drawn:
    """What one engine drew for a request, so far."""

    millijoules: int = 0
    idle_joules: float = 0.0
    host_joules: float = 0.0
    accelerator_seconds: float = 0.0

    def add(self, other: "Drawn") -> None:
        """Add what it drew for another part of the request."""
        self.millijoules += other.millijoules
        self.idle_joules += other.idle_joules
        self.host_joules += other.host_joules
        self.accelerator_seconds += other.accelerator_seconds


@dataclass(slots=True, eq=False)
class Credited(ABC):
    """Work of one request that engines' energy is shared out over. Times are monotonic."""

    folded: Work = field(init=False, default_factory=Work)
    """What of its work is past correction."""
    start_s: float = field(init=False, default=float("inf"))
    """Start of the first interval that it took part in; so for its end."""
    end_s: float = field(init=False, default=float("-inf"))
    drawn: dict["Timeline", Drawn] = field(init=False, default_factory=dict)
    """By engine."""

    @property
    @abstractmethod
    def ended_s(self) -> float | None:
        """When it was over; None: it goes on."""

    def drew(self, engine: "Timeline") -> Drawn:
        """What an engine drew for it so far, to be added to."""
        known = self.drawn.get(engine)
        if known is None:
            known = self.drawn[engine] = Drawn()
        return known
