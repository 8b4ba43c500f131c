"""What the control loop remembers of a GPU from one look to the next."""

import math
from dataclasses import dataclass, field, replace

from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_agent.control.reasons import Reason
from heliotrope_agent.pods.claims import PodName
from heliotrope_agent.state.records import Knob

_MAX_LOWERINGS = 1024


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a GPU is from what it was told."""

    above: int = 0
    """Readings in a row with a clock above its lock."""
    below: int = 0
    """Readings in a row with a clock below its lock under load, for no reason that the driver gives."""
    throttled: int = 0
    """Readings in a row with a clock below its lock that heat or power explain."""
    throttled_until_s: float = -math.inf
    confirmed: bool = False
    """Whether the lock was ever seen to hold."""
    lost: bool = False
    """Whether a setting has vanished and is to be made again."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU; times on the agent's clock."""

    changed_at_s: float = -math.inf
    """Last change that we made, putting back included."""
    lowered_at_s: tuple[float, ...] = ()
    """Times within the last hour at which we slowed it down or capped it."""
    verified_at_s: float = -math.inf
    """When we last knew whose it is."""
    drift: Drift = field(default_factory=Drift)
    reapplied_at_s: float = -math.inf
    """When a setting that had vanished was last made again."""
    foreign: frozenset[Knob] = frozenset()
    """Knobs that somebody else has set; they are left as found."""
    foreign_until_s: float = -math.inf
    foreign_pod: PodName | None = None
    """Whose it was then; the next pod starts anew."""
    failures: int = 0
    """Attempts in a row that failed."""
    retry_at_s: float = -math.inf
    problem: Reason | None = None
    """What the last attempt failed with."""
    unsupported: frozenset[Knob] = frozenset()
    """Knobs that the device lists levels of and refuses to turn, as A100s do with their memory clock."""
    stranded: bool = False
    """Whether an attempt failed and what it had done could not be undone: it has to be put back."""

    def changed(self, now_s: float, *, lowered: bool) -> "GpuMemory":
        """After a change that succeeded."""
        times = tuple(each for each in self.lowered_at_s if each > now_s - SECONDS_PER_HOUR)
        if lowered:
            times = (*times, now_s)[-_MAX_LOWERINGS:]
        return replace(
            self,
            changed_at_s=now_s,
            lowered_at_s=times,
            drift=Drift(),
            reapplied_at_s=now_s if self.drift.lost else self.reapplied_at_s,
            failures=0,
            retry_at_s=-math.inf,
            problem=None,
            stranded=False,
        )

    def released(self, now_s: float) -> "GpuMemory":
        """After everything was put back. What failed before is tried again no sooner for it."""
        return replace(self, changed_at_s=now_s, drift=Drift(), stranded=False)

    def without(self, knobs: frozenset[Knob], *, stranded: bool) -> "GpuMemory":
        """After the device has refused to turn knobs: they are left out from now on, and the rest need not wait."""
        return replace(self, unsupported=self.unsupported | knobs, stranded=self.stranded or stranded)

    def failed(self, now_s: float, problem: Reason, wait_s: float, *, stranded: bool) -> "GpuMemory":
        """After an attempt that failed."""
        return replace(
            self,
            failures=self.failures + 1,
            retry_at_s=now_s + wait_s,
            problem=problem,
            stranded=self.stranded or stranded,
        )

    def lowerings(self, now_s: float, within_s: float) -> int:
        """Times that it was slowed down or capped in the last `within_s` seconds."""
        return sum(each > now_s - within_s for each in self.lowered_at_s)
