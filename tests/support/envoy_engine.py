"""An HTTP engine for tests behind Envoy: it echoes, streams when told to go on, and can die in the middle."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass
class Seen:
    """A request as it arrived here."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


@dataclass
class TestEngine:
    """`async with TestEngine() as engine`; `engine.address` is where it listens."""

    __test__ = False

    seen: list[Seen] = field(default_factory=list)
    events: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    """What `/stream` sends, piece by piece; None ends it, b"die" cuts the connection."""
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client of `/stream` left."""
    address: str = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/stream", self._stream)
        app.router.add_route("*", "/status/{code}", self._status)
        app.router.add_route("*", "/{path:.*}", self._echo)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _record(self, request: web.Request) -> Seen:
        body = await request.read()
        self.seen.append(Seen(request.method, request.path_qs, list(request.headers.items()), body))
        return self.seen[-1]

    async def _echo(self, request: web.Request) -> web.Response:
        seen = await self._record(request)
        return web.Response(body=seen.body, headers={"x-engine": self.address, "x-body-length": str(len(seen.body))})

    async def _status(self, request: web.Request) -> web.Response:
        await self._record(request)
        return web.json_response({"error": "engine"}, status=int(request.match_info["code"]), dumps=json.dumps)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        await self._record(request)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            while (event := await self.events.get()) is not None:
                if event == b"die":
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(event)
        except (asyncio.CancelledError, ConnectionError):
            self.disconnected.set()
            raise
        await response.write_eof()
        return response
