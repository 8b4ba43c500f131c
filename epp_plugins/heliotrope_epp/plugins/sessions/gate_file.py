"""The gate that a picker uses: from a file, or off with a reason."""

import logging
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from heliotrope.cache.gate import OFF, Gate
from heliotrope.errors import InvalidInputError

_log = logging.getLogger(__name__)


class GateState(StrEnum):
    """Where a picker's gate stands."""

    NONE = "none"
    """No file was given."""
    ON = "on"
    NOT_VALIDATED = "not-validated"
    """δ is infinite: held-out sessions emitted less without it."""
    UNUSABLE = "unusable"
    """The file is missing, damaged or of another version."""


@dataclass(frozen=True, slots=True)
class LoadedGate:
    """A gate, which is off in every state but `ON`."""

    gate: Gate = OFF
    state: GateState = GateState.NONE
    problem: str | None = None
    """For the list of problems; None: there is none."""


NO_GATE = LoadedGate()


def load_gate(path: Path | None) -> LoadedGate:
    """Read a gate's file; whatever is wrong with it turns the gate off and says why, and the picker serves on."""
    if path is None:
        return NO_GATE
    try:
        gate = Gate.load(path)
    except (OSError, InvalidInputError) as error:
        problem = f"session gate {path}: {error}; sessions are kept by the price of recomputation alone"
        _log.warning("session gate not used", extra={"fields": {"problem": problem}})
        return LoadedGate(OFF, GateState.UNUSABLE, problem)
    if not gate.on:
        _log.info("session gate is off: no threshold held on held-out sessions")
        return LoadedGate(OFF, GateState.NOT_VALIDATED)
    fields = {"gate": gate.digest[:12], "threshold": gate.threshold, "validated_on": gate.validated_on}
    _log.info("session gate", extra={"fields": fields})
    return LoadedGate(gate, GateState.ON)
