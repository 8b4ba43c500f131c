"""Traffic through the real Envoy in the mode of InferencePool gateways: full duplex both ways."""

import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from tests.contract.transport.conftest import ServerFactory
from tests.contract.transport.recorder import Recorder, eventually
from tests.support.envoy import Stack, picker_stack

from heliotrope_epp.transport.interface import ROUTING_HEADERS, Request

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

JSON = {"content-type": "application/json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(implementation: ServerFactory) -> AsyncIterator[tuple[Stack, Recorder]]:
    recorder = Recorder()
    async with picker_stack(implementation, recorder) as stack:
        yield stack, recorder


@pytest_asyncio.fixture(loop_scope="module")
async def recorder(shared: tuple[Stack, Recorder]) -> AsyncIterator[Recorder]:
    """The decider of the shared stack, as new: it sends everything to the engine."""
    stack, recorder = shared
    recorder.reset(lambda request: request.route(stack.engine.address, ctx=len(recorder.requests)))
    yield recorder
    await eventually(lambda: stack.server.stats().open_streams == 0, f"idle: {stack.server.stats()}")
    assert stack.server.inflight() == []


@pytest_asyncio.fixture(loop_scope="module")
async def stack(shared: tuple[Stack, Recorder], recorder: Recorder) -> Stack:
    stack, _ = shared
    stack.engine.seen.clear()
    stack.engine.disconnected.clear()
    assert stack.engine.events.empty()
    return stack


async def text(response: aiohttp.ClientResponse) -> bytes:
    body = await response.read()
    assert response.status == 200, body
    return body


async def test_a_body_reaches_decider_and_engine_and_comes_back(stack: Stack, recorder: Recorder) -> None:
    body = b'{"model": "m", "prompt": "\xc3\xbc"}'
    bodies: list[bytes] = []
    recorder.reset(lambda request: (bodies.append(request.body), request.route(stack.engine.address, ctx=1)))
    async with stack.client.post("/v1/completions?a=1", data=body, headers=JSON) as response:
        assert await text(response) == body
    assert bodies == [body]
    (request,) = recorder.requests
    (seen,) = stack.engine.seen
    assert (request.method, request.path) == (seen.method, seen.path) == ("POST", "/v1/completions?a=1")
    assert seen.body == body
    assert seen.values("x-gateway-destination-endpoint") == [stack.engine.address]
    assert seen.values("x-request-id") == [request.header("x-request-id")]
    report = await recorder.report()
    assert (report.status, report.complete, report.tail) == (200, True, body)


async def test_a_client_cannot_steer_engines(stack: Stack, recorder: Recorder) -> None:
    hostile = [(name, "127.0.0.1:1") for name in sorted(ROUTING_HEADERS)] * 2
    async with stack.client.post("/x", data=b"{}", headers=hostile) as response:
        await text(response)
    (request,) = recorder.requests
    assert not ROUTING_HEADERS & request.headers().keys()
    (seen,) = stack.engine.seen
    for name in ROUTING_HEADERS - {"x-gateway-destination-endpoint"}:
        assert seen.values(name) == []
    assert seen.values("x-gateway-destination-endpoint") == [stack.engine.address]


async def test_the_deciders_headers_replace_the_clients(stack: Stack, recorder: Recorder) -> None:
    recorder.reset(
        lambda request: request.route(
            stack.engine.address,
            set_headers=[("x-prefiller-host-port", "10.0.0.3:8000"), ("x-mine", "new")],
            remove_headers=["x-secret"],
            response_headers=[("x-region", "NO"), ("x-engine", "hidden")],
            ctx=1,
        )
    )
    headers = [("x-prefiller-host-port", "evil"), ("x-mine", "old"), ("x-mine", "older"), ("x-secret", "s")]
    async with stack.client.post("/x", data=b"{}", headers=headers) as response:
        await text(response)
        assert response.headers.getall("x-region") == ["NO"]
        assert response.headers.getall("x-engine") == ["hidden"]
    (seen,) = stack.engine.seen
    assert seen.values("x-prefiller-host-port") == ["10.0.0.3:8000"]
    assert seen.values("x-mine") == ["new"]
    assert seen.values("x-secret") == []


async def test_get(stack: Stack, recorder: Recorder) -> None:
    async with stack.client.get("/v1/models") as response:
        assert await text(response) == b""
    (request,) = recorder.requests
    assert (request.method, request.body) == ("GET", b"")


async def test_post_without_a_body(stack: Stack, recorder: Recorder) -> None:
    async with stack.client.post("/x", headers={"content-length": "0"}) as response:
        assert await text(response) == b""
    assert (await recorder.report()).complete


@pytest.mark.parametrize("size", [1, 61_999, 62_000, 62_001, 400_000, 3_000_000, 10_000_000])
@pytest.mark.parametrize("announced", [True, False], ids=["length", "chunked"])
async def test_large_bodies_arrive_intact_both_ways(
    stack: Stack, recorder: Recorder, size: int, announced: bool
) -> None:
    body = os.urandom(size)
    asked: list[str] = []
    recorder.reset(
        lambda request: (
            asked.append(hashlib.sha256(request.body).hexdigest()),
            request.route(stack.engine.address, ctx=1),
        )
    )

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, size, 50_001):
            yield body[start : start + 50_001]

    async with stack.client.post("/x", data=io.BytesIO(body) if announced else pieces()) as response:
        assert await text(response) == body
    assert asked == [hashlib.sha256(body).hexdigest()]
    report = await recorder.report()
    assert (report.body_bytes, report.tail) == (size, body[-4096:])


