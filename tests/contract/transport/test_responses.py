"""How a response passes through, and what the report of it says (raw gRPC)."""

import asyncio
from typing import Any

import pytest
from tests.contract.transport.conftest import Running, Serve
from tests.contract.transport.rawclient import Stream, set_headers
from tests.contract.transport.recorder import ENDPOINT, Recorder

from heliotrope_epp.transport.interface import MAX_CHUNK_BYTES, Cause, Limits

EVENT_STREAM = ((":status", "200"), ("content-type", "text/event-stream"), ("x-other", "1"))


async def routed(running: Running) -> Stream:
    stream = running.client.open()
    await stream.post()
    return stream


async def piece(stream: Stream) -> Any:
    return (await stream.read()).response_body.response.body_mutation.streamed_response


async def test_every_event_is_passed_on_before_the_next_arrives(running: Running) -> None:
    stream = await routed(running)
    await stream.response_headers(EVENT_STREAM)
    assert (await stream.read()).WhichOneof("response") == "response_headers"
    for number in range(5):
        event = b"data: %d\n\n" % number
        await stream.response_body(event)
        passed = await piece(stream)
        assert passed.body == event
        assert not passed.end_of_stream
    await stream.response_body(b"", end=True)
    passed = await piece(stream)
    assert passed.body == b""
    assert passed.end_of_stream
    assert await stream.read() is None
    report = await running.recorder.report()
    assert (report.chunks, report.body_bytes, report.complete) == (5, 45, True)
    assert report.tail == b"".join(b"data: %d\n\n" % number for number in range(5))


async def test_a_plain_response_passes_in_pieces_too(running: Running) -> None:
    stream = await routed(running)
    await stream.response_headers()
    await stream.read()
    await stream.response_body(b"{")
    assert (await piece(stream)).body == b"{"
    await stream.response_body(b"}", end=True)
    assert (await piece(stream)).end_of_stream


async def test_the_stream_ends_right_after_the_last_reply(running: Running) -> None:
    stream = await routed(running)
    await stream.respond()
    assert await stream.call.code() is not None
    await running.settled()


async def test_done_is_called_before_the_last_reply_leaves(running: Running) -> None:
    stream = await routed(running)
    await stream.respond()
    assert list(running.recorder.reports) == [1]


async def test_the_report_has_every_figure(serve: Serve) -> None:
    now = [100.0]
    recorder = Recorder()
    running = await serve(recorder, clock=lambda: now[0], report_headers=("Content-Type", "x-other"))
    stream = running.client.open()
    await stream.request_headers()
    await asyncio.sleep(0.1)
    now[0] = 101.0
    await stream.request_body(b"{}", end=True)
    await stream.read_request_replies()
    now[0] = 102.0
    await stream.response_headers(EVENT_STREAM, served="10.0.0.2:8000")
    await stream.read()
    for now[0], body, end in [
        (103.0, b"", False),
        (104.0, b"one", False),
        (107.0, b"three", False),
        (108.0, b"", True),
    ]:
        await stream.response_body(body, end=end)
        await stream.read()
    report = await recorder.report()
    assert report.status == 200
    assert report.headers == {"content-type": "text/event-stream", "x-other": "1"}
    assert report.served == "10.0.0.2:8000"
    assert (report.received_s, report.routed_s) == (100.0, 101.0)
    assert (report.first_s, report.last_s, report.ended_s, report.total_s) == (104.0, 107.0, 108.0, 8.0)
    assert (report.chunks, report.body_bytes, report.tail) == (2, 8, b"onethree")
    assert report.cause is Cause.COMPLETE


async def test_only_asked_for_headers_are_reported(running: Running) -> None:
    stream = await routed(running)
    await stream.response_headers(EVENT_STREAM, end=True)
    await stream.read()
    report = await running.recorder.report()
    assert report.headers == {"content-type": "text/event-stream"}
    assert report.served is None


@pytest.mark.parametrize(("size", "total"), [(1, 99), (1, 301), (99, 500), (100, 500), (101, 101), (1000, 1000)])
async def test_the_tail_is_the_last_bytes(serve: Serve, size: int, total: int) -> None:
    running = await serve(limits=Limits(tail_bytes=100))
    body = bytes(index % 251 for index in range(total))
    stream = await routed(running)
    await stream.response_headers()
    await stream.read()
    for start in range(0, total, size):
        await stream.response_body(body[start : start + size])
        await stream.read()
    await stream.response_body(b"", end=True)
    await stream.read()
    report = await running.recorder.report()
    assert report.tail == body[-100:]


async def test_without_a_tail_nothing_is_kept(serve: Serve) -> None:
    running = await serve(limits=Limits(tail_bytes=0))
    stream = await routed(running)
    await stream.respond(b"text")
    assert (await running.recorder.report()).tail == b""


async def test_a_response_without_a_body_ends_with_its_headers(running: Running) -> None:
    stream = await routed(running)
    await stream.response_headers(((":status", "204"),), end=True)
    assert (await stream.read()).WhichOneof("response") == "response_headers"
    assert await stream.read() is None
    report = await running.recorder.report()
    assert (report.status, report.chunks, report.first_s, report.last_s, report.complete) == (204, 0, None, None, True)


async def test_trailers_end_a_response(running: Running) -> None:
    stream = await routed(running)
    await stream.response_headers()
    await stream.read()
    await stream.response_body(b"text")
    assert not (await piece(stream)).end_of_stream
    assert running.recorder.reports == {}
    await stream.response_trailers()
    assert (await stream.read()).WhichOneof("response") == "response_trailers"
    assert await stream.read() is None
    assert (await running.recorder.report()).complete


async def test_a_large_piece_is_cut(running: Running) -> None:
    body = bytes(range(256)) * 1000
    stream = await routed(running)
    await stream.response_headers()
    await stream.read()
    await stream.response_body(body, end=True)
    pieces = [await piece(stream)]
    while not pieces[-1].end_of_stream:
        pieces.append(await piece(stream))
    assert all(len(one.body) <= MAX_CHUNK_BYTES for one in pieces)
    assert b"".join(one.body for one in pieces) == body
    assert (await running.recorder.report()).chunks == 1


async def test_response_headers_are_fixed_by_the_decision(serve: Serve) -> None:
    running = await serve(
        Recorder(lambda request: request.route(ENDPOINT, response_headers=[("x-g-co2e", "0.2")], ctx=1))
    )
    stream = await routed(running)
    await stream.response_headers()
    assert set_headers(await stream.read(), "response_headers") == {"x-g-co2e": "0.2"}
    await stream.response_body(b"", end=True)
    await stream.read()


async def test_an_error_of_the_engine_is_a_complete_response(running: Running) -> None:
    stream = await routed(running)
    await stream.response_headers(((":status", "503"),))
    await stream.read()
    await stream.response_body(b"upstream connect error", end=True)
    await stream.read()
    report = await running.recorder.report()
    assert (report.status, report.complete, report.tail) == (503, True, b"upstream connect error")


async def test_a_response_without_a_request_passes_undecided(running: Running) -> None:
    stream = running.client.open()
    await stream.response_headers(((":status", "403"),))
    assert (await stream.read()).WhichOneof("response") == "response_headers"
    await stream.response_body(b"denied", end=True)
    assert (await piece(stream)).body == b"denied"
    assert await stream.read() is None
    assert running.recorder.requests == []


async def test_a_response_in_the_middle_of_a_request_passes_undecided(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"half")
    await stream.response_headers(((":status", "408"),), end=True)
    assert (await stream.read()).WhichOneof("response") == "response_headers"
    assert await stream.read() is None
    assert running.recorder.requests == []
    await running.settled()
