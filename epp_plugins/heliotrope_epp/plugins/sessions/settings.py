"""How a picker follows sessions."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_MAX_SESSIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of one picker process."""

    max_sessions: int = DEFAULT_MAX_SESSIONS
    """Remembered at once; the longest unheard one goes first."""
    gate: Path | None = None
    """File of a trained gate; None: sessions are kept by the price of recomputation alone."""
