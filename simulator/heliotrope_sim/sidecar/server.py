"""A sidecar that listens."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from heliotrope.errors import InvalidInputError
from heliotrope_sim.sidecar.config import SidecarConfig
from heliotrope_sim.sidecar.errors import SidecarError
from heliotrope_sim.sidecar.proxy import GENERATION_PATHS, Proxy
from heliotrope_sim.sidecar.upstream import Upstreams

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024 * 1024
SHUTDOWN_SECONDS = 0.2

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except SidecarError as error:
        return error.response()
    except web.HTTPException as error:
        return SidecarError(HTTPStatus(error.status), "BadRequestError", error.reason).response()
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        # The path alone: requests hold prompts.
        logger.exception("%s %s failed", request.method, request.path)
        return SidecarError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", "Internal server error").response()


class Sidecar:
    """Serves one engine's port; an async context manager.

    Raises:
        InvalidInputError: on entry, if it cannot listen.
    """

    def __init__(self, config: SidecarConfig) -> None:
        self._config = config
        self._stack = AsyncExitStack()
        self._port = config.port

    @property
    def url(self) -> str:
        """Its base URL, once it listens."""
        return f"http://{self._config.host}:{self._port}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    async def __aenter__(self) -> Self:
        config = self._config
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0),
                    # An answer may take hours; only connecting must be quick.
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout_seconds),
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                )
            )
            whole = aiohttp.ClientTimeout(
                total=config.prefill_timeout_seconds, sock_connect=config.connect_timeout_seconds
            )
            proxy = Proxy(config, Upstreams(session, config.decoder_url, whole))
            app = web.Application(middlewares=[_errors_as_json], client_max_size=MAX_BODY_BYTES)
            app.add_routes([web.post(path, proxy.generation) for path in GENERATION_PATHS])
            app.router.add_route("*", "/{path:.*}", proxy.passed_through)
            # A client that goes cancels its handler, which gives up the engines' answers.
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            try:
                listener = socket.create_server((config.host, config.port), backlog=1024)
            except OSError as error:
                raise InvalidInputError(
                    "port", f"cannot listen on {config.host}:{config.port}: {error.strerror}"
                ) from None
            await web.SockSite(runner, listener).start()
            self._port = listener.getsockname()[1]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
