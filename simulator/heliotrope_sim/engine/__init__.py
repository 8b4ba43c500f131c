"""The continuous-batching engine as a deterministic state machine: no clock, no I/O, no asyncio."""

from heliotrope_sim.engine.loop import Engine, Phase, SleepLevel, StepResult
from heliotrope_sim.engine.sequence import Request, Sequence, Status

__all__ = ["Engine", "Phase", "Request", "Sequence", "SleepLevel", "Status", "StepResult"]
