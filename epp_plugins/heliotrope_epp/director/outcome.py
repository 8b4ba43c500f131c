"""From a decision to what is remembered of it, and from there to the record of the finished request."""

from math import isfinite

from heliotrope.decide.compared import Planned
from heliotrope.decide.feasible import tpot_slo_seconds, ttft_slo_seconds
from heliotrope.engine.encoder import DEFAULT_ENCODER
from heliotrope.media.attachment import Attachment
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.director.context import EncodePart, PrefillPart, RoutedContext
from heliotrope_epp.outcomes.finished import Expected, FinishedRequest
from heliotrope_epp.outcomes.meter import EncodedAt, Routed
from heliotrope_epp.parsers.media import ASSUMED_TOKENS
from heliotrope_epp.parsers.openai import Usage
from heliotrope_epp.plugins.embeddings import EmbeddingIndex
from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.scheduled import ScheduleResult
from heliotrope_epp.tracing.tracer import UNTRACED, RequestTrace
from heliotrope_epp.transport.interface import Cause, Report


def routed_context(
    request: LlmRequest,
    chosen: Option,
    dispatch: Dispatch,
    result: ScheduleResult,
    now_unix_s: float,
    trace: RequestTrace = UNTRACED,
    prefill: PrefillPart | None = None,
    encodes: tuple[EncodePart, ...] = (),
) -> RoutedContext:
    """What to remember of a request that goes to `chosen`."""
    decision, traits = result.decision, chosen.state.traits
    plan = result.planned(chosen.key)
    return RoutedContext(
        state=chosen.state,
        dispatch=dispatch,
        request=request,
        region=traits.region,
        variant=traits.variant,
        dispatched_unix_s=now_unix_s,
        policy=None if decision is None else decision.policy.name,
        arm=result.assignment.arm.value,
        request_class=result.assignment.request_class,
        expected=None if plan is None else _expected(plan),
        features=None
        # Models learn of text that one endpoint served: what encoding takes is added to what they say.
        if plan is None or prefill is not None or request.media
        else plan.estimates.features[plan.row].copy(),
        ttft_slo_seconds=None if decision is None else ttft_slo_seconds(decision.request, decision.policy),
        tpot_slo_seconds=None if decision is None else tpot_slo_seconds(decision.request, decision.policy),
        trace=trace,
        prefill=prefill,
        encodes=encodes,
    )


def encode_parts(
    request: LlmRequest, result: ScheduleResult, decode: Dispatch, embeddings: EmbeddingIndex
) -> tuple[EncodePart, ...]:
    """What each encoder has of a request, in the order of its turn; `decode` is what the decoder has."""
    encoders = result.pick.encoders
    plan = None if not encoders else result.planned(result.pick.options[0].key)
    encodes = None if plan is None else plan.estimates.encodes
    busy = None if encodes is None or plan is None else encodes.plans[plan.row].there_seconds
    known = busy is not None and len(busy) == len(encoders) and all(map(isfinite, busy))
    held = embeddings.held(request.media) if encoders else {}
    parts = []
    for turn, option in enumerate(encoders):
        images = request.media[turn :: len(encoders)]
        tokens = float(sum(item.tokens or 0 for item in images))
        remembered = held.get(option.key, frozenset())
        dispatch = Dispatch(
            dispatched_s=decode.dispatched_s,
            prompt_tokens=tokens,
            uncached_tokens=tokens,
            first_token_due_s=decode.first_token_due_s,
            streams=request.streaming,
            prefills_only=True,
        )
        parts.append(
            EncodePart(
                option.state,
                dispatch,
                busy[turn] if known and busy is not None else 0.0,
                image_tokens=tuple(_media_tokens(item) for item in images if item.key not in remembered),
                remembered_tokens=tuple(_media_tokens(item) for item in images if item.key in remembered),
            )
        )
    return tuple(parts)


def _media_tokens(item: Attachment) -> float:
    """A thing of unknown size is shared out as an image of the usual one: the counters show that it was something."""
    return float(ASSUMED_TOKENS if item.tokens is None else item.tokens)


def _encoded_at(part: EncodePart) -> EncodedAt:
    seconds = part.engine_seconds or sum(DEFAULT_ENCODER.seconds(1.0, tokens) for tokens in part.image_tokens)
    return EncodedAt(part.state.endpoint.key, part.image_tokens, part.remembered_tokens, seconds)


