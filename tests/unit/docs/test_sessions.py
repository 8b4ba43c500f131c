"""docs/sessions.md names what there is."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from heliotrope.cache.session_key import MAX_NAME_LENGTH, SessionKeys
from heliotrope.cache.session_rules import SessionMode, SessionRules
from heliotrope.cache.sessions import Sessions
from heliotrope.decide.verdict import Because, Movement
from heliotrope_epp.clock import Clock
from heliotrope_epp.plugins.sessions.gate_file import NO_GATE, GateState
from heliotrope_epp.plugins.sessions.identity import SESSION_HEADERS
from heliotrope_epp.plugins.sessions.settings import DEFAULT_MAX_SESSIONS
from heliotrope_epp.plugins.sessions.tracker import MAX_RESPONSES, SessionTracker
from heliotrope_epp.telemetry.metrics import Metrics
from heliotrope_epp.telemetry.sessions import SessionCollector

PAGE = (Path(__file__).parents[3] / "docs" / "sessions.md").read_text(encoding="utf-8")


def test_modes_movements_reasons_states_and_headers_are_named() -> None:
    for word in (*SessionMode, *Movement, *Because, *GateState, *SESSION_HEADERS):
        assert f"`{word}`" in PAGE, word


def test_numbers_are_the_codes() -> None:
    assert f"1 to {MAX_NAME_LENGTH} visible ASCII" in PAGE
    assert f"`--max-sessions` ({DEFAULT_MAX_SESSIONS:,})" in PAGE
    assert f"newest {MAX_RESPONSES:,}" in PAGE


def test_every_metric_of_sessions_is_named_and_no_other() -> None:
    registry = CollectorRegistry()
    tracker = SessionTracker(Sessions(1), SessionKeys(), SessionRules, Clock())
    Metrics(registry)
    registry.register(SessionCollector(tracker.counts, NO_GATE))
    there = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in registry.collect()
        if family.name.startswith("heliotrope_session")
    }
    assert set(re.findall(r"`(heliotrope_session\w*)", PAGE)) == there
