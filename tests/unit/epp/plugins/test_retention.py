"""What the picker advises after a turn, and what it learns between turns."""

from dataclasses import replace
from math import nan

from prometheus_client import CollectorRegistry
from tests.unit.epp.plugins.builders import ENGINE, NOW_S, request, state

from heliotrope.cache.action import KvAction
from heliotrope.cache.rules import KvRules
from heliotrope.cache.session_key import IdentitySource
from heliotrope.cache.sessions import SessionView
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.endpoint import EngineMetrics, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.retention import RetentionAdvisor
from heliotrope_epp.plugins.sessions.identity import Identity
from heliotrope_epp.plugins.sessions.turn import SessionTurn
from heliotrope_epp.telemetry.kv import KvCollector


def turn(idle_seconds: float, turns: int = 5) -> LlmRequest:
    view = SessionView(turns, "default/e", 4_000, idle_seconds, idle_seconds)
    return replace(request(), session=SessionTurn(Identity(IdentitySource.HEADER, b"k"), view))


def served(kv_usage: float, prompt_tokens_per_second: float) -> EndpointState:
    """An endpoint of which two scrapes are known."""
    at = state("e")
    for age_s, total in ((2.0, 0.0), (1.0, prompt_tokens_per_second), (0.0, 2.0 * prompt_tokens_per_second)):
        at.scraped(
            EngineMetrics(
                NOW_S - age_s,
                running=20.0,
                waiting=0.0,
                kv_usage=kv_usage,
                block_size=16,
                num_blocks=20_000,
                prompt_tokens_total=total,
                computed_prompt_tokens_total=total,
            )
        )
    return at


class Bench:
    def __init__(self, rules: KvRules | None = None) -> None:
        self.rules: KvRules | None = rules or KvRules()
        self.advisor = RetentionAdvisor(lambda: self.rules, Clock(monotonic=lambda: NOW_S), 5.0)

    def advice(self) -> dict[str, int]:
        return {name: count for name, count in self.advisor.counts().advice_total.items() if count}


def test_quick_sessions_are_held_where_memory_is_short_and_slow_ones_are_not() -> None:
    bench, full = Bench(), served(0.98, 20_000.0)
    for _ in range(60):
        bench.advisor.turned(turn(600.0))
    held = bench.advisor.ended(turn(1.5, turns=30), full, 4_000)
    assert held is not None
    assert held.needs_holding
    assert held.lru_seconds < 1.0
    released = bench.advisor.ended(turn(3_000.0, turns=30), full, 4_000)
    assert released is not None
    assert released.seconds < held.seconds
    assert bench.advisor.counts().hold_seconds_total >= held.seconds


def test_an_empty_memory_keeps_by_itself() -> None:
    bench = Bench()
    kept = bench.advisor.ended(turn(5.0), served(0.05, 50.0), 4_000)
    assert kept is not None
    assert kept.seconds > 0.0
    assert not kept.needs_holding
    assert bench.advice() == {"engine-keeps": 1}


def test_nothing_is_advised_without_a_policy_that_retains_or_without_a_session() -> None:
    bench, at = Bench(), served(0.5, 100.0)
    assert bench.advisor.ended(request(), at, 4_000) is None
    bench.rules = KvRules(longest_retention_seconds=0.0)
    assert bench.advisor.ended(turn(5.0), at, 4_000) is None
    bench.rules = None
    assert bench.advisor.ended(turn(5.0), at, 4_000) is None
    assert bench.advice() == {}


def test_unknown_load_and_unknown_engines_are_said() -> None:
    bench = Bench(KvRules(allowed=frozenset({KvAction.RECOMPUTE})))
    bench.advisor.ended(turn(5.0), state("unscraped"), 4_000)
    no_engine = EndpointState(served(0.5, 100.0).endpoint, Traits(region="r"))
    bench.advisor.ended(turn(5.0), no_engine, 4_000)
    assert bench.advice() == {"unknown": 2}
    assert ENGINE is not None


def test_a_first_turn_and_one_that_overlaps_teach_no_gap() -> None:
    bench = Bench()
    bench.advisor.turned(request())
    bench.advisor.turned(turn(nan))
    assert bench.advisor.counts().classes == 0
    bench.advisor.turned(turn(3.0))
    assert bench.advisor.counts().classes == 1


def test_metrics_of_advice() -> None:
    bench, registry = Bench(), CollectorRegistry()
    registry.register(KvCollector([], bench.advisor.counts))
    bench.advisor.ended(turn(5.0), served(0.05, 50.0), 4_000)
    assert registry.get_sample_value("heliotrope_kv_retentions_total", {"advice": "engine-keeps"}) == 1.0
    joules = registry.get_sample_value("heliotrope_kv_retention_expected_joules_total")
    assert joules is not None
    assert joules > 0.0
