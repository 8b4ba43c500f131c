"""Requests that are too large or too many, and gateways that send nonsense (raw gRPC)."""

import asyncio

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.contract.transport.conftest import Running, Serve
from tests.contract.transport.rawclient import GET, POST, Mode, Stream, connected
from tests.contract.transport.recorder import Recorder, eventually

from heliotrope_epp.transport.interface import DROP_REASON_HEADER, Limits, Request

MIB = 1024 * 1024


async def refusal(stream: Stream, status: int) -> dict[str, str]:
    """The headers of the transport's own answer."""
    answer = (await stream.read()).immediate_response
    assert answer.status.code == status
    assert answer.body
    return {option.header.key: option.header.raw_value.decode() for option in answer.headers.set_headers}


async def refused(stream: Stream, status: int) -> dict[str, str]:
    """The same of a stream that ends there."""
    headers = await refusal(stream, status)
    assert await stream.read() is None
    return headers


async def flood(running: Running, stream: Stream, pieces: int, size: int) -> tuple[int, int]:
    """How many bytes of a body the transport took before it ended the stream, and how many it held at most."""
    largest = 0
    for number in range(pieces):
        try:
            await stream.request_body(b"x" * size)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            return number * size, largest
        largest = max(largest, running.server.stats().buffered_bytes)
    raise AssertionError("everything was taken")


async def works(running: Running) -> None:
    stream = running.client.open()
    await stream.post()
    await stream.respond()


