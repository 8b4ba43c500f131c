"""How a process learns: paces, limits and places."""

from dataclasses import dataclass, field
from pathlib import Path

from heliotrope.predict.schedule import SchedulePolicy

TICK_S = 0.5
"""Between two looks at drift and at whether a training is due."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """When to train, how long it may take, and how often what was learned is saved."""

    schedule: SchedulePolicy = field(default_factory=SchedulePolicy)
    tick_s: float = TICK_S
    timeout_s: float = 300.0
    first_retry_s: float = 10.0
    longest_retry_s: float = 900.0
    snapshot_interval_s: float = 30.0
    """Between two writes of the window: a crash loses at most the samples of this time."""


@dataclass(frozen=True, slots=True)
class LearningSettings:
    """Of a picker."""

    state_dir: Path | None = None
    """What was learned is kept below; None: in memory."""
    trainer_url: str | None = None
    """Of a shared trainer; None: this picker trains for itself."""
    training: TrainingSettings = field(default_factory=TrainingSettings)


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """Of the trainer service."""

    host: str = "0.0.0.0"
    port: int = 8000
    """Samples in, models out."""
    metrics_port: int = 9090
    """Metrics and health, for those who may see but not change."""
    state_dir: Path | None = None
    max_body_bytes: int = 16 * 1024 * 1024
    grace_s: float = 10.0
    """After SIGTERM: how long calls in progress may take to end."""
    training: TrainingSettings = field(default_factory=TrainingSettings)
