"""What metrics and the debug page say of sessions: counts and the gate's state, never a name."""

import json
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.epp.plugins.builders import request

from heliotrope.cache.session_key import SessionKeys
from heliotrope.cache.session_rules import SessionRules
from heliotrope.cache.sessions import Sessions
from heliotrope_epp.clock import Clock
from heliotrope_epp.parsers.session_hints import SessionHints
from heliotrope_epp.plugins.sessions.gate_file import NO_GATE, GateState, LoadedGate
from heliotrope_epp.plugins.sessions.identity import Named, Scope
from heliotrope_epp.plugins.sessions.tracker import SessionTracker
from heliotrope_epp.telemetry.sessions import SessionCollector, sessions_document


def used() -> SessionTracker:
    """Room for two sessions, three that came, and a name that was none."""
    tracker = SessionTracker(Sessions(2), SessionKeys(), SessionRules, Clock(monotonic=lambda: 1.0))
    for name in ("name-1", "name-2", "name-3", "no name"):
        turn = tracker.turn(Named({"x-session-id": name}.get, SessionHints(), b"user\nhi", Scope("tenant-1", "m")))
        tracker.routed(replace(request(), session=turn), "a")
    return tracker


def test_counts() -> None:
    registry = CollectorRegistry()
    registry.register(SessionCollector(used().counts, LoadedGate(state=GateState.UNUSABLE, problem="cut off")))
    value = registry.get_sample_value
    assert value("heliotrope_sessions") == 2
    assert value("heliotrope_session_capacity") == 2
    assert value("heliotrope_session_evictions_total", {"reason": "capacity"}) == 2
    assert value("heliotrope_session_evictions_total", {"reason": "silence"}) == 0
    assert value("heliotrope_session_identities_total", {"source": "header"}) == 3
    assert value("heliotrope_session_identities_total", {"source": "prefix"}) == 1
    assert value("heliotrope_session_refused_names_total") == 1
    assert value("heliotrope_session_gate", {"state": "unusable"}) == 1
    assert value("heliotrope_session_gate", {"state": "on"}) == 0
    assert b"name-" not in generate_latest(registry)


def test_the_debug_page_has_counts_alone() -> None:
    document = sessions_document(used().counts(), NO_GATE)
    assert document["sessions"] == 2
    assert document["evicted_total"] == {"capacity": 2, "silence": 0}
    assert document["gate"] == {
        "state": "none",
        "digest": None,
        "threshold": None,
        "validated_on_sessions": 0,
        "problem": None,
    }
    text = json.dumps(document)
    assert "name-" not in text
    assert "tenant-1" not in text