@pytest.mark.parametrize("announced", [True, False], ids=["length", "chunked"])
async def test_a_body_that_is_too_large_never_reaches_decider_or_engine(
    stack: Stack, recorder: Recorder, announced: bool
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1_000_000

    data = io.BytesIO(b"x" * 40_000_000) if announced else endless()
    try:
        async with stack.client.post("/x", data=data) as response:
            assert response.status == 413
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        # Envoy closes the connection behind its answer; a client that still writes may not get to read it.
        pass
    refused = stack.server.stats().refused_total
    assert refused["body"] >= 1
    assert recorder.requests == []
    assert stack.engine.seen == []


async def test_a_body_split_inside_a_character(stack: Stack, recorder: Recorder) -> None:
    body = '{"prompt": "😀"}'.encode()
    cut = body.index("😀".encode()) + 2
    bodies: list[bytes] = []
    recorder.reset(lambda request: (bodies.append(request.body), request.route(stack.engine.address, ctx=1)))

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:cut]
        await asyncio.sleep(0.05)
        yield body[cut:]

    async with stack.client.post("/x", data=pieces()) as response:
        assert await text(response) == body
    assert bodies == [body]


@pytest.mark.parametrize("new", [b"", b"short", os.urandom(200_000)], ids=["empty", "short", "long"])
async def test_a_replaced_body(stack: Stack, recorder: Recorder, new: bytes) -> None:
    recorder.reset(lambda request: request.route(stack.engine.address, body=new, ctx=1))
    async with stack.client.post("/x", data=b"the original") as response:
        assert await text(response) == new
    (seen,) = stack.engine.seen
    assert seen.body == new


async def test_the_first_event_reaches_the_client_before_the_second_is_made(stack: Stack, recorder: Recorder) -> None:
    async with stack.client.post("/stream", data=b"{}") as response:
        for number in range(10):
            event = b"data: %d\n\n" % number
            stack.engine.events.put_nowait(event)
            assert await asyncio.wait_for(response.content.readexactly(len(event)), 20) == event
            (progress,) = stack.server.inflight()
            assert progress.chunks == number + 1
        stack.engine.events.put_nowait(b"data: [DONE]\n\n")
        stack.engine.events.put_nowait(None)
        assert await response.content.read() == b"data: [DONE]\n\n"
    report = await recorder.report()
    assert (report.headers["content-type"], report.complete) == ("text/event-stream", True)
    assert report.tail.endswith(b"data: [DONE]\n\n")
    assert report.first_s is not None
    assert report.last_s is not None
    assert report.received_s <= report.routed_s < report.first_s < report.last_s <= report.ended_s


async def test_a_rejection(stack: Stack, recorder: Recorder) -> None:
    recorder.reset(lambda request: request.reject(429, b"queue full", [("retry-after", "3")]))
    async with stack.client.post("/x", data=b"{}") as response:
        assert response.status == 429
        assert response.headers["retry-after"] == "3"
        assert await response.read() == b"queue full"
    assert stack.engine.seen == []


async def test_a_failing_decider(stack: Stack, recorder: Recorder) -> None:
    def fail(request: Request) -> None:
        raise RuntimeError

    recorder.reset(fail)
    async with stack.client.post("/x", data=b"{}") as response:
        assert response.status == 500
    assert stack.engine.seen == []


async def test_a_late_answer_holds_up_nobody_else(stack: Stack, recorder: Recorder) -> None:
    def answer(request: Request) -> None:
        if request.path != "/late":
            request.route(stack.engine.address, ctx=request.path)

    recorder.reset(answer)
    late = asyncio.ensure_future(stack.client.post("/late", data=b"late"))
    waiting = await recorder.request()
    async with stack.client.post("/now", data=b"now") as response:
        assert await text(response) == b"now"
    assert not late.done()
    assert waiting.route(stack.engine.address, ctx="/late")
    async with await late as response:
        assert await text(response) == b"late"