def prefill_part(request: LlmRequest, prefill: Option | None, decode: Dispatch) -> PrefillPart | None:
    """What the endpoint that prefills has of a request; `decode` is what the other one has. None: there is none."""
    if prefill is None:
        return None
    uncached = max(request.prompt_tokens - prefill.cached_tokens, 1.0)
    engine = prefill.state.traits.engine
    dispatch = Dispatch(
        dispatched_s=decode.dispatched_s,
        prompt_tokens=float(request.prompt_tokens),
        uncached_tokens=uncached,
        first_token_due_s=decode.first_token_due_s,
        streams=request.streaming,
        prefills_only=True,
    )
    return PrefillPart(prefill.state, dispatch, 0.0 if engine is None else float(engine.prefill_seconds(uncached)))


def routed(ctx: RoutedContext, request: LlmRequest) -> Routed:
    """What the meter is to know of a request that was sent."""
    dispatch, prefill = ctx.dispatch, ctx.prefill
    return Routed(
        endpoint=ctx.state.endpoint.key,
        model=request.answering_model,
        streaming=request.streaming,
        prompt_tokens=dispatch.prompt_tokens,
        cached_tokens=_believed_cached(ctx),
        dispatched_s=dispatch.dispatched_s,
        first_token_due_s=dispatch.first_token_due_s,
        prefill_endpoint=None if prefill is None else prefill.state.endpoint.key,
        encodes=tuple(_encoded_at(part) for part in ctx.encodes),
    )


def _believed_cached(ctx: RoutedContext) -> float:
    """Prompt tokens that nobody has to compute."""
    dispatch = ctx.dispatch if ctx.prefill is None else ctx.prefill.dispatch
    return max(dispatch.prompt_tokens - dispatch.uncached_tokens, 0.0)


def finished_request(
    ctx: RoutedContext, request: LlmRequest, report: Report, usage: Usage | None, now_unix_s: float
) -> FinishedRequest:
    """The record of a request that has ended, without its text."""
    dispatch = ctx.dispatch
    return FinishedRequest(
        request_id=request.request_id,
        model=request.answering_model,
        asked_model=request.model,
        tenant=request.tenant,
        request_class=ctx.request_class,
        arm=ctx.arm,
        policy=ctx.policy,
        endpoint=ctx.state.endpoint.key,
        variant=ctx.variant,
        region=ctx.region,
        streaming=request.streaming,
        dispatched_s=dispatch.dispatched_s,
        first_s=report.first_s,
        last_s=report.last_s,
        ended_s=report.ended_s,
        dispatched_unix_s=ctx.dispatched_unix_s,
        ended_unix_s=now_unix_s,
        status=report.status,
        cause=report.cause,
        believed_prompt_tokens=request.prompt_tokens,
        believed_cached_tokens=_believed_cached(ctx),
        expected_output_tokens=request.expected_output_tokens,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        output_tokens=None if usage is None else usage.completion_tokens,
        expected=ctx.expected,
        features=ctx.features,
        ttft_slo_seconds=ctx.ttft_slo_seconds,
        tpot_slo_seconds=ctx.tpot_slo_seconds,
        trace=ctx.trace.context,
    )


def failure_of(report: Report) -> float | None:
    """How far the end of a request is the endpoint's failure, in [0, 1]; None: it says nothing of the endpoint.

    An answer of 500 or more is one, a gateway's timeout (504) among them. A broken exchange may be the client's or the
    engine's doing, and Envoy does not say whose, so it counts half.
    """
    if report.cause in (Cause.SHUTDOWN, Cause.PROTOCOL):
        return None
    if report.status is not None and report.status >= 500:
        return 1.0
    return 0.5 if report.cause is Cause.DISCONNECTED else 0.0


def _expected(plan: Planned) -> Expected:
    return Expected(
        ttft_seconds=plan.value("ttft_seconds"),
        tpot_seconds=plan.value("tpot_seconds"),
        service_seconds=plan.value("service_seconds"),
        energy_joules=plan.value("attributed_joules"),
        energy_relative_error=plan.value("energy_relative_error"),
        batch=plan.value("batch"),
        intensity_g_per_kwh=plan.value("intensity_g_per_kwh"),
        grams_co2e=plan.value("grams_co2e"),
        water_liters=plan.value("water_liters"),
        cost=plan.value("cost"),
    )
