"""A request as a turn of its session. It holds no text and no name."""

from dataclasses import dataclass

from heliotrope.cache.sessions import SessionView
from heliotrope_epp.plugins.sessions.identity import Identity


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """Who the request belongs to, and what was known of that session when it came."""

    identity: Identity
    view: SessionView | None = None
    """None: no earlier turn is known."""
