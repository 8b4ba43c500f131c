"""What a decision says of the session that its request belongs to."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Movement(StrEnum):
    """What became of a session with this turn."""

    NEW = "new"
    """Nothing is known of earlier turns."""
    STAYED = "stayed"
    """The policy's own choice is where the last turn was."""
    KEPT = "kept"
    """The policy's choice was another endpoint; the session was kept where it was."""
    MOVED = "moved"


class Because(StrEnum):
    """Why; a label of metrics, so there are few."""

    FIRST = "first turn"
    CHOSEN = "chosen anyway"
    PIN = "pinned by the policy"
    GATE = "the gate expects more from staying"
    HELD_OUT = "held out: blind to carbon and sessions"
    GONE = "previous endpoint is gone or not offered"
    INFEASIBLE = "previous endpoint breaks a constraint"
    NO_CACHE = "previous endpoint caches nothing of it any more"
    MODE_OFF = "the policy turns the gate off"
    GATE_OFF = "no validated gate"
    GATE_UNKNOWN = "the gate gave no value"
    WORTH_IT = "the gate expects no more from staying"


@dataclass(frozen=True, slots=True)
class SessionVerdict:
    """What a decision says of the session that the request belongs to."""

    movement: Movement
    because: Because
    turns: int
    """Before this one; 0: a new session."""
    previous_endpoint: str | None
    history_tokens: int
    identified_by: str = ""
    """What named the session, never the name."""
    gate_value: float | None = None
    """What staying is expected to save over this turn and the next; None: the gate was not asked or knew nothing."""
    gate_threshold: float | None = None
    """δ; None: the gate was not asked."""

    def document(self) -> dict[str, Any]:
        """Plain data, for explanations."""
        return {
            "movement": self.movement.value,
            "because": self.because.value,
            "turns": self.turns,
            "previous_endpoint": self.previous_endpoint,
            "history_tokens": self.history_tokens,
            "identified_by": self.identified_by,
            "gate_value": self.gate_value,
            "gate_threshold": self.gate_threshold,
        }
