"""What the picker's core and an `ext_proc` transport promise each other (`docs/transport.md`).

The core never sees gRPC, protobuf or body chunks. A transport assembles a request, asks the `Decider`, carries the
answer to the gateway, passes the response through and reports how it went.

Instants are seconds read from the clock that the transport was built with (`time.monotonic` by default); their origin
means nothing, only differences do. Header names are lower case everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

Headers = Sequence[tuple[str, str]]

DESTINATION_HEADER = "x-gateway-destination-endpoint"
"""Where the gateway is to send the request: as a header and as `envoy.lb` metadata."""

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"

DROP_REASON_HEADER = "x-llm-d-request-dropped-reason"
"""On a rejection that the transport makes itself; deciders use it for theirs."""

ROUTING_HEADERS = frozenset(
    {
        DESTINATION_HEADER,
        "x-gateway-destination-endpoint-served",
        SUBSET_KEY,
        "x-prefiller-host-port",
        "x-kv-cache-source-host-port",
        "x-encoder-hosts-ports",
        "x-data-parallel-host-port",
    }
)
"""Headers that steer engines. From a client they are hidden from the decider and removed before the engine."""

MAX_CHUNK_BYTES = 62_000
"""Largest piece of a body in one message to the gateway (its gRPC messages stay below 64 KiB)."""


class Request(Protocol):
    """One HTTP request whose headers and body have arrived, until it is answered or its client has left.

    Valid only on the loop's thread. Answer it once, in `decide` or later; a second answer returns False.
    """

    @property
    def method(self) -> str:
        """The HTTP method, upper case."""
        ...

    @property
    def path(self) -> str:
        """Path with query string."""
        ...

    @property
    def body(self) -> bytes:
        """The whole body; empty for requests without one, and where the gateway sends none (`docs/transport.md`)."""
        ...

    @property
    def received_s(self) -> float:
        """When the headers arrived."""
        ...

    @property
    def cancelled(self) -> bool:
        """True once the client has left before the answer."""
        ...

    @property
    def metadata(self) -> Mapping[str, Mapping[str, Any]]:
        """The gateway's `filter_metadata` by namespace, as plain Python values; empty without any."""
        ...

    @property
    def subset(self) -> tuple[str, ...] | None:
        """The endpoints (`ip` or `ip:port`) that the gateway allows; empty: none at all; None: it does not say."""
        ...

    def header(self, name: str) -> str | None:
        """The value of a header, several joined by a comma; None if absent or one of `ROUTING_HEADERS`."""
        ...

    def call_header(self, name: str) -> str | None:
        """A header of the gateway's own call to this server (gRPC metadata), not of the request; None if absent.

        A gateway that traces names its span here, while the request still carries what the client sent.
        """
        ...

    def headers(self) -> dict[str, str]:
        """Every header but `ROUTING_HEADERS`, pseudo-headers included; `x-request-id` is always there."""
        ...

    def route(
        self,
        endpoint: str | None,
        set_headers: Headers = (),
        remove_headers: Sequence[str] = (),
        body: bytes | None = None,
        dynamic_metadata: Mapping[str, Mapping[str, Any]] | None = None,
        response_headers: Headers = (),
        ctx: object = None,
    ) -> bool:
        """Send the request to an endpoint.

        Args:
            endpoint: `ip:port`, or several joined by commas, best first; None leaves the destination to the gateway's
                routes (a region tier chooses by a header).
            set_headers: set on the request to the engine, replacing what is there.
            remove_headers: removed from it.
            body: replaces the body; None leaves it untouched, byte for byte.
            dynamic_metadata: added to the destination's own `envoy.lb` entry, by namespace.
            response_headers: set on the response to the client.
            ctx: handed back in `Decider.done` and `Progress`.

        Returns:
            False if the client has left or the request was answered before: then `done` is not called for this ctx.
        """
        ...

    def reject(self, status: int, body: bytes = b"", headers: Headers = ()) -> bool:
        """Answer the client directly; `done` is not called. False as for `route`."""
        ...


class Cause(StrEnum):
    """Why the transport's part in a routed request ended."""

    COMPLETE = "complete"
    """The response ended, whatever its status."""
    DISCONNECTED = "disconnected"
    """The gateway dropped the exchange: client, engine or gateway gone. Envoy does not say which."""
    PROTOCOL = "protocol"
    """The gateway sent something that cannot be read."""
    SHUTDOWN = "shutdown"
    """This server stopped before the response ended."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a routed request went, as seen by the picker."""

    status: int | None
    """HTTP status; None if no response headers arrived."""
    headers: Mapping[str, str]
    """Those response headers that the transport was asked to report."""
    served: str | None
    """The endpoint that served it, if the gateway tells (`x-gateway-destination-endpoint-served`)."""
    chunks: int
    """Non-empty pieces of the body; with SSE about one per event."""
    body_bytes: int
    """Length of the response body."""
    received_s: float
    """When the request's headers arrived."""
    routed_s: float
    """When the decision was made."""
    first_s: float | None
    """When the first non-empty piece of the body arrived."""
    last_s: float | None
    """When the latest one arrived."""
    ended_s: float
    tail: bytes
    """The body's last `Limits.tail_bytes`, where usage stands."""
    cause: Cause

    @property
    def complete(self) -> bool:
        """Whether the response reached its end."""
        return self.cause is Cause.COMPLETE

    @property
    def total_s(self) -> float:
        """From the request's headers to the end."""
        return self.ended_s - self.received_s


