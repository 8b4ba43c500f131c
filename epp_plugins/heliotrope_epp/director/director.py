"""The picker's core behind a transport: one request in, one endpoint or one clear refusal out."""

import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from heliotrope.decide.explanation import MAX_CANDIDATES
from heliotrope.decide.feasible import Loss
from heliotrope.decide.quality import Prediction
from heliotrope.errors import InvalidInputError
from heliotrope.predict.length_distribution import LengthContext
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.endpoint import RESTING_LABEL
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.demand.book import DemandBook
from heliotrope_epp.demand.holding import End, Flow, Held, HoldQueue, HoldSettings
from heliotrope_epp.director import errors, lengths, models, plan
from heliotrope_epp.director.context import RoutedContext
from heliotrope_epp.director.outcome import (
    encode_parts,
    failure_of,
    finished_request,
    prefill_part,
    routed,
    routed_context,
)
from heliotrope_epp.director.recorder import DecisionLog
from heliotrope_epp.director.wishes import asked_of, refusals, to_remove
from heliotrope_epp.outcomes.meter import RequestMeter
from heliotrope_epp.parsers import openai
from heliotrope_epp.parsers.openai import ParsedBody
from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.models.rewrite import effort_is_free
from heliotrope_epp.plugins.models.router import TASK_HEADER, ModelRouter
from heliotrope_epp.plugins.pickers.chosen import ChosenRows
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.plugins.retention import RetentionAdvisor
from heliotrope_epp.plugins.scheduled import ScheduleResult
from heliotrope_epp.plugins.sessions.identity import Named, Scope
from heliotrope_epp.plugins.sessions.tracker import SessionTracker, history_of
from heliotrope_epp.plugins.sessions.turn import SessionTurn
from heliotrope_epp.telemetry.metrics import Metrics
from heliotrope_epp.tracing.tracer import UNTRACED, RequestTrace, Tracer
from heliotrope_epp.transport.interface import Headers, Report, Request

REQUEST_ID_HEADER = "x-request-id"
FAIRNESS_HEADERS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
MAX_TENANT_LENGTH = 253
_NOBODY = "no endpoint is ready to serve; try again later"


@dataclass(frozen=True, slots=True)
class DirectorSettings:
    """Limits of one picker process."""

    max_inflight: int = 8_000
    """Routed requests at once; more get a 429."""
    metrics_stale_after_s: float = 2.0
    """Older engine metrics count as unknown."""
    learning: bool = False
    """Whether somebody learns: then every routed request keeps its features, also where no carbon decision made any."""
    hold: HoldSettings = field(default_factory=HoldSettings)
    """Of requests while no engine is awake."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that was read and is held."""

    request: Request
    llm: LlmRequest
    trace: RequestTrace


