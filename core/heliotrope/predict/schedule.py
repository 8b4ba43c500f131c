"""When to train, and on what: after enough new samples, soon after a drift or of new hardware, never in a hurry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from heliotrope.predict.drift import Drift
from heliotrope.predict.models import HardwareKey


class Occasion(StrEnum):
    """Why a training is due."""

    FIRST = "first"
    NEW_SAMPLES = "new-samples"
    NEW_HARDWARE = "new-hardware"
    """Enough samples came from a hardware that no training has seen."""
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """Thresholds."""

    first_after: int = 250
    """Samples before the first training."""
    every: int = 1_000
    """New samples between trainings."""
    after_drift: int = 200
    """Samples of a drifted hardware since its change; trained again at each doubling, up to `every`. So for a hardware
    that no training has seen."""
    min_interval_seconds: float = 30.0
    """Between the starts of two trainings; after a drift a third of it."""
    settled_after: int = 2_000
    """Samples since a change after which it is history and the drift is forgotten."""


DEFAULT = SchedulePolicy()
MAX_UNSEEN = 1_024
"""Kinds of hardware that are counted apart; more train with the rest."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """One training."""

    occasion: Occasion
    cuts: Mapping[HardwareKey, float] = field(default_factory=dict)
    """Samples of these hardwares from before these Unix seconds are untrue: `TrainingSet.without_before`."""


@dataclass(slots=True)
class _Drifted:
    since_unix_s: float
    samples: int
    next_at: int


class TrainingSchedule:
    """A state machine: told of samples, drifts and trainings, it says when the next training is due."""

    def __init__(self, policy: SchedulePolicy = DEFAULT) -> None:
        self._policy = policy
        self._new = 0
        self._trained = False
        self._last_start_s = -float("inf")
        self._drifted: dict[HardwareKey, _Drifted] = {}
        self._trained_on: set[HardwareKey] = set()
        self._unseen: dict[HardwareKey, int] = {}

    def sampled(self, hardware: HardwareKey) -> None:
        """A sample was remembered."""
        self._new += 1
        if hardware not in self._trained_on and (hardware in self._unseen or len(self._unseen) < MAX_UNSEEN):
            self._unseen[hardware] = self._unseen.get(hardware, 0) + 1
        drifted = self._drifted.get(hardware)
        if drifted is not None:
            drifted.samples += 1

    def drifted(self, drift: Drift) -> None:
        """A model no longer holds. The samples that showed it count as the first after the change."""
        known = self._drifted.get(drift.hardware)
        if known is None:
            self._drifted[drift.hardware] = _Drifted(drift.since_unix_s, 0, self._policy.after_drift)

    def due(self, now_s: float) -> TrainingPlan | None:
        """The training that should start now, if any. Monotonic seconds."""
        policy = self._policy
        waited = now_s - self._last_start_s
        cuts = {hardware: each.since_unix_s for hardware, each in self._drifted.items()}
        if waited >= policy.min_interval_seconds / 3.0 and any(d.samples >= d.next_at for d in self._drifted.values()):
            return TrainingPlan(Occasion.DRIFT, cuts)
        new_hardware = any(count >= policy.after_drift for count in self._unseen.values())
        if self._trained and new_hardware and waited >= policy.min_interval_seconds / 3.0:
            return TrainingPlan(Occasion.NEW_HARDWARE, cuts)
        if waited < policy.min_interval_seconds:
            return None
        if not self._trained:
            return TrainingPlan(Occasion.FIRST, cuts) if self._new >= policy.first_after else None
        return TrainingPlan(Occasion.NEW_SAMPLES, cuts) if self._new >= policy.every else None

    def started(self, now_s: float) -> None:
        """A training of the plan that was due has started."""
        self._last_start_s = now_s
        self._new = 0
        self._trained = True
        # One with few samples is as good as unseen: it keeps its count.
        known = [hardware for hardware, count in self._unseen.items() if count >= self._policy.after_drift]
        self._trained_on.update(known)
        for hardware in known:
            del self._unseen[hardware]
        for hardware, drifted in list(self._drifted.items()):
            if drifted.samples >= self._policy.settled_after:
                del self._drifted[hardware]
            elif drifted.samples >= drifted.next_at:
                drifted.next_at = drifted.samples + min(drifted.next_at, self._policy.every)
