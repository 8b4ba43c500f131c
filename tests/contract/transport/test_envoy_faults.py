"""Gateways that die and pickers that go (real Envoy)."""

import asyncio
from contextlib import AsyncExitStack, suppress

import aiohttp
import pytest
from tests.contract.transport.conftest import ServerFactory
from tests.contract.transport.recorder import Recorder, eventually
from tests.support.envoy import CLIENT_TIMEOUT, picker_stack
from tests.support.envoy_engine import TestEngine

from heliotrope_epp.transport.interface import Request
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway

pytestmark = pytest.mark.envoy


async def test_envoy_killed_leaves_nothing_in_flight(implementation: ServerFactory) -> None:
    async with TestEngine() as engine:

        def answer(request: Request) -> None:
            if request.path == "/stream":
                request.route(engine.address, ctx=len(recorder.requests))

        recorder = Recorder(answer)
        async with picker_stack(implementation, recorder, engine=engine) as stack:
            responses = [asyncio.ensure_future(stack.client.post("/stream", data=b"{}")) for _ in range(5)]
            await recorder.request(5)
            waiting = [asyncio.ensure_future(stack.client.post("/wait", data=b"{}")) for _ in range(5)]
            await recorder.request(10)
            for _ in responses:
                engine.events.put_nowait(b"data: 1\n\n")
            await eventually(lambda: sum(one.body_bytes for one in stack.server.inflight()) == 45)
            assert len(stack.server.inflight()) == 5
            assert stack.server.stats().undecided == 5
            await stack.gateway.kill()
            await eventually(lambda: stack.server.stats().open_streams == 0)
            assert stack.server.inflight() == []
            assert len(recorder.reports) == 5
            assert not any(report.complete for report in recorder.reports.values())
            assert len(recorder.cancellations) == 5
            for task in (*responses, *waiting):
                with suppress(aiohttp.ClientError):
                    (await task).close()


async def test_a_new_envoy_finds_the_same_picker(implementation: ServerFactory) -> None:
    async with TestEngine() as engine:
        recorder = Recorder(lambda request: request.route(engine.address, ctx=len(recorder.requests)))
        server = implementation(recorder)
        bound = await server.start("127.0.0.1:0")
        server.set_serving(True)
        for _ in range(2):
            async with (
                running_gateway(GatewayConfig(pickers=(f"127.0.0.1:{bound.port}",))) as gateway,
                aiohttp.ClientSession(gateway.url, timeout=CLIENT_TIMEOUT) as client,
            ):
                await gateway.wait_for_pickers()
                async with client.post("/x", data=b"{}") as response:
                    assert response.status == 200
                await gateway.kill()
        await server.shutdown(0.0)
        assert len(recorder.reports) == 2


@pytest.mark.slow
async def test_a_drained_picker_loses_no_request(implementation: ServerFactory) -> None:
    """Two pickers, one goes: NOT_SERVING until the gateway has looked (1 s checks, two misses), then GOAWAY."""
    async with TestEngine() as engine, AsyncExitStack() as exits:

        def numbered(index: int) -> Recorder:
            recorder = Recorder()
            name = [("x-picker", str(index))]
            recorder.reset(
                lambda request: request.route(engine.address, ctx=len(recorder.requests), response_headers=name)
            )
            return recorder

        recorders = [numbered(index) for index in range(2)]
        servers = [implementation(recorder) for recorder in recorders]
        pickers = []
        for server in servers:
            pickers.append(f"127.0.0.1:{(await server.start('127.0.0.1:0')).port}")
            exits.push_async_callback(server.shutdown, 0.0)
            server.set_serving(True)
        gateway = await exits.enter_async_context(running_gateway(GatewayConfig(pickers=tuple(pickers))))
        client = await exits.enter_async_context(aiohttp.ClientSession(gateway.url, timeout=CLIENT_TIMEOUT))
        await gateway.wait_for_pickers(2)

        served: list[tuple[int, str]] = []
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                async with client.post("/x", data=b"{}") as response:
                    await response.read()
                    served.append((response.status, response.headers.get("x-picker", "")))
                await asyncio.sleep(0.02)

        workers = [asyncio.ensure_future(load()) for _ in range(4)]
        await eventually(lambda: {picker for _, picker in served} == {"0", "1"}, "both serve")
        async with client.post("/stream", data=b"{}") as long:
            going = int(long.headers["x-picker"])
            await servers[going].drain(5.0)
            drained = len(served)
            shutdown = asyncio.ensure_future(servers[going].shutdown(30.0))
            await eventually(lambda: len(served) > drained + 50, "the other one serves")
            engine.events.put_nowait(b"data: still here\n\n")
            engine.events.put_nowait(None)
            assert await long.read() == b"data: still here\n\n"
            await shutdown
        stop.set()
        await asyncio.gather(*workers)
        assert {status for status, _ in served} == {200}
        assert {picker for _, picker in served[drained:]} == {str(1 - going)}
        await eventually(lambda: sum(len(recorder.reports) for recorder in recorders) == len(served) + 1)
        assert all(report.complete for recorder in recorders for report in recorder.reports.values())
