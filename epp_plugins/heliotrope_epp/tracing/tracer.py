"""What the director tells of a request while it passes: nothing for most, instants and results for recorded ones."""

import random
from collections.abc import Callable, Sequence

from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.endpoint import ENGINE_TYPE_LABEL
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.scheduled import ScheduleResult, untimed
from heliotrope_epp.tracing import w3c
from heliotrope_epp.tracing.decision import DecisionRecord, Destination, Facts
from heliotrope_epp.tracing.export import SpanQueue
from heliotrope_epp.tracing.placement import Placement, PlacementRecord
from heliotrope_epp.tracing.request import COMPLETE, Arrival, RequestRecord
from heliotrope_epp.tracing.sampling import Sampler
from heliotrope_epp.transport.interface import Headers, Request

DEFAULT_PROVIDER = "vllm"
CANCELLED = "cancelled"


class RequestTrace:
    """Of a request that is not recorded: says what to change in its headers, and forgets everything else."""

    __slots__ = ("remove_headers", "set_headers")

    def __init__(self, set_headers: Headers = (), remove_headers: Sequence[str] = ()) -> None:
        self.set_headers = set_headers
        """To set on the request to the engine."""
        self.remove_headers = remove_headers

    @property
    def context(self) -> TraceContext | None:
        """The request's span, if it is recorded."""
        return None

    @property
    def timer(self) -> Callable[[], float]:
        """For the pipeline."""
        return untimed

    def scheduled(self, request: LlmRequest, result: ScheduleResult) -> None:
        """The pipeline has run."""

    def placed(self, request: LlmRequest, placement: Placement) -> None:
        """The region tier has decided where it goes."""

    def routed(self, chosen: Option, arm: str) -> None:
        """It is about to be sent to the endpoint that was decided on."""

    def refused(self, status: int, reason: str | None) -> None:
        """The picker answers it."""

    def cancelled(self) -> None:
        """Its client left before it could be sent on."""

    def ended(
        self, status: int | None, cause: str, first_s: float | None, ended_s: float, finished: FinishedRequest | None
    ) -> None:
        """Its answer ended; `finished` if the body was understood."""


UNTRACED = RequestTrace()
"""Changes nothing: tracing is off, or the client's unrecorded context goes on as it is."""


class RecordedTrace(RequestTrace):
    """Takes down what the spans will say and queues it as soon as it is complete."""

    __slots__ = (
        "_arm",
        "_arrival",
        "_clock",
        "_context",
        "_destination",
        "_facts",
        "_offset_s",
        "_queue",
        "_remote_parent_id",
        "_result",
        "_started_s",
    )

    def __init__(
        self,
        queue: SpanQueue,
        clock: Clock,
        context: TraceContext,
        remote_parent_id: int | None,
        arrival: Arrival,
        set_headers: Headers,
        remove_headers: Sequence[str],
    ) -> None:
        super().__init__(set_headers, remove_headers)
        self._queue = queue
        self._clock = clock
        self._context = context
        self._remote_parent_id = remote_parent_id
        self._arrival = arrival
        self._started_s = clock.monotonic()
        self._offset_s = clock.unix() - self._started_s
        self._facts: Facts | None = None
        self._result: ScheduleResult | None = None
        self._destination: Destination | None = None
        self._arm: str | None = None

    @property
    def context(self) -> TraceContext | None:
        """The request's span."""
        return self._context

    @property
    def timer(self) -> Callable[[], float]:
        """A clock, so that the pipeline takes down its instants."""
        return self._clock.monotonic

    def scheduled(self, request: LlmRequest, result: ScheduleResult) -> None:
        """Keep the facts and the result."""
        self._facts = _facts_of(request)
        self._result = result

    def placed(self, request: LlmRequest, placement: Placement) -> None:
        """Queue the placement."""
        self._facts = _facts_of(request)
        self._queue.put(
            PlacementRecord(
                self._context, self._offset_s, self._started_s, self._clock.monotonic(), self._facts, placement
            )
        )

    def routed(self, chosen: Option, arm: str) -> None:
        """Queue the decision."""
        traits, labels = chosen.state.traits, chosen.state.endpoint.labels
        self._arm = arm
        self._destination = Destination(
            endpoint=chosen.key,
            provider=labels.get(ENGINE_TYPE_LABEL, DEFAULT_PROVIDER),
            region=traits.region,
            variant=traits.variant,
            engine=traits.engine,
            cached_tokens=chosen.cached_tokens,
        )
        self._decided(rejection=None)

    def refused(self, status: int, reason: str | None) -> None:
        """Queue the decision and the request."""
        self._decided(rejection=reason)
        self._put_request(status, COMPLETE, self._clock.monotonic(), rejection=reason)

    def cancelled(self) -> None:
        """Queue the request."""
        self._put_request(None, CANCELLED, self._clock.monotonic())

    def ended(
        self, status: int | None, cause: str, first_s: float | None, ended_s: float, finished: FinishedRequest | None
    ) -> None:
        """Queue the request with its answer."""
        self._put_request(status, cause, ended_s, first_s=first_s, finished=finished)

    def _decided(self, rejection: str | None) -> None:
        self._queue.put(
            DecisionRecord(
                parent=self._context,
                offset_s=self._offset_s,
                started_s=self._started_s,
                ended_s=self._clock.monotonic(),
                facts=self._facts,
                result=self._result,
                destination=self._destination,
                arm=self._arm,
                rejection=rejection,
            )
        )
        self._result = None

    def _put_request(
        self,
        status: int | None,
        cause: str,
        ended_s: float,
        *,
        first_s: float | None = None,
        rejection: str | None = None,
        finished: FinishedRequest | None = None,
    ) -> None:
        self._queue.put(
            RequestRecord(
                context=self._context,
                remote_parent_id=self._remote_parent_id,
                offset_s=self._offset_s,
                arrival=self._arrival,
                ended_s=ended_s,
                status=status,
                cause=cause,
                first_s=first_s,
                facts=self._facts,
                destination=self._destination,
                arm=self._arm,
                rejection=rejection,
                finished=finished,
            )
        )