class Director:
    """Implements `Decider`: parse, admit, schedule, dispatch, and follow each request to its end."""

    def __init__(
        self,
        *,
        store: EndpointStore,
        pipeline: Pipeline,
        output_lengths: OutputLengths,
        metrics: Metrics,
        decisions: DecisionLog,
        meter: RequestMeter,
        clock: Clock,
        settings: DirectorSettings,
        tracer: Tracer | None = None,
        sessions: SessionTracker | None = None,
        retention: RetentionAdvisor | None = None,
        model_router: ModelRouter | None = None,
        demand: DemandBook | None = None,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._output_lengths = output_lengths
        self._metrics = metrics
        self._decisions = decisions
        self._meter = meter
        self._clock = clock
        self._settings = settings
        self._rows = ChosenRows() if settings.learning else None
        self._tracer = tracer
        self._sessions = sessions
        self._retention = retention
        self._model_router = model_router
        self._demand = demand or DemandBook()
        self.held: HoldQueue[_Waiting] = HoldQueue(
            settings.hold,
            is_open=self._is_open,
            can_go=self._can_go,
            go=self._go,
            refuse=self._refuse_held,
            monotonic=clock.monotonic,
        )
        """Requests that wait for an engine to start or wake; who runs the picker runs it too."""
        self._held_by_request: dict[int, Held[_Waiting]] = {}
        self._inflight = 0
        self._log = logging.getLogger(__name__)

    @property
    def inflight(self) -> int:
        """Routed requests that have not ended."""
        return self._inflight

    def decide(self, request: Request) -> None:
        """Route the request or refuse it; never blocks. Who waits for a scorer of models is answered later."""
        started_s = self._clock.monotonic()
        trace = UNTRACED if self._tracer is None else self._tracer.begin(request)
        states = self._awake(self._store.candidates(request.subset))
        readable = openai.is_inference_path(request.path) and (request.method != "GET" or bool(request.body))
        if not states and not (readable and self._may_wait(request)):
            self._reject(request, errors.no_endpoints(_NOBODY), trace)
        elif self._inflight >= self._settings.max_inflight:
            self._reject(request, errors.saturated("too many requests in flight; try again later"), trace)
        elif not readable:
            self._route_unparsed(request, states, started_s, trace)
        else:
            self._schedule(request, states, started_s, trace)

    def cancelled(self, request: Request) -> None:
        """The client left before the answer."""
        self._metrics.cancelled()
        held = self._held_by_request.pop(id(request), None)
        if held is not None and self.held.left(held):
            held.what.trace.cancelled()

    def progressed(self, ctx: RoutedContext, at_s: float) -> None:
        """An answer has begun or goes on: its request waits no longer, and the engine has just ended a step."""
        if ctx.request is not None:
            ctx.state.inflight.piece(ctx.dispatch, at_s)
            _helpers_are_done(ctx)

    def done(self, ctx: RoutedContext, report: Report) -> None:
        """Release what the request held and learn from how it went."""
        self._inflight -= 1
        ctx.state.inflight.remove(ctx.dispatch)
        _helpers_are_done(ctx)
        usage = openai.usage_of(report.tail) if report.complete and report.status == 200 else None
        finished = None
        if ctx.request is not None:
            tokens = None if usage is None else usage.completion_tokens
            self._demand.ended(ctx.request.model, tokens)
            now_s = self._clock.monotonic()
            lengths.ended(self._output_lengths, ctx.request, ctx.dispatch.dispatched_s, now_s, tokens)
            failed = failure_of(report)
            if failed is not None:
                # Of two endpoints nobody says whose failure it is.
                served = (ctx.state,) if ctx.prefill is None else (ctx.state, ctx.prefill.state)
                for state in served:
                    self._pipeline.ended(state, failed / len(served), now_s)
            if usage is None:
                self._pipeline.answered(ctx.request, None, None)
            else:
                self._pipeline.answered(ctx.request, usage.cached_tokens, usage.prompt_tokens)
            finished = finished_request(ctx, ctx.request, report, usage, self._clock.unix())
            self._meter.ended(ctx, finished)
            if self._sessions is not None:
                history_tokens = history_of(ctx.request, report, tokens)
                self._sessions.ended(ctx.request, history_tokens, report.tail)
                if self._retention is not None and usage is not None:
                    self._retention.ended(ctx.request, ctx.state, usage.prompt_tokens + usage.completion_tokens)
        ctx.trace.ended(report.status, report.cause.value, report.first_s, report.ended_s, finished)
        self._metrics.finished(ctx.request, ctx.region, report, usage)

    def _awake(self, states: Sequence[EndpointState]) -> Sequence[EndpointState]:
        """Those that do not sleep; while some of them are not about to, only these.

        The same sequence where none sleeps: columns kept from one decision to the next know it by that.
        """
        asleep = [s.metrics is not None and s.metrics.asleep is True for s in states]
        awake = states if True not in asleep else tuple(s for s, a in zip(states, asleep, strict=True) if not a)
        if not self._store.resting:
            return awake
        return tuple(s for s in awake if RESTING_LABEL not in s.endpoint.labels) or awake

    def _asleep(self, awake: Sequence[EndpointState]) -> tuple[str, ...]:
        """Endpoints that are no candidates because they sleep; of very many the first."""
        states = self._store.states()
        if len(states) == len(awake):
            return ()
        asleep = (s.endpoint.key for s in states if s.metrics is not None and s.metrics.asleep is True)
        return tuple(islice(asleep, MAX_CANDIDATES))

    def _route_unparsed(
        self, request: Request, states: Sequence[EndpointState], started_s: float, trace: RequestTrace
    ) -> None:
        """Paths such as /v1/models go to the endpoint with the fewest of our own requests."""
        state = min(states, key=lambda s: (len(s.inflight), s.endpoint.key))
        dispatch = Dispatch(started_s, prompt_tokens=0.0, uncached_tokens=0.0, first_token_due_s=started_s)
        ctx = RoutedContext(state, dispatch, request=None, region=state.traits.region, trace=trace)
        self._dispatch(request, (state.endpoint.host_port,), ctx, prefill_seconds=0.0)

    def _schedule(
        self, request: Request, states: Sequence[EndpointState], started_s: float, trace: RequestTrace
    ) -> None:
        try:
            llm_request = self._parsed(request, started_s)
        except InvalidInputError as error:
            self._reject(request, errors.bad_request(str(error)), trace)
            return
        self._demand.arrived(llm_request.model, llm_request.prompt_tokens)
        if states:
            self._decide_models(request, llm_request, states, started_s, trace)
        else:
            self._hold(_Waiting(request, llm_request, trace))

    def _decide_models(
        self,
        request: Request,
        llm_request: LlmRequest,
        states: Sequence[EndpointState],
        started_s: float,
        trace: RequestTrace,
    ) -> None:
        router = self._model_router
        group = None if router is None else router.group_for(llm_request)
        if router is None or group is None:
            self._choose(request, llm_request, states, started_s, trace)
            return
        waits = False

        def predicted(prediction: Prediction) -> None:
            if waits:
                self._resume(request, llm_request, trace, prediction)
            else:
                self._choose(request, llm_request, states, started_s, trace, prediction)

        router.predict(llm_request, group, request.header(TASK_HEADER), predicted)
        waits = True

    def _may_wait(self, request: Request) -> bool:
        """Whether an engine may come that this request may use; where the gateway allows only others, none will."""
        if self._settings.hold.max_requests == 0:
            return False
        return request.subset is None or len(self._store.candidates(request.subset)) > 0

    def _hold(self, waiting: _Waiting) -> None:
        llm = waiting.llm
        held = self.held.offer(waiting, Flow(llm.model, llm.tenant), len(waiting.request.body) + len(llm.prompt))
        if isinstance(held, Held):
            self._held_by_request[id(waiting.request)] = held
        else:
            self._reject(waiting.request, errors.not_held(held), waiting.trace)

    def _is_open(self) -> bool:
        if self._inflight >= self._settings.max_inflight:
            return False
        return any(state.metrics is None or state.metrics.asleep is not True for state in self._store.states())

    def _can_go(self, held: Held[_Waiting]) -> bool:
        if self._inflight >= self._settings.max_inflight:
            return False
        return bool(self._awake(self._store.candidates(held.what.request.subset)))

    def _go(self, held: Held[_Waiting]) -> None:
        """An engine is awake: decide as for a request that has just come."""
        waiting = held.what
        request = waiting.request
        self._held_by_request.pop(id(request), None)
        now_s = self._clock.monotonic()
        llm = replace(waiting.llm, held_seconds=now_s - held.since_s)
        try:
            states = self._awake(self._store.candidates(request.subset))
            self._decide_models(request, llm, states, now_s, waiting.trace)
        except Exception as error:  # noqa: BLE001 - nobody above this turn of the loop answers the client
            self._failed(request, error, waiting.trace)

    def _refuse_held(self, held: Held[_Waiting], end: End) -> None:
        self._held_by_request.pop(id(held.what.request), None)
        self._reject(held.what.request, errors.not_held(end), held.what.trace)

    def _failed(self, request: Request, error: Exception, trace: RequestTrace) -> None:
        # The message is left out: it may quote the body.
        where = "".join(traceback.format_tb(error.__traceback__))
        self._log.error("decision failed: %s\n%s", type(error).__name__, where)
        self._reject(request, errors.internal("the picker failed on this request"), trace)

    def _resume(self, request: Request, llm_request: LlmRequest, trace: RequestTrace, prediction: Prediction) -> None:
        """Go on with a request that waited for its models to be scored; the world may have moved meanwhile."""
        if request.cancelled:
            trace.cancelled()
            return
        try:
            states = self._awake(self._store.candidates(request.subset))
            if not states and self._may_wait(request):
                self._hold(_Waiting(request, llm_request, trace))
            elif not states:
                self._reject(request, errors.no_endpoints(_NOBODY), trace)
            elif self._inflight >= self._settings.max_inflight:
                self._reject(request, errors.saturated("too many requests in flight; try again later"), trace)
            else:
                self._choose(request, llm_request, states, self._clock.monotonic(), trace, prediction)
        except Exception as error:  # noqa: BLE001 - nobody above this turn of the loop answers the client
            self._failed(request, error, trace)

    def _choose(
        self,
        request: Request,
        llm_request: LlmRequest,
        states: Sequence[EndpointState],
        started_s: float,
        trace: RequestTrace,
        prediction: Prediction | None = None,
    ) -> None:
        now_unix_s = self._clock.unix()
        free = prediction is not None and effort_is_free(request.body, llm_request.reasoning)
        result = self._pipeline.run(
            llm_request, states, started_s, now_unix_s, trace.timer, prediction, effort_is_free=free
        )
        trace.scheduled(llm_request, result)
        self._decisions.add(now_unix_s, llm_request, result, self._asleep(states))
        if not result.pick.options:
            self._metrics.nothing_chosen(result)
            self._reject(request, _refusal(llm_request, result), trace)
            return
        chosen, model_choice = result.pick.options[0], result.model_choice
        body = models.body_of(request.body, llm_request, model_choice)
        llm_request = models.as_answered(llm_request, model_choice, self._output_lengths, started_s)
        prefill_s, first_token_s = _expected_times(llm_request, chosen, result)
        cached_tokens = plan.cached_tokens(result, chosen, llm_request.prompt_tokens)
        dispatch = Dispatch(
            dispatched_s=started_s,
            prompt_tokens=float(llm_request.prompt_tokens),
            uncached_tokens=max(llm_request.prompt_tokens - cached_tokens, 1.0),
            first_token_due_s=started_s + first_token_s,
            expected_output_tokens=llm_request.expected_output_tokens,
            streams=llm_request.streaming,
        )
        prefill = prefill_part(llm_request, result.pick.prefill, dispatch)
        encodes = encode_parts(llm_request, result, dispatch, self._pipeline.embeddings)
        ctx = routed_context(llm_request, chosen, dispatch, result, now_unix_s, trace, prefill, encodes)
        trace.routed(chosen, ctx.arm)
        provenance = result.provenance
        told = (*(refusals(provenance) if result.enforced else ()), *models.answer_headers(model_choice))
        remove = to_remove(request, provenance)
        source = plan.source_headers(result, chosen, self._store)
        if self._dispatch(request, models.addresses(result), ctx, prefill_s, remove, told, source, body):
            self._pipeline.routed(llm_request, chosen.state, fetched=plan.fetches_blocks(result, chosen))
            if prefill is not None:
                self._pipeline.prefilled(llm_request, prefill.state)
            self._moving(result, chosen, started_s)
            if llm_request.media:
                prefiller = chosen.state if prefill is None else prefill.state
                evicted = self._pipeline.encoded(llm_request, prefiller, [part.state for part in encodes])
                self._metrics.encoded(llm_request, len(encodes), evicted)
            if self._sessions is not None:
                self._sessions.routed(llm_request, chosen.key)
                if self._retention is not None:
                    self._retention.turned(llm_request)
            if self._rows is not None and ctx.features is None and prefill is None and not llm_request.media:
                ctx.features = self._rows.row(llm_request, chosen, self._store.regions(), now_unix_s)
        self._metrics.decided(result, ctx.region, self._clock.monotonic() - started_s)
        self._log_decision(llm_request, result)

    def _moving(self, result: ScheduleResult, chosen: Option, now_s: float) -> None:
        """Remember blocks that go from one endpoint to another for this request."""
        planned = result.planned(chosen.key)
        source = None if planned is None or planned.kv_from is None else self._store.get(planned.kv_from)
        if planned is not None and source is not None:
            self._pipeline.moving(planned, source, chosen.state, now_s)

    def _dispatch(
        self,
        request: Request,
        addresses: tuple[str, ...],
        ctx: RoutedContext,
        prefill_seconds: float,
        remove: tuple[str, ...] = (),
        response_headers: Headers = (),
        set_headers: Headers = (),
        body: bytes | None = None,
    ) -> bool:
        trace = ctx.trace
        if not request.route(
            ",".join(addresses),
            (*trace.set_headers, *set_headers),
            (*trace.remove_headers, *remove),
            body=body,
            response_headers=response_headers,
            ctx=ctx,
        ):
            trace.cancelled()
            return False
        self._inflight += 1
        ctx.state.inflight.add(ctx.dispatch, prefill_seconds)
        if ctx.prefill is not None:
            ctx.prefill.state.inflight.add(ctx.prefill.dispatch, ctx.prefill.engine_seconds)
        for part in ctx.encodes:
            part.state.inflight.add(part.dispatch, part.engine_seconds)
        if ctx.request is not None:
            self._demand.routed(ctx.request.model)
            lengths.started(self._output_lengths, ctx.request, ctx.dispatch.dispatched_s)
            self._meter.routed(ctx, routed(ctx, ctx.request))
        return True

    def _parsed(self, request: Request, now_s: float) -> LlmRequest:
        body = openai.parse(request.path, request.body)
        tenant = _tenant(request)
        asked = asked_of(request, self._store.priority)
        context = LengthContext(
            body.model, tenant, body.prompt_tokens, body.max_output_tokens, body.streaming, body.reasoning
        )
        return LlmRequest(
            request_id=request.header(REQUEST_ID_HEADER) or "",
            path=request.path,
            model=body.model,
            prompt=body.prompt,
            prompt_tokens=body.prompt_tokens,
            max_output_tokens=body.max_output_tokens,
            expected_output_tokens=self._output_lengths.predict(context, now_s).mean,
            streaming=body.streaming,
            cache_salt=body.cache_salt,
            token_ids=body.token_ids,
            ttft_slo_seconds=asked.ttft_slo_seconds,
            tpot_slo_seconds=asked.tpot_slo_seconds,
            tenant=tenant,
            asked=asked,
            reasoning=body.reasoning,
            media=body.media,
            session=self._session(request, body, tenant),
        )

    def _session(self, request: Request, body: ParsedBody, tenant: str) -> SessionTurn | None:
        if self._sessions is None:
            return None
        scope = Scope(tenant, body.model, body.cache_salt)
        return self._sessions.turn(Named(request.header, body.session, body.prompt, scope))

    def _reject(self, request: Request, rejection: errors.Rejection, trace: RequestTrace) -> None:
        trace.refused(rejection.status, rejection.reason)
        request.reject(rejection.status, rejection.body(), rejection.headers())
        self._metrics.rejected(rejection.status, rejection.reason or "")
        self._log.info(
            "request rejected",
            extra={"fields": {"status": rejection.status, "reason": rejection.reason, "why": rejection.message}},
        )

    def _log_decision(self, request: LlmRequest, result: ScheduleResult) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            fields = {
                "request_id": request.request_id,
                "endpoint": result.pick.options[0].key,
                "prompt_tokens": request.prompt_tokens,
                "decided_by": None if result.decision is None else result.decision.decided_by,
            }
            self._log.debug("request routed", extra={"fields": fields})


def _helpers_are_done(ctx: RoutedContext) -> None:
    if ctx.prefill is not None:
        ctx.prefill.state.inflight.remove(ctx.prefill.dispatch)
    for part in ctx.encodes:
        part.state.inflight.remove(part.dispatch)


def _refusal(request: LlmRequest, result: ScheduleResult) -> errors.Rejection:
    """Too large for every endpoint is the client's to change; anything else is not."""
    decision = result.decision
    if decision is not None and all(loss is Loss.CAPACITY for loss in decision.losses):
        return errors.bad_request(
            f"a prompt of about {request.prompt_tokens} tokens does not fit into any endpoint's KV cache"
        )
    return errors.nothing_feasible(result.pick.reason)


def _expected_times(request: LlmRequest, option: Option, result: ScheduleResult) -> tuple[float, float]:
    """Seconds that the prefill occupies the engine, and until the first token is due; 0 where no model is known."""
    engine = option.state.traits.engine
    if engine is None:
        return 0.0, 0.0
    uncached = max(request.prompt_tokens - plan.cached_tokens(result, option, request.prompt_tokens), 1.0)
    prefill = float(engine.prefill_seconds(uncached))
    planned = result.planned(option.key)
    if planned is not None:
        ttft = planned.value("ttft_seconds")
        return prefill, ttft if ttft == ttft else prefill  # NaN: unknown load
    waiting = option.load.waiting_tokens
    return prefill, prefill if waiting != waiting else float(engine.prefill_seconds(uncached + waiting))


def _tenant(request: Request) -> str:
    for name in FAIRNESS_HEADERS:
        text = request.header(name)
        if text:
            return text[:MAX_TENANT_LENGTH]
    return ""
