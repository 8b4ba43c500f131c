"""The spans of a decision: what was compared, how long each step took, what the destination is expected to draw."""

from dataclasses import dataclass

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan

from heliotrope.decide.candidates import RegionView
from heliotrope.decide.compared import Comparison, Planned
from heliotrope.decide.decision import Decision
from heliotrope.decide.quality import ModelChoice, ModelVerdict
from heliotrope.decide.verdict import SessionVerdict
from heliotrope.engine.model import EngineModel
from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.plugins.scheduled import ProfileResult, ScheduleResult
from heliotrope_epp.tracing import attributes as a
from heliotrope_epp.tracing.spans import Interval, SpanMaker, Values

MAX_TOP_ENDPOINTS = 5
"""Of the scored endpoints, as llm-d does."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What spans may say of a parsed request. Never its text."""

    request_id: str
    model: str
    streaming: bool
    prompt_tokens: int
    max_output_tokens: int | None
    expected_output_tokens: float
    media_count: int = 0
    media_unknown: int = 0
    held_seconds: float = 0.0

    def names(self) -> Values:
        """What every span of the decision carries, as in llm-d's picker."""
        return {a.MODEL: self.model or None, a.REQUEST_ID: self.request_id or None}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request was sent."""

    endpoint: str
    provider: str
    region: str | None
    variant: str | None
    engine: EngineModel | None
    cached_tokens: float

    def names(self) -> Values:
        """Endpoint and what claims it."""
        return {a.ENDPOINT: self.endpoint, a.REGION: self.region, a.VARIANT: self.variant}


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision on a recorded request. `offset_s` leads from its monotonic instants to Unix seconds."""

    parent: TraceContext
    offset_s: float
    started_s: float
    ended_s: float
    facts: Facts | None
    """None: the body was not understood."""
    result: ScheduleResult | None
    """None: it was refused before anything was scheduled."""
    destination: Destination | None
    arm: str | None
    rejection: str | None
    """The refusal's reason."""

    @property
    def span_count(self) -> int:
        """The decision, and per profile its run with filters, scoring, scorers and pick."""
        profiles = () if self.result is None else self.result.profiles.values()
        return 1 + sum(2 if not r.options else 3 + bool(r.columns) + len(r.columns) for r in profiles)

    def spans(self, make: SpanMaker) -> list[ReadableSpan]:
        """The decision and what ran in it."""
        span, node = make.make(
            a.ORCHESTRATION,
            self.parent,
            self._interval(self.started_s, self.ended_s),
            self._values(),
            error=self.rejection,
        )
        spans = [span]
        if self.result is not None:
            for result in self.result.profiles.values():
                spans += self._profile(make, node, result)
        return spans

    def _interval(self, start_s: float, end_s: float) -> Interval:
        return Interval(start_s + self.offset_s, end_s + self.offset_s)

    def _profile(self, make: SpanMaker, parent: TraceContext, result: ProfileResult) -> list[ReadableSpan]:
        t, names = result.times, {} if self.facts is None else self.facts.names()
        end_s = t.picked_s if result.options else t.filtered_s
        profile = {a.PROFILE: result.profile.name}
        run, node = make.make(a.PROFILE_RUN, parent, self._interval(t.started_s, end_s), profile)
        filters = {a.FILTER_CANDIDATES: result.considered, a.FILTER_LEFT: len(result.options), **names}
        spans = [run, make.make(a.FILTERS, node, self._interval(t.started_s, t.filtered_s), filters)[0]]
        if not result.options:
            return spans
        if result.columns:
            spans += self._scoring(make, node, result)
        pick = {**_picked(result), **names}
        picking_s = t.scored_s[-1] if t.scored_s else t.filtered_s
        return [*spans, make.make(a.PICK, node, self._interval(picking_s, t.picked_s), pick)[0]]

    def _scoring(self, make: SpanMaker, parent: TraceContext, result: ProfileResult) -> list[ReadableSpan]:
        t, count = result.times, len(result.options)
        scoring = {a.SCORING_CANDIDATES: count, a.SCORER_COUNT: len(result.columns)}
        span, node = make.make(a.SCORING, parent, self._interval(t.filtered_s, t.scored_s[-1]), scoring)
        spans, start_s = [span], t.filtered_s
        for weighted, column, end_s in zip(result.profile.scorers, result.columns, t.scored_s, strict=True):
            known = column[np.isfinite(column)]
            values: Values = {
                a.SCORER_TYPE: weighted.type_name,
                a.SCORER_NAME: weighted.name,
                a.SCORER_WEIGHT: float(weighted.weight),
                a.SCORER_CANDIDATES: count,
                a.SCORER_SCORED: len(known),
                a.SCORE_MAX: float(known.max()) if len(known) else None,
                a.SCORE_AVG: float(known.mean()) if len(known) else None,
            }
            name = a.SCORER.name.replace("<type>", weighted.type_name)
            spans.append(make.make(a.SCORER, node, self._interval(start_s, end_s), values, name=name)[0])
            start_s = end_s
        return spans

    def _prefill_endpoint(self, destination: Destination) -> str:
        prefill = None if self.result is None else self.result.pick.prefill
        return destination.endpoint if prefill is None else prefill.key

    def _encode_endpoints(self) -> tuple[str, ...] | None:
        encoders = () if self.result is None else self.result.pick.encoders
        return tuple(option.key for option in encoders) or None

    def _values(self) -> Values:
        facts, destination = self.facts, self.destination
        values: dict[a.Attribute, a.Value | None] = {a.ARM: self.arm, a.REJECTION: self.rejection}
        if facts is not None:
            values |= {
                **facts.names(),
                a.TARGET_MODEL: facts.model or None,
                a.PROMPT_TOKENS: facts.prompt_tokens,
                a.EXPECTED_OUTPUT_TOKENS: float(facts.expected_output_tokens),
            }
            if facts.held_seconds:
                values[a.HELD_SECONDS] = facts.held_seconds
            if facts.media_count:
                values |= {a.MEDIA_COUNT: facts.media_count, a.MEDIA_UNKNOWN: facts.media_unknown}
        if destination is not None:
            values |= {
                **destination.names(),
                a.ENCODE_ENDPOINTS: self._encode_endpoints(),
                a.PREFILL_ENDPOINT: self._prefill_endpoint(destination),
                a.DECODE_ENDPOINT: destination.endpoint,
                a.CACHED_TOKENS: float(destination.cached_tokens),
            }
        if self.result is not None:
            values[a.REASON] = self.result.pick.reason or None
            if self.result.models is not None:
                values |= _of_models(self.result.models, self.result.model_choice)
            if self.result.decision is not None:
                values[a.ENFORCED] = self.result.enforced
                plan = None if destination is None else self.result.planned(destination.endpoint)
                values |= _of_decision(self.result.decision, plan)
            if self.result.comparison is not None:
                values |= _unfollowed(self.result.comparison)
        cached = values.get(a.CACHED_TOKENS)
        if facts is not None and destination is not None and isinstance(cached, float):
            values |= _avoided(facts.prompt_tokens, cached, destination)
        return values