class Tracer:
    """Decides which requests are recorded. Lives on the loop's thread."""

    def __init__(self, queue: SpanQueue, sampler: Sampler, clock: Clock, rng: random.Random | None = None) -> None:
        self._queue = queue
        self._sampler = sampler
        self._clock = clock
        self._random = rng or random.Random()

    def begin(self, request: Request) -> RequestTrace:
        """Read the context that came with the request, decide, and say what the engine is to see.

        The client's context comes before the one of the gateway's own call; a malformed one counts as none. The engine
        gets the trace's decision, so that it neither begins traces of its own nor records what nobody else does.
        Baggage ends here: what clients put into it is not for engines' spans.
        """
        parent, state = w3c.incoming(request.header)
        of_client = parent is not None
        if not of_client:
            parent, state = w3c.incoming(request.call_header)
        remove = () if request.header(w3c.BAGGAGE) is None else (w3c.BAGGAGE,)
        if not state and request.header(w3c.TRACESTATE) is not None:
            remove = (*remove, w3c.TRACESTATE)
        trace_id = self._random.getrandbits(128) or 1 if parent is None else parent.trace_id
        if self._sampler.samples(trace_id, None if parent is None else parent.sampled):
            return self._recorded(request, trace_id, parent, state, remove)
        if of_client and parent is not None and not parent.sampled:
            return RequestTrace((), remove) if remove else UNTRACED
        span_id = self._random.getrandbits(64) or 1 if parent is None else parent.span_id
        return RequestTrace(_outgoing(trace_id, span_id, parent, 0, state), remove)

    def _recorded(
        self, request: Request, trace_id: int, parent: w3c.Parent | None, state: str, remove: Sequence[str]
    ) -> RecordedTrace:
        context = TraceContext(trace_id, self._random.getrandbits(64) or 1, state)
        return RecordedTrace(
            self._queue,
            self._clock,
            context,
            None if parent is None else parent.span_id,
            Arrival(
                method=request.method,
                path=request.path.partition("?")[0],
                scheme=request.header(":scheme"),
                authority=request.header(":authority"),
                received_s=request.received_s,
            ),
            _outgoing(trace_id, context.span_id, parent, w3c.SAMPLED, state),
            remove,
        )


def _facts_of(request: LlmRequest) -> Facts:
    return Facts(
        request_id=request.request_id,
        model=request.model,
        streaming=request.streaming,
        prompt_tokens=request.prompt_tokens,
        max_output_tokens=request.max_output_tokens,
        expected_output_tokens=request.expected_output_tokens,
        held_seconds=request.held_seconds,
        media_count=len(request.media),
        media_unknown=sum(item.tokens is None for item in request.media),
    )


def _outgoing(trace_id: int, span_id: int, parent: w3c.Parent | None, sampled: int, state: str) -> Headers:
    """The headers to set; the state is set as well, as the client's own may be another one."""
    flags = sampled if parent is None else parent.flags & w3c.RANDOM | sampled
    headers = ((w3c.TRACEPARENT, w3c.format_traceparent(trace_id, span_id, flags)),)
    return (*headers, (w3c.TRACESTATE, state)) if state else headers
