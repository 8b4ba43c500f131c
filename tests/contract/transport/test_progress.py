"""What can be read of requests in flight at any time (raw gRPC)."""

import asyncio

import pytest
from tests.contract.transport.conftest import Running, Serve
from tests.contract.transport.rawclient import GET, Stream
from tests.contract.transport.recorder import ENDPOINT, Recorder, eventually

from heliotrope_epp.transport.interface import Progress


async def test_progress_follows_the_response(serve: Serve) -> None:
    now = [10.0]
    running = await serve(Recorder(lambda request: request.route(ENDPOINT, ctx="me")), clock=lambda: now[0])
    stream = running.client.open()
    await stream.post()

    def progress() -> Progress:
        (one,) = running.server.inflight()
        return one

    assert progress() == Progress("me", 10.0, 10.0, 0, 0, None, None)
    await stream.response_headers()
    await stream.read()
    assert progress() == Progress("me", 10.0, 10.0, 0, 0, None, None)
    now[0] = 11.0
    await stream.response_body(b"abc")
    await stream.read()
    earlier = progress()
    assert earlier == Progress("me", 10.0, 10.0, 1, 3, 11.0, 11.0)
    now[0] = 13.0
    await stream.response_body(b"de")
    await stream.read()
    assert progress() == Progress("me", 10.0, 10.0, 2, 5, 11.0, 13.0)
    assert earlier.chunks == 1
    await stream.response_body(b"", end=True)
    await stream.read()
    assert running.server.inflight() == []


async def test_undecided_requests_are_not_in_flight(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: None))
    stream = running.client.open()
    await stream.request_headers(GET, end=True)
    request = await running.recorder.request()
    assert running.server.inflight() == []
    stats = running.server.stats()
    assert (stats.open_streams, stats.undecided, stats.routed, stats.requests_total) == (1, 1, 0, 1)
    request.route(ENDPOINT, ctx=1)
    stats = running.server.stats()
    assert (stats.undecided, stats.routed, stats.routed_total) == (0, 1, 1)
    await stream.read()
    await stream.respond()
    stats = running.server.stats()
    assert (stats.routed, stats.routed_total) == (0, 1)


async def test_stats_are_a_copy(running: Running) -> None:
    before = running.server.stats()
    before.refused_total["body"] = 9
    before.requests_total = 9
    stream = running.client.open()
    await stream.post()
    await stream.respond()
    assert running.server.stats().requests_total == 1
    assert running.server.stats().refused_total == {}


async def test_oldest_first(running: Running) -> None:
    streams = []
    for _ in range(3):
        stream = running.client.open()
        await stream.post()
        streams.append(stream)
    assert [progress.ctx for progress in running.server.inflight()] == [1, 2, 3]
    await streams[1].respond()
    assert [progress.ctx for progress in running.server.inflight()] == [1, 3]


@pytest.mark.slow
async def test_a_thousand_requests_at_once(running: Running) -> None:
    async def begin(number: int) -> Stream:
        stream = running.client.open()
        _, body = await stream.post(b"%d" % number)
        assert body == b"%d" % number
        await stream.response_headers()
        await stream.read()
        await stream.response_body(b"first")
        await stream.read()
        return stream

    async def end(stream: Stream) -> None:
        await stream.response_body(b"last", end=True)
        await stream.read()
        assert await stream.read() is None

    streams = await asyncio.gather(*(begin(number) for number in range(1000)))
    flying = running.server.inflight()
    assert len(flying) == 1000
    assert all((progress.chunks, progress.body_bytes) == (1, 5) for progress in flying)
    for stream in streams[:100]:
        stream.call.cancel()
    await asyncio.gather(*(end(stream) for stream in streams[100:]))
    await eventually(lambda: len(running.recorder.reports) == 1000)
    assert sum(report.complete for report in running.recorder.reports.values()) == 900
    await running.settled()
