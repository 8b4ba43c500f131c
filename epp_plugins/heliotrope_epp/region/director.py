"""The region tier's core behind a transport: one request in, one region or one clear refusal out."""

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heliotrope.errors import InvalidInputError
from heliotrope.place.assignment import NOWHERE
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp.clock import Clock
from heliotrope_epp.director import errors
from heliotrope_epp.director.wishes import DEADLINE_HEADER, REGIONS_HEADER
from heliotrope_epp.parsers import openai
from heliotrope_epp.plugins.sessions.tracker import SessionTracker, history_of
from heliotrope_epp.region.beliefs import Beliefs
from heliotrope_epp.region.collector import Collector
from heliotrope_epp.region.deadlines import DeadlineQueue
from heliotrope_epp.region.decided import Decided
from heliotrope_epp.region.metrics import RegionMetrics
from heliotrope_epp.region.placed import RegionContext, Waiting
from heliotrope_epp.region.provisioner import Provisioner
from heliotrope_epp.region.reading import Reader, length_context
from heliotrope_epp.region.recorder import WindowLog
from heliotrope_epp.tracing.placement import Placement
from heliotrope_epp.tracing.tracer import UNTRACED, RequestTrace, Tracer
from heliotrope_epp.transport.interface import Cause, Report, Request

OWN_REQUEST_HEADERS = (DEADLINE_HEADER, REGIONS_HEADER)
"""Answered here, and no business of the region's own picker."""
GATEWAY_FAILURES = frozenset({502, 503, 504})

