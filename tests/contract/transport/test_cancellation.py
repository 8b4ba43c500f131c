"""Clients that leave, at every stage and in every way, and answers that come late (raw gRPC)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.transport.conftest import Running, Serve
from tests.contract.transport.rawclient import Mode, Stream, destination
from tests.contract.transport.recorder import ENDPOINT, Recorder, eventually

from heliotrope_epp.transport.interface import Cause, Request

Leave = Callable[[Running, Stream], Awaitable[None]]


async def reset(running: Running, stream: Stream) -> None:
    stream.call.cancel()


async def half_close(running: Running, stream: Stream) -> None:
    """What Envoy does first when its client leaves."""
    await stream.call.done_writing()


async def close_connection(running: Running, stream: Stream) -> None:
    await running.client.channel.close()


LEAVE = pytest.mark.parametrize("leave", [reset, half_close, close_connection])


def hold(request: Request) -> None:
    """Answers nothing for now."""


async def opened(running: Running) -> Stream:
    stream = running.client.open()
    await stream.request_headers()
    await eventually(lambda: running.server.stats().requests_total == 1)
    return stream


@LEAVE
async def test_before_the_body_has_ended(running: Running, leave: Leave) -> None:
    stream = await opened(running)
    await stream.request_body(b"half")
    await eventually(lambda: running.server.stats().buffered_bytes == 4)
    await leave(running, stream)
    await running.settled()
    assert running.recorder.requests == []


@LEAVE
async def test_while_the_decision_is_pending(serve: Serve, leave: Leave) -> None:
    running = await serve(Recorder(hold))
    stream = await opened(running)
    await stream.request_body(b"{}", end=True)
    request = await running.recorder.request()
    assert not request.cancelled
    await leave(running, stream)
    await eventually(lambda: running.recorder.cancellations == [request])
    assert request.cancelled
    assert not request.route(ENDPOINT, ctx=1)
    assert not request.reject(503)
    await running.settled()
    assert running.recorder.reports == {}


@LEAVE
async def test_after_the_decision(running: Running, leave: Leave) -> None:
    stream = running.client.open()
    await stream.post()
    await leave(running, stream)
    report = await running.recorder.report()
    assert report.cause is Cause.DISCONNECTED
    assert (report.status, report.chunks, report.complete) == (None, 0, False)
    await running.settled()


@LEAVE
async def test_in_the_middle_of_the_response(running: Running, leave: Leave) -> None:
    stream = running.client.open()
    await stream.post()
    await stream.response_headers()
    await stream.read()
    await stream.response_body(b"half")
    await stream.read()
    await leave(running, stream)
    report = await running.recorder.report()
    assert (report.status, report.chunks, report.complete) == (200, 1, False)
    assert report.tail == b"half"
    await running.settled()


@LEAVE
async def test_at_the_very_end_the_response_still_counts_once(running: Running, leave: Leave) -> None:
    stream = running.client.open()
    await stream.post()
    await stream.response_headers()
    await stream.read()
    await stream.response_body(b"all", end=True)
    await running.recorder.report()
    await leave(running, stream)
    await running.settled()
    assert running.recorder.reports[1].complete


async def test_while_the_request_is_on_its_way_to_an_engine_that_does_not_read(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    for _ in range(100):
        await stream.request_body(b"x" * 60_000)
    await stream.request_body(b"", end=True)
    await running.recorder.request()
    await asyncio.sleep(0.1)
    assert running.server.stats().buffered_bytes == 6_000_000
    stream.call.cancel()
    report = await running.recorder.report()
    assert not report.complete
    await running.settled()


async def test_right_after_the_first_message(running: Running) -> None:
    for _ in range(50):
        stream = running.client.open()
        await stream.request_headers()
        stream.call.cancel()
    await running.settled()
    assert running.recorder.requests == []


async def test_a_stream_without_a_message(running: Running) -> None:
    stream = running.client.open()
    await stream.call.done_writing()
    assert await stream.read() is None
    await running.settled()


async def test_clients_that_leave_do_not_disturb_their_neighbours(serve: Serve) -> None:
    """Envoy carries all clients on one connection: 200 resets must not cost the others theirs."""
    running = await serve()
    others = []
    for _ in range(5):
        other = running.client.open()
        await other.post()
        await other.response_headers()
        await other.read()
        others.append(other)
    for _ in range(200):
        stream = running.client.open()
        await stream.request_headers()
        stream.call.cancel()
    for other in others:
        await other.response_body(b"still here", end=True)
        assert (await other.read()).response_body.response.body_mutation.streamed_response.body == b"still here"
        assert await other.read() is None
    await running.settled()
    assert all(report.complete for report in running.recorder.reports.values())


async def test_a_late_answer(serve: Serve) -> None:
    running = await serve(Recorder(hold))
    stream = await opened(running)
    await stream.request_body(b"{}", end=True)
    request = await running.recorder.request()
    assert request.body == b"{}"
    await asyncio.sleep(0.1)
    assert running.server.stats().undecided == 1
    assert request.route(ENDPOINT, ctx=1)
    assert [progress.ctx for progress in running.server.inflight()] == [1]
    reply, body = await stream.read_request_replies()
    assert destination(reply) == ENDPOINT
    assert body == b"{}"
    await stream.respond()
    report = await running.recorder.report()
    assert report.routed_s - report.received_s >= 0.1


async def test_a_late_rejection(serve: Serve) -> None:
    running = await serve(Recorder(hold))
    stream = await opened(running)
    await stream.request_body(b"{}", end=True)
    request = await running.recorder.request()
    assert request.reject(429, b"queue full")
    assert not request.route(ENDPOINT, ctx=1)
    assert (await stream.read()).immediate_response.status.code == 429
    assert await stream.read() is None
    await running.settled()


async def test_a_route_that_came_just_before_the_client_left_is_reported(serve: Serve) -> None:
    running = await serve(Recorder(hold))
    stream = await opened(running)
    await stream.request_body(b"{}", end=True)
    request = await running.recorder.request()
    stream.call.cancel()
    assert request.route(ENDPOINT, ctx=1)
    report = await running.recorder.report()
    assert not report.complete
    assert running.recorder.cancellations == []
    await running.settled()


async def test_late_answers_come_in_any_order(serve: Serve) -> None:
    running = await serve(Recorder(hold))
    streams = []
    for number in range(10):
        stream = running.client.open()
        await stream.request_headers()
        await stream.request_body(b"%d" % number, end=True)
        await running.recorder.request(number + 1)
        streams.append(stream)
    for index in reversed(range(10)):
        assert running.recorder.requests[index].route(f"10.0.0.{index}:80", ctx=index)
    for index, stream in enumerate(streams):
        reply, body = await stream.read_request_replies()
        assert destination(reply) == f"10.0.0.{index}:80"
        assert body == b"%d" % index
        await stream.respond()


async def test_the_gateway_answers_while_the_decision_is_pending(serve: Serve) -> None:
    """Its request time-out, for instance: the response passes, and the request is over."""
    running = await serve(Recorder(hold))
    stream = await opened(running)
    await stream.request_body(b"{}", end=True)
    request = await running.recorder.request()
    await stream.response_headers(((":status", "408"),))
    assert (await stream.read()).WhichOneof("response") == "response_headers"
    assert running.recorder.cancellations == [request]
    assert not request.route(ENDPOINT, ctx=1)
    await stream.response_body(b"timeout", end=True)
    assert (await stream.read()).response_body.response.body_mutation.streamed_response.body == b"timeout"
    assert await stream.read() is None


async def test_a_second_end_of_the_body_is_ignored_while_the_decision_is_pending(serve: Serve) -> None:
    running = await serve(Recorder(hold))
    stream = await opened(running)
    await stream.request_body(b"{}", end=True)
    request = await running.recorder.request()
    await stream.request_body(b"", end=True)
    await asyncio.sleep(0.05)
    assert request.route(ENDPOINT, ctx=1)
    _, body = await stream.read_request_replies()
    assert body == b"{}"
    await stream.respond()


async def test_a_second_end_of_the_body_is_ignored_after_the_decision(running: Running) -> None:
    stream = running.client.open()
    await stream.post()
    await stream.request_body(b"", end=True)
    await stream.respond()


@pytest.mark.parametrize("mode", [Mode.BUFFERED, Mode.NONE])
async def test_late_answers_in_other_modes(serve: Serve, mode: int) -> None:
    running = await serve(Recorder(hold))
    stream = running.client.open(request_mode=mode)
    await stream.request_headers()
    if mode == Mode.BUFFERED:
        await stream.read()
        await stream.request_body(b"{}", end=True)
    request = await running.recorder.request()
    assert request.route(ENDPOINT, ctx=1)
    assert destination(await stream.read()) == ENDPOINT
    await stream.respond()
