"""The conformance suite's fixtures. An implementation joins by a line in `IMPLEMENTATIONS`; the tests stay."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
import uvloop
from tests.contract.transport.rawclient import Client, connected
from tests.contract.transport.recorder import Recorder, eventually

from heliotrope_epp.transport.aio.server import AioServer
from heliotrope_epp.transport.interface import Decider, Limits, Server


class ServerFactory(Protocol):
    def __call__(self, decider: Decider, limits: Limits | None = None, **options: Any) -> Server: ...


IMPLEMENTATIONS: dict[str, ServerFactory] = {"aio": AioServer}


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """The suite runs on the picker's own event loop."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=sorted(IMPLEMENTATIONS), scope="session")
def implementation(request: pytest.FixtureRequest) -> ServerFactory:
    return IMPLEMENTATIONS[request.param]


@dataclass
class Running:
    """A started server with a client connected to it."""

    server: Server
    port: int
    recorder: Recorder
    client: Client

    async def settled(self) -> None:
        """Nothing is left of any request."""

        def idle() -> bool:
            now = self.server.stats()
            return (now.open_streams, now.undecided, now.routed, now.buffered_bytes) == (0, 0, 0, 0)

        await eventually(idle, f"idle: {self.server.stats()}")
        assert self.server.inflight() == []


Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def serve(implementation: ServerFactory) -> AsyncIterator[Serve]:
    """Starts servers; at the end checks of each that every request was accounted for exactly once."""
    running: list[Running] = []
    async with AsyncExitStack() as stack:

        async def start(recorder: Recorder | None = None, limits: Limits | None = None, **options: Any) -> Running:
            recorder = recorder or Recorder()
            server = implementation(recorder, limits, **options)
            bound = await server.start("127.0.0.1:0")
            stack.push_async_callback(server.shutdown, 0.0)
            server.set_serving(True)
            client = await stack.enter_async_context(connected(f"127.0.0.1:{bound.port}"))
            assert bound.port is not None
            running.append(Running(server, bound.port, recorder, client))
            return running[-1]

        yield start
        for one in running:
            await one.server.shutdown(0.0)
            await one.settled()
            stats = one.server.stats()
            assert stats.routed_total == len(one.recorder.reports)
            assert stats.cancelled_total == len(one.recorder.cancellations)


@pytest.fixture
async def running(serve: Serve) -> Running:
    """A server with default limits that routes everything to one endpoint."""
    return await serve()