DEFECT = "the picker failed on this request"
SENT_PER_TURN = 32
"""Of a window, before the loop does something else."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Leaving:
    waiting: Waiting
    placement: Placement
    serial: int | None
    """Of its dispatch; None: it goes nowhere."""


class RegionDirector:
    """Implements `Decider`. `wire` completes it: windows and queues call back into it."""

    def __init__(
        self,
        *,
        header: str,
        reader: Reader,
        lengths: OutputLengths,
        sessions: SessionTracker | None,
        provisioner: Provisioner,
        beliefs: Beliefs,
        log: WindowLog,
        metrics: RegionMetrics,
        nearest: Callable[[], str | None],
        clock: Clock,
        max_inflight: int,
        tracer: Tracer | None = None,
    ) -> None:
        """`header` names the region to the gateway; `nearest` is where requests without a prompt go."""
        self._header = header
        self._reader = reader
        self._lengths = lengths
        self._sessions = sessions
        self._provisioner = provisioner
        self._beliefs = beliefs
        self._recorded = log
        self._metrics = metrics
        self._nearest = nearest
        self._clock = clock
        self._max_inflight = max_inflight
        self._tracer = tracer
        self._pending: dict[int, Waiting] = {}
        self._routed = 0
        self._collector: Collector | None = None
        self._deadlines: DeadlineQueue | None = None

    def wire(self, collector: Collector, deadlines: DeadlineQueue) -> None:
        """Where requests wait."""
        self._collector = collector
        self._deadlines = deadlines

    @property
    def inflight(self) -> int:
        """Requests that wait or are routed."""
        return len(self._pending) + self._routed

    def decide(self, request: Request) -> None:
        """Put the request into a window or a queue, or refuse it; it is answered later."""
        assert self._collector is not None, "wire comes first"
        assert self._deadlines is not None, "wire comes first"
        trace = UNTRACED if self._tracer is None else self._tracer.begin(request)
        if self.inflight >= self._max_inflight:
            self._reject(request, errors.saturated("too many requests in flight; try again later"), trace)
        elif not openai.is_inference_path(request.path) or (request.method == "GET" and not request.body):
            self._route_unparsed(request, trace)
        else:
            try:
                waiting = self._reader.read(request, trace)
            except InvalidInputError as error:
                self._reject(request, errors.bad_request(str(error)), trace)
                return
            self._pending[id(request)] = waiting
            if waiting.deadline_unix_s is None:
                self._collector.add(waiting)
            elif not self._deadlines.offer(waiting):
                del self._pending[id(request)]
                self._reject(request, errors.saturated("too many requests wait for a cleaner hour"), trace)

    def cancelled(self, request: Request) -> None:
        """The client left before the answer."""
        self._metrics.cancelled()
        waiting = self._pending.pop(id(request), None)
        if waiting is not None and self._collector is not None and self._deadlines is not None:
            self._collector.left(waiting)
            self._deadlines.left(waiting)
            waiting.trace.cancelled()

    def progressed(self, ctx: RegionContext, at_s: float) -> None:
        """Engines are their own region's business."""

    def done(self, ctx: RegionContext, report: Report) -> None:
        """Learn from how it went."""
        now_s = self._clock.monotonic()
        self._routed -= 1
        self._metrics.ended(ctx.region, report)
        self._learn_of_region(ctx.region, report, now_s)
        ctx.trace.ended(report.status, report.cause.value, report.first_s, report.ended_s, None)
        llm = ctx.llm
        if llm is None:
            return
        self._beliefs.ended(ctx.serial, self._clock.unix())
        usage = openai.usage_of(report.tail) if report.complete and report.status == 200 else None
        tokens = None if usage is None else usage.completion_tokens
        self._lengths.ended(llm.model, ctx.dispatched_s, now_s, tokens, length_context(llm))
        if self._sessions is not None:
            self._sessions.ended(llm, history_of(llm, report, tokens), report.tail)

    def settled(self, decided: Decided) -> None:
        """Send every request of a window where it is to go, a few in each turn of the loop."""
        prepared, batch = decided.prepared, decided.prepared.batch
        self._metrics.decided(decided)
        self._recorded.add(decided)
        places = decided.places.copy()
        for i, waiting in enumerate(batch):
            if waiting.request.cancelled:
                places[i] = NOWHERE
        serials = iter(
            self._beliefs.sent(prepared.window, prepared.regions, prepared.policy, places, prepared.now_unix_s)
        )
        rows = zip(batch, decided.placements, places.tolist(), strict=True)
        self._send_some(
            deque(_Leaving(each, how, None if place == NOWHERE else next(serials)) for each, how, place in rows)
        )

    def _send_some(self, leaving: "deque[_Leaving]") -> None:
        """A whole window at once would hold up every answer that passes meanwhile."""
        for _ in range(min(SENT_PER_TURN, len(leaving))):
            each = leaving.popleft()
            try:
                self._let_go(each)
            except Exception as error:  # noqa: BLE001 - nobody above this turn of the loop answers the client
                # The message is left out: it may quote the body.
                where = "".join(traceback.format_tb(error.__traceback__))
                _log.error("sending failed: %s\n%s", type(error).__name__, where)
                self._reject(each.waiting.request, errors.internal(DEFECT), each.waiting.trace)
        if leaving:
            asyncio.get_running_loop().call_soon(self._send_some, leaving)

    def _let_go(self, leaving: "_Leaving") -> None:
        waiting, placement, serial = leaving.waiting, leaving.placement, leaving.serial
        if self._pending.pop(id(waiting.request), None) is None:
            # Its client left since the window closed.
            if serial is not None:
                self._beliefs.ended(serial, self._clock.unix())
        elif serial is not None:
            self._send(waiting, placement, serial)
        else:
            self._metrics.placed(placement)
            waiting.trace.placed(waiting.llm, placement)
            self._reject(waiting.request, errors.nothing_feasible(placement.reason), waiting.trace)

    def failed(self, batch: Sequence[Waiting]) -> None:
        """A defect: answer those that have no answer."""
        for waiting in batch:
            if self._pending.pop(id(waiting.request), None) is not None:
                self._reject(waiting.request, errors.internal(DEFECT), waiting.trace)

    def _send(self, waiting: Waiting, placement: Placement, serial: int) -> None:
        assert placement.region is not None
        request, trace, now_s = waiting.request, waiting.trace, self._clock.monotonic()
        trace.placed(waiting.llm, placement)
        removed = tuple(name for name in OWN_REQUEST_HEADERS if request.header(name) is not None)
        ctx = RegionContext(placement.region, waiting.llm, trace, now_s, serial)
        routed = request.route(
            None,
            (*trace.set_headers, (self._header, placement.region)),
            (*trace.remove_headers, *removed),
            response_headers=((self._header, placement.region), *waiting.told),
            ctx=ctx,
        )
        if not routed:
            self._beliefs.ended(serial, self._clock.unix())
            trace.cancelled()
            return
        self._routed += 1
        self._metrics.placed(placement)
        self._lengths.started(waiting.llm.model, now_s)
        self._beliefs.prefixes.sent(waiting.chain, placement.region, now_s)
        if self._sessions is not None:
            self._sessions.routed(waiting.llm, placement.region)

    def _route_unparsed(self, request: Request, trace: RequestTrace) -> None:
        """Paths such as /v1/models go to the nearest region."""
        region = self._nearest()
        if region is None:
            self._reject(request, errors.no_endpoints("no region is up; try again later"), trace)
            return
        ctx = RegionContext(region, None, trace, self._clock.monotonic())
        headers = ((self._header, region),)
        if request.route(None, (*trace.set_headers, *headers), trace.remove_headers, response_headers=headers, ctx=ctx):
            self._routed += 1
        else:
            trace.cancelled()

    def _learn_of_region(self, region: str, report: Report, now_s: float) -> None:
        """A gateway that cannot reach its region answers itself, or drops what it has."""
        if report.cause in (Cause.SHUTDOWN, Cause.PROTOCOL):
            return
        failed = report.status in GATEWAY_FAILURES or report.status is None
        feed = self._provisioner.feeds[region]
        if failed:
            self._provisioner.poke(region)
        if feed.answered(now_s, failed=failed):
            self._metrics.paused(region)
            _log.warning("region is left alone for a while: its gateway fails requests", extra=_fields(region=region))

    def _reject(self, request: Request, rejection: errors.Rejection, trace: RequestTrace) -> None:
        trace.refused(rejection.status, rejection.reason)
        request.reject(rejection.status, rejection.body(), rejection.headers())
        self._metrics.rejected(rejection.status, rejection.reason or "")
        _log.info("request rejected", extra=_fields(status=rejection.status, reason=rejection.reason))


def _fields(**fields: Any) -> dict[str, Any]:
    return {"fields": fields}
