"""The order of things inside one stream that no client can see from outside: a scripted gRPC context."""

import asyncio
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from heliotrope_epp.transport.aio.exchange import Exchange, Shared
from heliotrope_epp.transport.interface import Cause, Limits, Report, Request


class Context:
    """Gives the messages of a whole request and response; the gateway is gone at the last write."""

    def __init__(self, events: list[str], fail_at_write: int, error: BaseException) -> None:
        headers, response = pb.ProcessingRequest(), pb.ProcessingRequest()
        headers.request_headers.end_of_stream = True
        response.response_headers.SetInParent()
        last = pb.ProcessingRequest(response_body=pb.HttpBody(body=b"x", end_of_stream=True))
        self._messages = [message.SerializeToString() for message in (headers, response, last)]
        self._events = events
        self._writes = 0
        self._fail_at_write = fail_at_write
        self._error = error

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def read(self) -> Any:
        return self._messages.pop(0) if self._messages else grpc.aio.EOF

    async def write(self, reply: bytes) -> None:
        self._writes += 1
        self._events.append(f"write {self._writes}")
        if self._writes == self._fail_at_write:
            raise self._error


class Router:
    def __init__(self, events: list[str]) -> None:
        self._events = events
        self.reports: list[Report] = []

    def decide(self, request: Request) -> None:
        self._events.append("decide")
        assert request.route("127.0.0.1:80")

    def cancelled(self, request: Request) -> None:
        raise AssertionError("it was answered")

    def progressed(self, ctx: Any, at_s: float) -> None:
        self._events.append("progressed")

    def done(self, ctx: Any, report: Report) -> None:
        self._events.append("done")
        self.reports.append(report)


async def run(fail_at_write: int, error: BaseException) -> tuple[list[str], Report, Shared]:
    events: list[str] = []
    router = Router(events)
    shared = Shared(router, Limits(), iter(range(100)).__next__, frozenset())
    exchange = Exchange(shared, Context(events, fail_at_write, error))
    if isinstance(error, asyncio.CancelledError) and fail_at_write:
        with pytest.raises(asyncio.CancelledError):
            await exchange.run()
    else:
        await exchange.run()
    (report,) = router.reports
    return events, report, shared


ERRORS = pytest.mark.parametrize("error", [asyncio.CancelledError(), grpc.aio.UsageError("gone")], ids=repr)


@ERRORS
async def test_books_are_closed_before_the_last_reply_leaves(error: BaseException) -> None:
    events, report, shared = await run(3, error)
    assert events == ["decide", "write 1", "write 2", "progressed", "done", "write 3"]
    assert report.cause is Cause.COMPLETE
    assert (shared.stats.routed, shared.stats.open_streams, shared.routed) == (0, 0, {})


@ERRORS
@pytest.mark.parametrize("write", [1, 2])
async def test_a_gateway_that_is_gone_at_an_earlier_write_is_a_disconnect(error: BaseException, write: int) -> None:
    events, report, shared = await run(write, error)
    assert events[-2:] == [f"write {write}", "done"]
    assert report.cause is Cause.DISCONNECTED
    assert (shared.stats.routed, shared.stats.open_streams, shared.routed) == (0, 0, {})


async def test_nothing_is_read_or_written_after_the_last_reply() -> None:
    events, report, _ = await run(0, asyncio.CancelledError())
    assert events == ["decide", "write 1", "write 2", "progressed", "done", "write 3"]
    assert report.complete
