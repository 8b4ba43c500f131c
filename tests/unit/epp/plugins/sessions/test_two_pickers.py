"""A session whose turns meet two pickers: to the second it is new, and its home is found through the prefix index."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.support.gates import trained_gate
from tests.unit.epp.plugins.builders import NOW_S, NOW_UNIX_S, Carbon, metrics, request, state

from heliotrope.cache.gate import Gate
from heliotrope.cache.session_key import SessionKeys
from heliotrope.cache.session_rules import SessionMode, SessionRules
from heliotrope.cache.sessions import Sessions
from heliotrope.decide.decision import Decision
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.verdict import Movement
from heliotrope_epp.clock import Clock
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.kv_event_wire import Stored
from heliotrope_epp.parsers.session_hints import SessionHints
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.plugins.producers.precise_prefix_cache import PrecisePrefixCacheProducer
from heliotrope_epp.plugins.sessions.identity import Named, Scope
from heliotrope_epp.plugins.sessions.tracker import SessionTracker

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: precise-prefix-cache-producer}, {type: carbon-picker}]
"""
POLICY = DecisionPolicy("p", ttft_slo_seconds=10.0, tpot_slo_seconds=1.0, sessions=SessionRules(SessionMode.LEARNED))
HISTORY = tuple(range(4_096))
NORTH = state("north-0", region="north", metrics=metrics())
SOUTH = state("south-0", region="south", metrics=metrics())


class Picker:
    """A pipeline with its own index and its own sessions."""

    def __init__(self, gate: Gate, south_g_per_kwh: float) -> None:
        carbon = Carbon(POLICY, north=300.0, south=south_g_per_kwh)
        context = PluginContext(carbon=carbon, gate=gate)
        self.pipeline = Pipeline(load(CONFIG, builtin_registry(), context).scheduling, context)
        self.tracker = SessionTracker(Sessions(10), SessionKeys(), lambda: POLICY.sessions, Clock(lambda: NOW_S))

    def told(self, tokens: Sequence[int]) -> None:
        """The engine in the north says that it has stored these."""
        (index,) = [p for p in self.pipeline.producers if isinstance(p, PrecisePrefixCacheProducer)]
        hashes = tuple(range(1, len(tokens) // 16 + 1))
        index.kv_events(NORTH.endpoint.key, [Stored(hashes, None, tuple(tokens), 16, "GPU", None, ())])

    def turn(self, tokens: Sequence[int]) -> Decision:
        prompt = np.array(tokens, dtype="<u4").tobytes()
        named = Named({"x-session-id": "travels"}.get, SessionHints(), prompt, Scope("", "m"))
        asked = replace(
            request(prompt),
            prompt_tokens=len(tokens),
            token_ids=True,
            expected_output_tokens=16.0,
            session=self.tracker.turn(named),
        )
        result = self.pipeline.run(asked, [NORTH, SOUTH], NOW_S, NOW_UNIX_S)
        chosen = result.pick.options[0]
        self.pipeline.routed(asked, chosen.state)
        self.tracker.routed(asked, chosen.key)
        self.tracker.ended(asked, len(tokens) + 16, b"")
        assert result.decision is not None
        return result.decision


def movement(decision: Decision) -> Movement:
    assert decision.session is not None
    return decision.session.movement


@pytest.fixture(scope="module")
def gate() -> Gate:
    return trained_gate(0.25)


def test_its_home_is_found_through_the_prefix_index(gate: Gate) -> None:
    first, second = Picker(gate, 400.0), Picker(gate, 250.0)
    begun = first.turn(HISTORY)
    assert (begun.endpoint, movement(begun)) == ("default/north-0", Movement.NEW)
    for picker in (first, second):
        picker.told(HISTORY)
    longer = (*HISTORY, *range(64))
    met = second.turn(longer)
    assert movement(met) is Movement.NEW
    assert met.endpoint == "default/north-0", "a little cleaner power is not worth computing the history again"
    again = second.turn((*longer, *range(64)))
    assert (again.endpoint, movement(again)) == ("default/north-0", Movement.STAYED)


def test_without_an_index_it_is_placed_like_a_first_turn(gate: Gate) -> None:
    second = Picker(gate, 250.0)
    met = second.turn((*HISTORY, *range(64)))
    assert (met.endpoint, movement(met)) == ("default/south-0", Movement.NEW)


def test_the_gate_acts_on_what_a_picker_has_seen_itself(gate: Gate) -> None:
    picker = Picker(gate, 1.0)
    picker.told(HISTORY)
    moved = picker.turn((*HISTORY, *range(64)))
    assert (moved.endpoint, movement(moved)) == ("default/south-0", Movement.NEW)
