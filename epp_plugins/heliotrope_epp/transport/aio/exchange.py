"""One stream with the gateway: a request in, a decision out, the response through."""

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import grpc

from heliotrope_epp.transport.aio import wire
from heliotrope_epp.transport.aio.request import REQUEST_ID_HEADER, Answer, IncomingRequest, Rejected, Routed
from heliotrope_epp.transport.aio.response import ResponseRelay
from heliotrope_epp.transport.interface import (
    DROP_REASON_HEADER,
    Cause,
    Decider,
    Headers,
    Limits,
    Progress,
    Report,
    Stats,
)

logger = logging.getLogger(__name__)

_WHOLE_IN_ONE = (wire.BUFFERED, wire.BUFFERED_PARTIAL)
_UNSEEN = (wire.STREAMED, wire.NONE)


class _GoneError(Exception):
    """The gateway has closed its side: nothing more will come, and what is written is lost."""


class _RefusedError(Exception):
    """The transport answers the client itself."""

    def __init__(self, reason: str, status: HTTPStatus, text: str, headers: Headers = ()) -> None:
        super().__init__(text)
        self.reason = reason
        self.reply = wire.immediate_reply(status, text.encode(), (("content-type", "text/plain"), *headers))


@dataclass(slots=True)
class Shared:
    """What all exchanges of a server have in common; touched on the loop's thread alone."""

    decider: Decider
    limits: Limits
    clock: Callable[[], float]
    report_headers: frozenset[str]
    stats: Stats = field(default_factory=Stats)
    routed: "dict[Exchange, None]" = field(default_factory=dict)
    """Requests in flight, oldest decision first."""
    warned: bool = False
    """Whether the log says that this gateway hides bodies."""
    stopping: bool = False