async def test_an_announced_body_that_is_too_large_is_refused_at_once(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers([*POST, ("content-length", str(32 * MIB + 1))])
    await refused(stream, 413)
    assert running.server.stats().refused_total == {"body": 1}
    await works(running)


async def test_a_hundred_megabytes_are_cut_off_at_the_limit(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    answer = asyncio.ensure_future(refusal(stream, 413))
    sent, largest = await flood(running, stream, pieces=1_700, size=60_000)
    await answer
    assert sent < 40 * MIB
    assert 31 * MIB < largest <= 33 * MIB
    await running.settled()
    assert running.recorder.requests == []


async def test_a_body_of_exactly_the_limit_passes(serve: Serve) -> None:
    running = await serve(limits=Limits(max_body_bytes=1000))
    stream = running.client.open()
    await stream.request_headers([*POST, ("content-length", "1000")])
    await stream.request_body(b"x" * 400)
    await stream.request_body(b"x" * 600, end=True)
    _, body = await stream.read_request_replies()
    assert len(body) == 1000
    await stream.respond()
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"x" * 400)
    await stream.request_body(b"x" * 601, end=True)
    await refused(stream, 413)


@pytest.mark.parametrize("mode", [Mode.BUFFERED, Mode.BUFFERED_PARTIAL])
async def test_a_buffered_body_that_is_too_large(serve: Serve, mode: int) -> None:
    running = await serve(limits=Limits(max_body_bytes=1000))
    stream = running.client.open(request_mode=mode)
    await stream.request_headers()
    await stream.read()
    await stream.request_body(b"x" * 1001, end=True)
    await refused(stream, 413)


async def test_an_odd_content_length_is_not_believed(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers([*POST, ("content-length", "-1,²")])
    await stream.request_body(b"{}", end=True)
    await stream.read_request_replies()
    await stream.respond()


async def test_headers_that_are_too_large(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers([*POST, ("x-large", "x" * 100_000)])
    await refused(stream, 431)
    assert running.server.stats().refused_total == {"headers": 1}
    await works(running)


async def test_all_waiting_bodies_together_are_bounded(serve: Serve) -> None:
    running = await serve(limits=Limits(max_buffered_bytes=100_000))
    waiting = []
    for _ in range(2):
        stream = running.client.open()
        await stream.request_headers()
        await stream.request_body(b"x" * 45_000)
        waiting.append(stream)
    await eventually(lambda: running.server.stats().buffered_bytes == 90_000)
    third = running.client.open()
    await third.request_headers()
    await third.request_body(b"x" * 20_000)
    assert (await refused(third, 503))[DROP_REASON_HEADER] == "rejected-saturated"
    for stream in waiting:
        await stream.request_body(b"", end=True)
        await stream.read_request_replies()
        await stream.respond()
    await running.settled()


async def test_bodies_count_while_their_decision_is_pending(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: None))
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"x" * 1000, end=True)
    request = await running.recorder.request()
    assert running.server.stats().buffered_bytes == 1000
    request.reject(503)
    await stream.read()
    await running.settled()


async def test_a_body_is_let_go_when_it_is_sent_on(running: Running) -> None:
    stream = running.client.open()
    await stream.post(b"x" * 1000)
    await eventually(lambda: running.server.stats().buffered_bytes == 0)
    assert running.server.stats().routed == 1
    await stream.respond()


async def test_too_many_streams(serve: Serve) -> None:
    """Whether the client or the transport holds the rest back, nobody else is hurt."""
    held: list[Request] = []
    running = await serve(Recorder(held.append), limits=Limits(max_streams=5))
    streams = []
    for number in range(5):
        stream = running.client.open()
        await stream.request_headers(GET, end=True)
        await running.recorder.request(number + 1)
        streams.append(stream)
    assert running.server.stats().open_streams == 5
    # One connection carries five streams; another one is over the limit of the process.
    async with connected(f"127.0.0.1:{running.port}") as client:
        late = client.open()
        await late.request_headers(GET, end=True)
        assert (await refused(late, 503))[DROP_REASON_HEADER] == "rejected-saturated"
    assert running.server.stats().refused_total == {"streams": 1}
    for number, request in enumerate(held):
        assert request.route("10.0.0.1:80", ctx=number)
    for stream in streams:
        await stream.read()
        await stream.respond()


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff", b"\x12\x7f\x00", b"GET / HTTP/1.1\r\n\r\n"])
async def test_bytes_that_are_no_message_fail_their_stream_alone(running: Running, raw: bytes) -> None:
    call = running.client.open_raw()
    await call.write(raw)
    assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert running.server.stats().refused_total == {"protocol": 1}
    await works(running)


async def test_nonsense_in_the_middle_of_a_response_ends_the_request_once(running: Running) -> None:
    call = running.client.open_raw()
    headers = pb.ProcessingRequest()
    headers.request_headers.end_of_stream = True
    await call.write(headers.SerializeToString())
    await call.read()
    await call.write(b"\xff\xff")
    assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
    report = await running.recorder.report()
    assert report.cause == "protocol"
    await running.settled()


@pytest.mark.parametrize("first", ["", "request_body", "request_trailers"])
async def test_a_stream_that_does_not_begin_with_headers(running: Running, first: str) -> None:
    message = pb.ProcessingRequest()
    if first:
        getattr(message, first).SetInParent()
    stream = running.client.open()
    await stream.send(message)
    assert await stream.failure() == grpc.StatusCode.INVALID_ARGUMENT
    assert running.recorder.requests == []


async def test_headers_twice(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_headers()
    assert await stream.failure() == grpc.StatusCode.INVALID_ARGUMENT
    assert running.recorder.requests == []


async def test_headers_twice_while_the_decision_is_pending(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: None))
    stream = running.client.open()
    await stream.request_headers(GET, end=True)
    request = await running.recorder.request()
    await stream.request_headers(GET, end=True)
    assert await stream.failure() == grpc.StatusCode.INVALID_ARGUMENT
    await eventually(lambda: running.recorder.cancellations == [request])
    await running.settled()


async def test_a_message_beyond_any_limit_fails_its_stream_alone(serve: Serve) -> None:
    running = await serve(limits=Limits(max_body_bytes=1000))
    stream = running.client.open(request_mode=Mode.BUFFERED)
    await stream.request_headers()
    await stream.read()
    assert (await flood(running, stream, pieces=10, size=4 * MIB))[0] < 40 * MIB
    await stream.failure()
    await running.settled()
    await works(running)


async def test_a_method_that_does_not_exist(running: Running) -> None:
    call = running.client.channel.unary_unary("/envoy.service.ext_proc.v3.ExternalProcessor/Other")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
