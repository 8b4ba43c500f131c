"""What a policy says about sessions."""

from dataclasses import dataclass
from enum import StrEnum


class SessionMode(StrEnum):
    """What decides whether a session moves away from its cache."""

    OFF = "Off"
    """Only the price of recomputation speaks against a move."""
    LEARNED = "Learned"
    """A gate also blocks moves that are likely to be reversed."""
    PIN = "Pin"
    """A session stays while its endpoint is feasible."""


@dataclass(frozen=True, slots=True)
class SessionRules:
    """How sessions are kept together."""

    mode: SessionMode = SessionMode.OFF
    forget_after_seconds: float = 3600.0
    """Silence after which a session is forgotten."""