class Exchange:
    """The conversation of one stream; `run` is its whole life."""

    __slots__ = ("_context", "_held", "_pending_read", "_relay", "_request", "_routed", "_shared", "_waiter")

    def __init__(self, shared: Shared, context: Any) -> None:
        self._shared = shared
        self._context = context
        self._request: IncomingRequest | None = None
        """The request from the moment that the decider has it."""
        self._routed: Routed | None = None
        self._relay: ResponseRelay | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._pending_read: asyncio.Task[Any] | None = None
        self._held = 0

    async def run(self) -> None:
        """Serve the stream; returns right after the last reply, without waiting for the gateway to close its side.

        A handler that waits for the end of an Envoy stream leaks native memory in grpc.
        """
        stats = self._shared.stats
        stats.open_streams += 1
        cause = Cause.DISCONNECTED
        try:
            await self._serve()
        except _GoneError:
            pass
        except _RefusedError as refused:
            stats.refused_total[refused.reason] = stats.refused_total.get(refused.reason, 0) + 1
            with contextlib.suppress(_GoneError):
                await self._write(refused.reply)
        except wire.MalformedMessageError as error:
            cause = Cause.PROTOCOL
            stats.refused_total["protocol"] = stats.refused_total.get("protocol", 0) + 1
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            stats.open_streams -= 1
            self._release()
            if self._pending_read is not None:
                # It ends with the stream; cancelling it would leak the batch that it waits for (grpc#43360).
                self._pending_read.add_done_callback(_forget)
            self._end(Cause.SHUTDOWN if self._shared.stopping and cause is Cause.DISCONNECTED else cause)

    def progress(self) -> Progress:
        """How far a routed request is."""
        request, routed, relay = self._request, self._routed, self._relay
        assert request is not None
        assert routed is not None
        assert relay is not None
        return Progress(
            ctx=routed.ctx,
            received_s=request.received_s,
            routed_s=routed.at_s,
            chunks=relay.chunks,
            body_bytes=relay.body_bytes,
            first_s=relay.first_s,
            last_s=relay.last_s,
        )

    async def _serve(self) -> None:
        shared = self._shared
        first = await self._next()
        if shared.stats.open_streams > shared.limits.max_streams:
            raise _overloaded("streams", "too many requests in flight")
        modes = wire.modes(first)
        if unanswerable := await self._receive(first, modes):
            await self._pass_through(unanswerable, ResponseRelay(modes, shared.clock))
            return
        if early := await self._decide():
            await self._pass_through(early, ResponseRelay(modes, shared.clock))
            return
        request, relay = self._request, self._relay
        assert request is not None
        if isinstance(request.answer, Rejected):
            await self._write(request.answer.reply)
            return
        assert isinstance(request.answer, Routed)
        assert relay is not None
        await self._send_on(request.answer, request.has_trailers)
        await self._pass_through(None, relay)

    async def _receive(self, first: Any, modes: wire.Modes) -> Any | None:
        """Take in the request up to where it can be decided.

        Returns:
            None, or a message of a response that the gateway made itself before the request was complete.
        """
        shared = self._shared
        kind = first.WhichOneof("request")
        if kind is None or not kind.startswith("request_h"):
            return _response_only(first)
        self._check(modes)
        shared.stats.requests_total += 1
        request = IncomingRequest(first, modes, shared.clock, self._context.invocation_metadata)
        _check_headers(request, shared.limits)
        if first.request_headers.end_of_stream or modes.request in _UNSEEN:
            request.complete_without_body(self._answered)
            self._request = request
            return None
        one_message = modes.request in _WHOLE_IN_ONE
        if one_message:
            await self._write(wire.REQUEST_HEADERS_CONTINUE)
        body = bytearray()
        while True:
            message = await self._next()
            kind = message.WhichOneof("request")
            if kind == "request_body":
                part = message.request_body
                self._hold(len(part.body))
                body += part.body
                if part.end_of_stream:
                    break
                if one_message:
                    if modes.request == wire.BUFFERED_PARTIAL:
                        raise _too_large()
                    request.has_trailers = True
                    break
            elif kind == "request_trailers":
                if one_message:
                    raise wire.MalformedMessageError("trailers of a request without a body")
                request.has_trailers = True
                break
            else:
                return _response_only(message)
        request.complete(bytes(body), message, self._answered)
        self._request = request
        return None

    async def _decide(self) -> Any | None:
        """Ask the decider and wait for its answer.

        Returns:
            None, or a message of a response that the gateway made itself while the request waited.
        """
        shared, request = self._shared, self._request
        assert request is not None
        shared.stats.undecided += 1
        try:
            shared.decider.decide(request)
        except Exception as error:  # noqa: BLE001
            # The message is left out: it may quote the body.
            logger.error(  # noqa: TRY400
                "the decider failed on request %s: %s\n%s",
                request.header(REQUEST_ID_HEADER),
                type(error).__name__,
                "".join(traceback.format_tb(error.__traceback__)),
            )
            shared.stats.failed_total += 1
            request.reject(HTTPStatus.INTERNAL_SERVER_ERROR, b"the endpoint picker failed on this request")
        if request.answer is not None:
            return None
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        while not self._waiter.done():
            # Only a read notices that the client leaves.
            if self._pending_read is None:
                self._pending_read = loop.create_task(self._context.read())
            await asyncio.wait((self._waiter, self._pending_read), return_when=asyncio.FIRST_COMPLETED)
            if not self._waiter.done():
                message = await self._next()
                if message.WhichOneof("request") not in ("request_body", "request_trailers"):
                    self._give_up()
                    return _response_only(message)
        return None

    def _answered(self, answer: Answer) -> None:
        """Called by the request when the decider answers."""
        shared, request = self._shared, self._request
        assert request is not None
        shared.stats.undecided -= 1
        if isinstance(answer, Routed):
            shared.stats.routed_total += 1
            shared.stats.routed += 1
            self._routed = answer
            self._relay = ResponseRelay(
                request.modes,
                shared.clock,
                answer.response_headers_reply,
                shared.report_headers,
                shared.limits.tail_bytes,
            )
            shared.routed[self] = None
        else:
            shared.stats.rejected_total += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _send_on(self, routed: Routed, has_trailers: bool) -> None:
        body, routed.body = routed.body, None
        await self._write(routed.reply)
        if body is not None:
            for chunk in wire.request_chunks(body, ends=not has_trailers):
                await self._write(chunk)
            if has_trailers:
                await self._write(wire.REQUEST_TRAILERS_CONTINUE)
        self._release()

    async def _pass_through(self, message: Any | None, relay: ResponseRelay) -> None:
        """Answer the response's messages until its end; books are closed before the last reply leaves."""
        while True:
            message = await self._next() if message is None else message
            chunks = relay.chunks
            replies, ended = relay.handle(message)
            message = None
            if relay.chunks > chunks:
                self._progressed(relay)
            if ended:
                self._end(Cause.COMPLETE)
            for reply in replies:
                await self._write(reply)
            if ended:
                return

    def _progressed(self, relay: ResponseRelay) -> None:
        """Tell the decider of a piece, unless nobody decided on this request."""
        routed = self._routed
        if routed is None:
            return
        assert relay.last_s is not None
        try:
            self._shared.decider.progressed(routed.ctx, relay.last_s)
        except Exception:
            logger.exception("the decider failed to take the progress of a request")

    def _end(self, cause: Cause) -> None:
        """Close the books of this request; only the first call counts."""
        shared, request, routed, relay = self._shared, self._request, self._routed, self._relay
        if request is None:
            return
        if routed is None or relay is None:
            if request.answer is None:
                self._give_up()
            return
        self._routed = None
        del shared.routed[self]
        shared.stats.routed -= 1
        report = Report(
            status=relay.status,
            headers=relay.headers,
            served=relay.served,
            chunks=relay.chunks,
            body_bytes=relay.body_bytes,
            received_s=request.received_s,
            routed_s=routed.at_s,
            first_s=relay.first_s,
            last_s=relay.last_s,
            ended_s=shared.clock(),
            tail=relay.tail(),
            cause=cause,
        )
        try:
            shared.decider.done(routed.ctx, report)
        except Exception:
            logger.exception("the decider failed to take the report of request %s", request.header(REQUEST_ID_HEADER))

    def _give_up(self) -> None:
        """The client left before the answer."""
        request = self._request
        assert request is not None
        if request.cancelled:
            return
        request.cancelled = True
        request.close()
        self._shared.stats.undecided -= 1
        self._shared.stats.cancelled_total += 1
        try:
            self._shared.decider.cancelled(request)
        except Exception:
            logger.exception("the decider failed to forget request %s", request.header(REQUEST_ID_HEADER))

    def _check(self, modes: wire.Modes) -> None:
        if wire.GRPC in (modes.request, modes.response):
            raise wire.MalformedMessageError("body mode GRPC is not supported; use FULL_DUPLEX_STREAMED")
        if modes.request in _UNSEEN and not self._shared.warned:
            self._shared.warned = True
            logger.warning(
                "the gateway does not show request bodies before it sends them on (request_body_mode %s): "
                "requests are decided by their headers; set FULL_DUPLEX_STREAMED",
                "NONE" if modes.request == wire.NONE else "STREAMED",
            )

    def _hold(self, size: int) -> None:
        shared = self._shared
        self._held += size
        shared.stats.buffered_bytes += size
        if self._held > shared.limits.max_body_bytes:
            raise _too_large()
        if shared.stats.buffered_bytes > shared.limits.max_buffered_bytes:
            raise _overloaded("memory", "too many request bodies are waiting")

    def _release(self) -> None:
        self._shared.stats.buffered_bytes -= self._held
        self._held = 0

    async def _next(self) -> Any:
        pending, self._pending_read = self._pending_read, None
        try:
            raw = await (self._context.read() if pending is None else pending)
        except grpc.aio.BaseError as error:
            raise _GoneError from error
        if raw is grpc.aio.EOF:
            raise _GoneError
        return wire.decode(raw)

    async def _write(self, reply: bytes) -> None:
        try:
            await self._context.write(reply)
        except grpc.aio.BaseError as error:
            raise _GoneError from error


def _check_headers(request: IncomingRequest, limits: Limits) -> None:
    if request.header_bytes > limits.max_header_bytes:
        raise _RefusedError(
            "headers", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's headers are too large"
        )
    length = request.header("content-length")
    if length is not None and length.isdecimal() and int(length) > limits.max_body_bytes:
        raise _too_large()


def _too_large() -> _RefusedError:
    return _RefusedError("body", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request's body is too large")


def _overloaded(reason: str, text: str) -> _RefusedError:
    return _RefusedError(reason, HTTPStatus.SERVICE_UNAVAILABLE, text, ((DROP_REASON_HEADER, "rejected-saturated"),))


def _response_only(message: Any) -> Any:
    """The message, if it belongs to a response."""
    kind = message.WhichOneof("request")
    if kind is None or not kind.startswith("response"):
        raise wire.MalformedMessageError(f"{kind or 'an empty message'} out of turn")
    return message


def _forget(read: asyncio.Task[Any]) -> None:
    if not read.cancelled():
        read.exception()