@dataclass(frozen=True, slots=True)
class Progress:
    """A routed request in flight, at the moment of asking; fields as in `Report`."""

    ctx: Any
    received_s: float
    routed_s: float
    chunks: int
    body_bytes: int
    first_s: float | None
    last_s: float | None


class Decider(Protocol):
    """The picker's core. Every call comes on the loop's thread, never two at once; none may block."""

    def decide(self, request: Request) -> None:
        """Answer with `request.route` or `request.reject`, now or later (queueing). Called once per request.

        An exception before the answer gives that client a 500 and nobody else; it is logged without the body.
        """
        ...

    def cancelled(self, request: Request) -> None:
        """The client left before the answer; called once, and `request.cancelled` is True from then on."""
        ...

    def progressed(self, ctx: Any, at_s: float) -> None:
        """A non-empty piece of a routed request's response has arrived, at this instant; never after `done`.

        Called for every piece, so it must cost next to nothing.
        """
        ...

    def done(self, ctx: Any, report: Report) -> None:
        """A routed request ended. Called exactly once for every `route` that returned True, whatever happened."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process takes on. Beyond a limit a client gets a 4xx or 503, and the rest are unaffected."""

    max_body_bytes: int = 32 * 1024 * 1024
    """Of one request: 413 above."""
    max_header_bytes: int = 96 * 1024
    """Of one request, names and values: 431 above."""
    max_buffered_bytes: int = 512 * 1024 * 1024
    """Bodies of all requests that wait for their end or their decision, together: 503 above."""
    max_streams: int = 10_000
    """Requests in this process at once, from arrival to the response's end: 503 above."""
    tail_bytes: int = 4 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A PEM certificate chain and its key; files that change are used from the next connection on."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A certificate made at start and kept in memory: encryption without identity, as llm-d's picker does."""

    names: tuple[str, ...] = ("localhost",)


Tls = TlsFiles | SelfSigned


@dataclass(frozen=True, slots=True)
class Bound:
    """The ports that a server listens on; None where no such listener was asked for or it is a Unix socket."""

    port: int | None
    health_port: int | None


@dataclass(slots=True)
class Stats:
    """Counts since start (names ending in `_total`) and states now."""

    open_streams: int = 0
    """Requests at any stage."""
    undecided: int = 0
    """Requests that the decider has and has not answered."""
    routed: int = 0
    """Routed requests in flight."""
    buffered_bytes: int = 0
    """Request bodies held now."""
    requests_total: int = 0
    routed_total: int = 0
    rejected_total: int = 0
    """By the decider."""
    cancelled_total: int = 0
    """Clients that left before the answer."""
    failed_total: int = 0
    """Exceptions in the decider."""
    refused_total: dict[str, int] = field(default_factory=dict)
    """By the transport itself, by reason: `body`, `headers`, `memory`, `streams`, `protocol`."""


class Server(Protocol):
    """A transport. Built with a decider, limits and a clock; lives on the running event loop."""

    async def start(self, address: str, *, tls: Tls | None = None, health_address: str | None = None) -> Bound:
        """Listen and serve.

        Args:
            address: `host:port` (port 0: chosen by the system) or `unix:/path`. Health is served here as well.
            tls: None for plaintext.
            health_address: a further, plaintext port that serves health only (for kubelet probes).

        Raises:
            OSError: if an address cannot be bound.
            InvalidInputError: if the certificate cannot be read.
        """
        ...

    def set_serving(self, serving: bool) -> None:
        """What the health service answers for readiness; it starts as not serving. Requests are served either way."""
        ...

    async def drain(self, seconds: float) -> None:
        """Answer NOT_SERVING from now on and keep serving for this long, until gateways have looked elsewhere."""
        ...

    async def shutdown(self, grace_seconds: float) -> None:
        """Refuse new streams, let those in flight end for at most this long, then cut them; safe to call twice.

        When it returns, `done` or `cancelled` has been called for every request.
        """
        ...

    def stats(self) -> Stats:
        """A copy of the counters."""
        ...

    def inflight(self) -> list[Progress]:
        """Routed requests whose response has not ended, oldest first."""
        ...