def _of_models(verdict: ModelVerdict, choice: ModelChoice | None) -> Values:
    values: dict[a.Attribute, a.Value | None] = {
        a.MODEL_GROUP: verdict.group.name,
        a.MODEL_LEAST_QUALITY: verdict.least_quality,
        a.MODEL_PREDICTOR: verdict.prediction.source.value,
        a.MODEL_TASK: verdict.prediction.task,
        a.ROUTER_JOULES: verdict.prediction.router_joules,
    }
    if choice is None:
        return values
    effort = choice.judged.effort
    return values | {
        a.TARGET_MODEL: choice.model,
        a.MODEL_DOWNGRADED: choice.downgraded,
        a.MODEL_REASON: choice.why,
        a.MODEL_QUALITY: choice.judged.quality,
        a.REASONING_EFFORT: None if effort is None else effort.name.lower(),
    }


def _picked(result: ProfileResult) -> Values:
    keys = [option.key for option in result.options]
    top = sorted(range(len(keys)), key=lambda i: (-result.scores[i], keys[i]))[:MAX_TOP_ENDPOINTS]
    return {
        a.PICKER: result.profile.picker_name,
        a.PICKER_CANDIDATES: len(keys),
        a.TOP_ENDPOINTS: tuple(keys[i] for i in top),
        a.TOP_SCORES: tuple(float(result.scores[i]) for i in top),
    }


def _avoided(prompt_tokens: int, cached_tokens: float, destination: Destination) -> Values:
    """What a prefill of the whole prompt would draw and take more than one of its uncached part."""
    engine = destination.engine
    if engine is None:
        return {}
    whole = float(prompt_tokens)
    uncached = min(max(whole - cached_tokens, 1.0), whole)
    return {
        a.AVOIDED_JOULES: float(engine.prefill_joules(whole)) - float(engine.prefill_joules(uncached)),
        a.AVOIDED_SECONDS: float(engine.prefill_seconds(whole)) - float(engine.prefill_seconds(uncached)),
    }