@pytest.mark.parametrize("code", [400, 404, 500, 503])
async def test_errors_of_the_engine_pass(stack: Stack, recorder: Recorder, code: int) -> None:
    async with stack.client.post(f"/status/{code}", data=b"{}") as response:
        assert response.status == code
        assert await response.json() == {"error": "engine"}
    report = await recorder.report()
    assert (report.status, report.complete) == (code, True)


async def test_an_engine_that_is_not_there(stack: Stack, recorder: Recorder) -> None:
    recorder.reset(lambda request: request.route("127.0.0.1:9", ctx=1))
    async with stack.client.post("/x", data=b"{}") as response:
        assert response.status == 503
    report = await recorder.report()
    assert (report.status, report.complete) == (503, True)


async def test_an_engine_that_answers_without_reading_the_body(stack: Stack, recorder: Recorder) -> None:
    """As a server does that refuses a key: the answer must not wait behind the body's pieces."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno")
        await writer.drain()
        await over.wait()
        writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    recorder.reset(lambda request: request.route(f"{host}:{port}", ctx=1))
    async with server:
        async with stack.client.post("/x", data=io.BytesIO(b"x" * 10_000_000)) as response:
            assert (response.status, await response.read()) == (401, b"no")
        over.set()
    report = await recorder.report()
    assert (report.status, report.complete, report.tail) == (401, True, b"no")


async def test_an_engine_that_dies_in_the_middle(stack: Stack, recorder: Recorder) -> None:
    async with stack.client.post("/stream", data=b"{}") as response:
        stack.engine.events.put_nowait(b"data: 1\n\n")
        assert await response.content.readexactly(9) == b"data: 1\n\n"
        stack.engine.events.put_nowait(b"die")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
    report = await recorder.report()
    assert (report.status, report.chunks, report.complete) == (200, 1, False)


async def test_a_client_that_leaves_in_the_middle(stack: Stack, recorder: Recorder) -> None:
    response = await stack.client.post("/stream", data=b"{}")
    stack.engine.events.put_nowait(b"data: 1\n\n")
    assert await response.content.readexactly(9) == b"data: 1\n\n"
    response.close()
    report = await recorder.report()
    assert (report.status, report.chunks, report.complete) == (200, 1, False)
    await asyncio.wait_for(stack.engine.disconnected.wait(), 20)


async def test_a_client_that_leaves_before_the_answer(stack: Stack, recorder: Recorder) -> None:
    recorder.reset(lambda request: None)
    task = asyncio.ensure_future(stack.client.post("/x", data=b"{}"))
    request = await recorder.request()
    task.cancel()
    await eventually(lambda: recorder.cancellations == [request])
    assert not request.route(stack.engine.address, ctx=1)
    assert recorder.reports == {}


async def test_sixty_clients_that_leave_do_not_disturb_a_stream(stack: Stack, recorder: Recorder) -> None:
    def answer(request: Request) -> None:
        if request.path == "/stream":
            request.route(stack.engine.address, ctx="stream")

    recorder.reset(answer)
    async with stack.client.post("/stream", data=b"{}") as response:
        stack.engine.events.put_nowait(b"data: 1\n\n")
        await response.content.readexactly(9)
        tasks = [asyncio.ensure_future(stack.client.post("/x", data=b"{}")) for _ in range(60)]
        await recorder.request(61)
        for task in tasks:
            task.cancel()
        await eventually(lambda: len(recorder.cancellations) == 60)
        stack.engine.events.put_nowait(b"data: 2\n\n")
        assert await asyncio.wait_for(response.content.readexactly(9), 20) == b"data: 2\n\n"
        stack.engine.events.put_nowait(None)
        await response.read()
    assert (await recorder.report("stream")).complete


@pytest.mark.slow
async def test_many_at_once(stack: Stack, recorder: Recorder) -> None:
    def size(number: int) -> int:
        return number * 997 % 150_000

    async def one(number: int) -> None:
        body = bytes([number % 256]) * size(number)
        async with stack.client.post(f"/{number}", data=body) as response:
            assert await text(response) == body

    for start in range(0, 400, 50):
        await asyncio.gather(*(one(number) for number in range(start, start + 50)))
    await eventually(lambda: len(recorder.reports) == 400)
    assert all(report.complete for report in recorder.reports.values())
    assert sum(report.body_bytes for report in recorder.reports.values()) == sum(size(n) for n in range(400))
