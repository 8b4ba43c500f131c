"""Other gateways: other body modes, subsets, trailers, TLS to the picker (real Envoy)."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from tests.contract.transport.conftest import ServerFactory
from tests.contract.transport.recorder import Recorder
from tests.support.envoy import Stack, picker_stack
from tests.support.envoy_engine import TestEngine

from heliotrope_epp.transport.interface import Request, SelfSigned
from heliotrope_sim.gateway.config import BodyMode

pytestmark = pytest.mark.envoy


def route_to(engine: TestEngine) -> Recorder:
    return Recorder(lambda request: request.route(engine.address, ctx=request.path))


async def echo(stack: Stack, body: bytes) -> None:
    async with stack.client.post("/echo", data=body) as response:
        assert response.status == 200
        assert await response.read() == body


async def stream_in_order(stack: Stack) -> None:
    async with stack.client.post("/stream", data=b"{}") as response:
        for number in range(3):
            event = b"data: %d\n\n" % number
            stack.engine.events.put_nowait(event)
            assert await asyncio.wait_for(response.content.readexactly(len(event)), 20) == event
        stack.engine.events.put_nowait(None)
        await response.read()


@pytest.mark.parametrize(
    ("request_mode", "response_mode", "trailers"),
    [
        (BodyMode.FULL_DUPLEX_STREAMED, BodyMode.STREAMED, True),
        (BodyMode.FULL_DUPLEX_STREAMED, BodyMode.NONE, True),
        (BodyMode.BUFFERED, BodyMode.STREAMED, False),
        (BodyMode.BUFFERED, BodyMode.BUFFERED, True),
        (BodyMode.STREAMED, BodyMode.STREAMED, True),
        (BodyMode.NONE, BodyMode.NONE, False),
    ],
)
async def test_every_mode_carries_requests(
    implementation: ServerFactory, request_mode: BodyMode, response_mode: BodyMode, trailers: bool
) -> None:
    bodies: list[bytes] = []
    async with TestEngine() as engine:
        recorder = Recorder(
            lambda request: (bodies.append(request.body), request.route(engine.address, ctx=request.path))
        )
        async with picker_stack(
            implementation,
            recorder,
            engine=engine,
            request_body_mode=request_mode,
            response_body_mode=response_mode,
            trailers=trailers,
        ) as stack:
            body = os.urandom(20_000)
            await echo(stack, body)
            async with stack.client.get("/get") as response:
                assert response.status == 200
            sees_body = request_mode in (BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED)
            assert bodies == [body if sees_body else b"", b""]
            if response_mode is not BodyMode.BUFFERED:
                await stream_in_order(stack)
            for path in ("/echo", "/get"):
                report = await recorder.report(path)
                assert (report.status, report.complete) == (200, True)
            if response_mode is not BodyMode.NONE:
                assert recorder.reports["/echo"].body_bytes == 20_000


async def test_a_replaced_body_in_buffered_mode(implementation: ServerFactory) -> None:
    async with TestEngine() as engine:
        recorder = Recorder(lambda request: request.route(engine.address, body=b"a longer body than before", ctx=1))
        async with (
            picker_stack(
                implementation,
                recorder,
                engine=engine,
                request_body_mode=BodyMode.BUFFERED,
                response_body_mode=BodyMode.STREAMED,
            ) as stack,
            stack.client.post("/x", data=b"short") as response,
        ):
            assert await response.read() == b"a longer body than before"


async def test_the_gateways_subset_arrives(implementation: ServerFactory) -> None:
    seen: list[object] = []
    async with TestEngine() as engine:

        def answer(request: Request) -> None:
            seen.append(request.subset)
            request.route(engine.address, ctx=1)

        subset = ("10.0.0.1", "10.0.0.2:8000")
        async with picker_stack(implementation, Recorder(answer), engine=engine, subset=subset) as stack:
            await echo(stack, b"{}")
    assert seen == [subset]


@pytest.mark.parametrize("tls", [None, SelfSigned()])
async def test_encrypted_and_plain(implementation: ServerFactory, tls: SelfSigned | None) -> None:
    async with TestEngine() as engine:
        recorder = route_to(engine)
        async with picker_stack(implementation, recorder, engine=engine, tls=tls) as stack:
            await echo(stack, os.urandom(200_000))


TRAILED_REQUEST = (
    b"POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n\r\n"
    b"5\r\nhello\r\n0\r\nx-end: request\r\n\r\n"
)
TRAILED_RESPONSE = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n\r\n5\r\nworld\r\n0\r\nx-end: response\r\n\r\n"
)


async def until_end(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"x-end: request\r\n\r\n")


@pytest.fixture
async def trailing_engine() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers with trailers, and what it received."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await until_end(reader))
        writer.write(TRAILED_RESPONSE)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with server:
        yield f"{host}:{port}", received


@pytest.mark.parametrize(
    ("request_mode", "response_mode"),
    [
        (BodyMode.FULL_DUPLEX_STREAMED, BodyMode.FULL_DUPLEX_STREAMED),
        (BodyMode.BUFFERED, BodyMode.STREAMED),
        (BodyMode.BUFFERED, BodyMode.BUFFERED),
    ],
)
async def test_trailers_pass_both_ways(
    implementation: ServerFactory,
    trailing_engine: tuple[str, list[bytes]],
    request_mode: BodyMode,
    response_mode: BodyMode,
) -> None:
    address, received = trailing_engine
    bodies: list[bytes] = []
    recorder = Recorder(lambda request: (bodies.append(request.body), request.route(address, ctx=1)))
    async with picker_stack(
        implementation,
        recorder,
        http1_trailers=True,
        request_body_mode=request_mode,
        response_body_mode=response_mode,
    ) as stack:
        host, _, port = stack.gateway.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(TRAILED_REQUEST)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        report = await recorder.report()
    assert bodies == [b"hello"]
    assert b"hello" in received[0]
    assert b"world" in answer
    assert b"x-end: response" in answer
    assert (report.status, report.body_bytes, report.complete) == (200, 5, True)