def _unfollowed(comparison: Comparison) -> Values:
    """What the policy would have done where something else was."""
    plan = comparison.advised
    if plan is None:
        return {a.ADVISED_ENDPOINT: None}
    return {
        a.ADVISED_ENDPOINT: plan.endpoint,
        a.ADVISED_PREFILL: plan.prefill_endpoint,
        a.ADVISED_ENCODE: plan.encode_endpoints or None,
        a.ADVISED_KV_ACTION: plan.kv_action.value,
        a.ADVISED_KV_SOURCE: plan.kv_source,
        a.ADVISED_SAME: comparison.same,
        a.MODELLED_JOULES: comparison.saved("energy_joules"),
        a.MODELLED_GRAMS: comparison.saved("grams_co2e"),
    }


def _of_decision(decision: Decision, plan: Planned | None) -> Values:
    provenance = decision.policy.provenance
    values: dict[a.Attribute, a.Value | None] = {
        a.POLICY: decision.policy.name,
        a.POLICY_REVISION: decision.policy.revision or None,
        a.SERVICE_CLASS: provenance.service_class,
        a.DEMAND_EVENT: provenance.event,
        a.REFUSED_OVERRIDES: tuple(f"{override.value}: {reason}" for override, reason in provenance.refused),
        a.RELAXED: tuple(limit.value for limit in decision.relaxed),
        a.OUTCOME: decision.outcome.value,
        a.DECIDED_BY: decision.decided_by,
        a.DROPPED_TERMS: tuple(f"{term.value}: {reason}" for term, reason in decision.dropped_terms.items()),
        a.CANDIDATES: len(decision.candidates),
        a.ADVISED_ENDPOINT: decision.endpoint,
    }
    if decision.session is not None:
        values |= _session(decision.session)
    if plan is None:
        return values
    candidates, e, row = plan.candidates, plan.estimates, plan.row
    values |= {
        a.CACHED_TOKENS: candidates.reused_tokens(row),
        a.KV_ACTION: candidates.kv_actions[row].value,
        a.KV_SOURCE: candidates.kv_sources[row],
        a.KV_TRANSFER_SECONDS: float(candidates.transfer_seconds[row]),
        a.KV_TRANSFER_JOULES: float(candidates.transfer_joules[row]),
        a.EXPECTED_JOULES: float(e.energy_joules[row]),
        a.ATTRIBUTED_JOULES: float(e.attributed_joules[row]),
        a.INCREMENTAL_JOULES: float(e.incremental_joules[row]),
        a.ENERGY_ERROR: float(e.energy_relative_error[row]),
        a.GRAMS: float(e.grams_co2e[row]),
        a.WATER: float(e.water_liters[row]),
        a.COST: float(e.cost[row]),
        a.EXPECTED_TTFT: float(e.ttft_seconds[row]),
        a.EXPECTED_TPOT: float(e.tpot_seconds[row]),
        a.EXPECTED_SERVICE: float(e.service_seconds[row]),
        a.INTENSITY: float(e.intensity_g_per_kwh[row]),
    }
    region = candidates.regions[row]
    view = None if region is None else candidates.region_views.get(region)
    return values if view is None else {**values, **_signal(view, decision.now_unix_s)}


def _session(verdict: SessionVerdict) -> Values:
    return {
        a.SESSION_MOVEMENT: verdict.movement.value,
        a.SESSION_BECAUSE: verdict.because.value,
        a.SESSION_TURNS: verdict.turns,
        a.SESSION_PREVIOUS: verdict.previous_endpoint,
        a.SESSION_GATE_VALUE: verdict.gate_value,
        a.SESSION_GATE_THRESHOLD: verdict.gate_threshold,
    }


def _signal(view: RegionView, now_unix_s: float) -> Values:
    signal, reading = view.signal, view.signal.reading
    values: dict[a.Attribute, a.Value | None] = {
        a.PUE: float(view.pue),
        a.SIGNAL_FRESHNESS: signal.freshness(now_unix_s).value,
    }
    if reading is not None:
        values |= {
            a.SIGNAL_TYPE: reading.signal_type.value,
            a.SIGNAL_FACTOR: reading.emission_factor.value,
            a.SIGNAL_SOURCE: reading.source,
            a.SIGNAL_AGE: signal.age_s(now_unix_s),
            a.SIGNAL_ESTIMATED: reading.estimated,
        }
    return values
