"""The books of energy: every millijoule that a counter rose by is in exactly one line.

A line is a pod, or the reason why it is nobody's. What a GPU draws waits until the kubelet is heard the next time: if
the pod that had it has it still, it is that pod's. A hand-over is split at the moment at which it is seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from heliotrope.engine.counters import CounterLimits, Refusal, rise
from heliotrope.units import MILLISECONDS_PER_SECOND
from heliotrope_agent.driver.interface import Device
from heliotrope_agent.pods.claims import ANYWHERE
from heliotrope_agent.telemetry.tenants import Payer, Tenancy


class Nobody(StrEnum):
    """Why energy is no pod's."""

    FREE = "free"
    """No container had the GPU."""
    SHARED = "shared"
    """Several pods had it or partitions of it, and nobody can tell their parts."""
    UNKNOWN = "unknown"
    """The kubelet was silent, the GPU changed hands while nobody looked, or a claim may be for this GPU or another."""


Line = Payer | Nobody


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the kubelet may be silent."""

    handover_s: float = 2.5
    """If a GPU has changed hands, and the last look is longer ago, what it drew in between is nobody's."""
    silence_s: float = 30.0
    """What a GPU draws after such a silence is nobody's, whoever has it then."""
    ended_s: float = 900.0
    """For how long a pod that has no GPU any more is kept in the books, so that it is read once more."""
    most_pods: int = 256
    """How many pods are kept in the books."""


@dataclass(slots=True)
class _Gpu:
    value: int | None = None
    """Of its counter; None: not read yet."""
    changed_s: float = 0.0
    doubted: bool = False
    """Whether its value is itself absurd; a fall right after it is the way back, which tells nothing."""
    line: Line = Nobody.UNKNOWN
    looked_s: float | None = None
    """When the kubelet was last heard; None: never."""
    waiting_millijoules: int = 0


@dataclass(slots=True)
class EnergyBooks:
    """Counters in, joules by GPU and by line out. All times are of one monotonic clock."""

    limits: CounterLimits = field(default_factory=CounterLimits)
    patience: Patience = field(default_factory=Patience)
    gpus: dict[str, int] = field(default_factory=dict)
    """mJ by UUID, of all lines together: what was counted and is in a line."""
    pods: dict[Payer, int] = field(default_factory=dict)
    """mJ by pod."""
    nobody: dict[tuple[str, Nobody], int] = field(default_factory=dict)
    """mJ by UUID and reason."""
    ended_millijoules: int = 0
    """Of pods that have left the books."""
    refused: dict[Refusal, int] = field(default_factory=dict)
    """Readings that could not be believed."""
    _state: dict[str, _Gpu] = field(default_factory=dict)
    _last_seen_s: dict[Payer, float] = field(default_factory=dict)

    def counter(self, uuid: str, millijoules: int | None, now_s: float) -> float | None:
        """Take a reading of a GPU's counter; None: it could not be read.

        Returns:
            The mean power in watts since the counter last changed; None if it has not, or cannot be believed.
        """
        if millijoules is None:
            return None
        gpu = self._state.setdefault(uuid, _Gpu())
        self.gpus.setdefault(uuid, 0)
        if gpu.value is None:
            gpu.value, gpu.changed_s = millijoules, now_s
            return None
        seconds = now_s - gpu.changed_s
        risen = rise(gpu.value, millijoules, seconds, self.limits)
        believed = 0 if gpu.doubted and risen.refusal is Refusal.RESET else risen.millijoules or 0
        gpu.doubted = risen.refusal is Refusal.ABSURD
        if risen.refusal is not None:
            self.refused[risen.refusal] = self.refused.get(risen.refusal, 0) + 1
        gpu.waiting_millijoules += believed
        if millijoules != gpu.value:
            gpu.value, gpu.changed_s = millijoules, now_s
        silent = gpu.looked_s is None or now_s - gpu.looked_s > self.patience.silence_s
        if silent:
            gpu.line = Nobody.UNKNOWN
            self._settle(uuid, gpu, Nobody.UNKNOWN)
        if risen.refusal is not None or not believed or seconds <= 0.0:
            return None
        return believed / MILLISECONDS_PER_SECOND / seconds

    def look(self, lines: Mapping[str, Line], now_s: float) -> None:
        """The kubelet has said who has which GPU; one that is missing is gone."""
        present: set[Payer] = set()
        for uuid, now in lines.items():
            gpu = self._state.setdefault(uuid, _Gpu())
            if isinstance(now, Payer):
                present.add(now)
            seen = gpu.looked_s is not None and now_s - gpu.looked_s <= self.patience.handover_s
            self._settle(uuid, gpu, gpu.line if now == gpu.line or seen else Nobody.UNKNOWN)
            gpu.line, gpu.looked_s = now, now_s
        for payer in present:
            self.pods.setdefault(payer, 0)
            self._last_seen_s[payer] = now_s
        self._forget(present, now_s)

    def _settle(self, uuid: str, gpu: _Gpu, line: Line) -> None:
        moved, gpu.waiting_millijoules = gpu.waiting_millijoules, 0
        if gpu.value is not None:
            self.gpus[uuid] += moved
        if isinstance(line, Payer):
            self.pods[line] = self.pods.get(line, 0) + moved
        elif moved:
            self.nobody[uuid, line] = self.nobody.get((uuid, line), 0) + moved

    def _forget(self, present: set[Payer], now_s: float) -> None:
        gone = [payer for payer in self.pods if payer not in present]
        gone.sort(key=lambda payer: self._last_seen_s.get(payer, now_s))
        surplus = len(self.pods) - self.patience.most_pods
        for i, payer in enumerate(gone):
            if i < surplus or now_s - self._last_seen_s.get(payer, now_s) > self.patience.ended_s:
                self.ended_millijoules += self.pods.pop(payer)
                self._last_seen_s.pop(payer, None)


def line_of(device: Device, tenancy: Tenancy) -> Line:
    """Whom a GPU's energy is booked on while this is who has it."""
    payers = {tenant.payer for tenant in tenancy.get(device.uuid, ())}
    if not payers:
        # A partition's id does not name its GPU.
        return Nobody.UNKNOWN if device.mig or ANYWHERE in tenancy else Nobody.FREE
    return payers.pop() if len(payers) == 1 and not device.mig else Nobody.SHARED
