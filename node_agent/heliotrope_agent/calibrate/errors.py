"""Errors of a calibration: one class per case that somebody handles."""

import signal
from pathlib import Path

from heliotrope_agent.errors import AgentError


class CalibrationError(AgentError):
    """The calibration cannot go on; what was measured is kept."""


class EngineUnreachableError(CalibrationError):
    """The engine does not answer, or answers what no engine would."""


class NodeInUseError(CalibrationError):
    """Somebody else uses the engine or the GPUs: nothing can be measured beside them."""


class NoEnergyCounterError(CalibrationError):
    """A GPU counts no energy, so there is nothing to measure it with."""


class RecordError(CalibrationError):
    """The file of raw measurements cannot be read, written or gone on with."""


class StoppedError(CalibrationError):
    """A signal stopped it; what was measured is kept."""

    def __init__(self, number: signal.Signals, raw: Path) -> None:
        super().__init__(
            f"stopped by {number.name}; the GPUs are as they were before, and what was measured is in {raw}: "
            "the same command with --resume goes on from there"
        )
        self.number = number
