"""Engines' KV events on their way to an index: sessions learn from them that a cache was cleared."""

from heliotrope_epp.datalayer.kv_event_wire import Cleared, Event
from heliotrope_epp.datalayer.kv_events import Sink
from heliotrope_epp.plugins.sessions.tracker import SessionTracker


class SessionSink:
    """Hands everything on to `index`. What is evicted block by block is the index's alone to know."""

    def __init__(self, index: Sink, sessions: SessionTracker) -> None:
        self._index = index
        self._sessions = sessions

    def kv_events(self, endpoint: str, events: list[Event]) -> None:
        """One batch, in order."""
        self._index.kv_events(endpoint, events)
        if any(isinstance(event, Cleared) for event in events):
            self._sessions.cache_lost(endpoint)

    def kv_lost(self, endpoint: str) -> None:
        """Events were missed; what was sent there still counts as believed."""
        self._index.kv_lost(endpoint)
