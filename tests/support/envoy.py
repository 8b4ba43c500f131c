"""A whole stack for tests: client, real Envoy, transport under test, engine."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from tests.support.envoy_engine import TestEngine

from heliotrope_epp.transport.interface import Decider, Limits, Server, Tls
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway, running_gateway

CLIENT_TIMEOUT = aiohttp.ClientTimeout(total=60.0)


@dataclass
class Stack:
    """Everything that a request passes."""

    gateway: Gateway
    server: Server
    engine: TestEngine
    client: aiohttp.ClientSession


@asynccontextmanager
async def picker_stack(
    implementation: Any,
    decider: Decider,
    *,
    engine: TestEngine | None = None,
    limits: Limits | None = None,
    tls: Tls | None = None,
    **config: Any,
) -> AsyncIterator[Stack]:
    """Starts a transport, an engine, Envoy in front, and a client for it.

    Args:
        implementation: the transport's class.
        decider: what it asks.
        engine: where requests are to go; a new one by default.
        limits: of the transport.
        tls: between Envoy and the transport.
        config: further fields of `GatewayConfig`.
    """
    async with AsyncExitStack() as stack:
        engine = engine or await stack.enter_async_context(TestEngine())
        server: Server = implementation(decider, limits)
        bound = await server.start("127.0.0.1:0", tls=tls)
        stack.push_async_callback(server.shutdown, 0.0)
        server.set_serving(True)
        gateway = await stack.enter_async_context(
            running_gateway(GatewayConfig(pickers=(f"127.0.0.1:{bound.port}",), picker_tls=tls is not None, **config))
        )
        await gateway.wait_for_pickers()
        client = await stack.enter_async_context(
            aiohttp.ClientSession(gateway.url, timeout=CLIENT_TIMEOUT, auto_decompress=False)
        )
        yield Stack(gateway, server, engine, client)
