"""The gRPC server around the exchanges: ports, TLS, health, drain and shutdown."""

# ruff: noqa: D102 - the protocols of `interface` say what these methods do.

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from heliotrope_epp.transport.aio import wire
from heliotrope_epp.transport.aio.exchange import Exchange, Shared
from heliotrope_epp.transport.aio.health import Health
from heliotrope_epp.transport.certificates import CertificateSource
from heliotrope_epp.transport.interface import Bound, Decider, Limits, Progress, Stats, Tls

logger = logging.getLogger(__name__)

DEFAULT_REPORT_HEADERS = ("content-type",)
CUT_SECONDS = 5.0
"""How long handlers that were cut off may take to close their books."""
_MESSAGE_OVERHEAD_BYTES = 1024 * 1024


class AioServer:
    """Implements `interface.Server` on grpc.aio; install uvloop's event loop before for speed."""

    def __init__(
        self,
        decider: Decider,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        report_headers: Iterable[str] = DEFAULT_REPORT_HEADERS,
    ) -> None:
        """Prepare a server.

        Args:
            decider: the picker's core.
            limits: what to take on.
            clock: seconds, monotonic.
            report_headers: response headers to put into each `Report`.
        """
        self._shared = Shared(decider, limits or Limits(), clock, frozenset(name.lower() for name in report_headers))
        self._health = Health()
        self._servers: list[Any] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, address: str, *, tls: Tls | None = None, health_address: str | None = None) -> Bound:
        if self._servers:
            raise RuntimeError("a server starts once")
        server = grpc.aio.server(options=self._options())
        handler = grpc.stream_stream_rpc_method_handler(self._process)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(wire.SERVICE, {wire.METHOD: handler}), self._health.handler())
        )
        port = _bind(server, address, None if tls is None else _credentials(CertificateSource(tls)))
        health_port = None
        self._servers.append(server)
        if health_address is not None:
            health = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
            health.add_generic_rpc_handlers((self._health.handler(),))
            health_port = _bind(health, health_address, None)
            self._servers.append(health)
        for one in self._servers:
            await one.start()
        return Bound(port or None, health_port or None)

    def set_serving(self, serving: bool) -> None:
        self._health.set_serving(serving)

    async def drain(self, seconds: float) -> None:
        self._health.set_serving(False)
        await asyncio.sleep(seconds)

    async def shutdown(self, grace_seconds: float) -> None:
        self._health.close()
        asyncio.get_running_loop().call_later(grace_seconds, self._cut)
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.stop(grace_seconds) for server in servers))
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=CUT_SECONDS)

    def _cut(self) -> None:
        self._shared.stopping = True

    def stats(self) -> Stats:
        return copy.deepcopy(self._shared.stats)

    def inflight(self) -> list[Progress]:
        return [exchange.progress() for exchange in self._shared.routed]

    async def _process(self, _messages: Any, context: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await Exchange(self._shared, context).run()
        finally:
            self._tasks.discard(task)

    def _options(self) -> list[tuple[str, int]]:
        limits = self._shared.limits
        return [
            # Two pickers on one port would share it silently.
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", limits.max_streams),
            ("grpc.max_receive_message_length", limits.max_body_bytes + _MESSAGE_OVERHEAD_BYTES),
            ("grpc.max_send_message_length", -1),
            # Gateways that keep idle connections alive with pings are not punished for it.
            ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ]


def _bind(server: Any, address: str, credentials: Any) -> int:
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    return 0 if address.startswith("unix:") else int(port)


def _credentials(source: CertificateSource) -> Any:
    def configuration() -> Any:
        pair = source.current
        return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)])

    def fetch() -> Any:
        return configuration() if source.refresh() else None

    return grpc.dynamic_ssl_server_credentials(configuration(), fetch)
