"""Says after each turn of a session how long its prefix is worth keeping where it is.

No released engine takes such a wish for one prefix (docs/kv-actions.md), so it is told in metrics only; what it learns
of the time between turns is kept in memory, per model, and bounded.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite, isnan

from heliotrope.cache.gaps import GapDistribution, of_session
from heliotrope.cache.retention import Retention, lru_seconds, retention
from heliotrope.cache.rules import KvRules
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import LlmRequest


class Advice(StrEnum):
    """What came of one turn's prefix."""

    HOLD = "hold"
    """Worth holding for longer than the engine keeps it by itself."""
    ENGINE_KEEPS = "engine-keeps"
    """Worth keeping, and the engine does for as long as that."""
    RELEASE = "release"
    """Its memory is worth more than its return."""
    UNKNOWN = "unknown"
    """Load or step model of the endpoint are not known."""


@dataclass(frozen=True, slots=True)
class RetentionCounts:
    """Counts alone."""

    advice_total: dict[str, int]
    hold_seconds_total: float
    """Of those to hold: what was advised."""
    saved_joules_total: float
    """Expected, of those to hold or keep."""
    classes: int
    forgotten_classes_total: int


class RetentionAdvisor:
    """Lives on the loop's thread; `rules` gives the policy's KV rules of the moment, None without a policy."""

    def __init__(self, rules: Callable[[], KvRules | None], clock: Clock, stale_after_s: float) -> None:
        self._rules = rules
        self._clock = clock
        self._stale_after_s = stale_after_s
        self._gaps = GapDistribution()
        self._advice: Counter[Advice] = Counter()
        self._hold_seconds = self._saved_joules = 0.0

    def turned(self, request: LlmRequest) -> None:
        """A turn has come: the time since the last one teaches when others will."""
        view = None if request.session is None else request.session.view
        if view is not None and isfinite(view.idle_seconds):
            self._gaps.returned(request.model, view.idle_seconds, self._clock.monotonic())

    def ended(self, request: LlmRequest, state: EndpointState, history_tokens: int) -> Retention | None:
        """A turn of a session has ended well, and left so many tokens there; None where nothing is to be decided."""
        rules, session = self._rules(), request.session
        if session is None or rules is None or rules.longest_retention_seconds <= 0.0:
            return None
        now_s = self._clock.monotonic()
        self._gaps.ended(request.model, now_s)
        advised = self._advised(request, state, float(history_tokens), rules, now_s)
        advice = _advice(advised)
        self._advice[advice] += 1
        if advised is not None and advice in (Advice.HOLD, Advice.ENGINE_KEEPS):
            self._saved_joules += advised.saved_joules
        if advised is not None and advice is Advice.HOLD:
            self._hold_seconds += advised.seconds
        return advised

    def counts(self) -> RetentionCounts:
        """For metrics and debugging."""
        return RetentionCounts(
            {advice.value: self._advice[advice] for advice in Advice},
            self._hold_seconds,
            self._saved_joules,
            len(self._gaps),
            self._gaps.forgotten_total,
        )

    def _advised(
        self, request: LlmRequest, state: EndpointState, tokens: float, rules: KvRules, now_s: float
    ) -> Retention | None:
        engine, load = state.traits.engine, state.load(now_s, self._stale_after_s)
        if engine is None:
            return None
        of_class = self._gaps.times(request.model)
        view = None if request.session is None else request.session.view
        times = of_class if view is None else of_session(of_class, view.mean_gap_seconds, view.turns - 1)
        decoded = load.running / max(float(engine.decode_seconds(load.running, load.kv_tokens)), 1e-6)
        lru = lru_seconds(load.kv_tokens, load.kv_capacity_tokens, load.recent_prompt_tokens_per_second + decoded)
        return retention(engine, tokens, times, of_class, lru, rules.longest_retention_seconds)


def _advice(advised: Retention | None) -> Advice:
    if advised is None or isnan(advised.seconds):
        return Advice.UNKNOWN
    if advised.seconds <= 0.0:
        return Advice.RELEASE
    return Advice.HOLD if advised.needs_holding else Advice.ENGINE_KEEPS
