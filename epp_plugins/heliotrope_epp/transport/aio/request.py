"""A request as the decider sees it, and the decision it gets."""

# ruff: noqa: D102 - the protocols of `interface` say what these methods do.

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from heliotrope_epp.transport.aio import wire
from heliotrope_epp.transport.interface import (
    DESTINATION_HEADER,
    ROUTING_HEADERS,
    SUBSET_KEY,
    SUBSET_NAMESPACE,
    Headers,
)

REQUEST_ID_HEADER = "x-request-id"


@dataclass(slots=True)
class Routed:
    """A decision to send the request on, encoded."""

    reply: bytes
    """To the headers, or to a body that came in one message."""
    body: bytes | None
    """What to send on piece by piece, until it is sent; None where the gateway keeps the body or there is none."""
    response_headers_reply: bytes
    ctx: object
    at_s: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """A decision to answer the client directly, encoded."""

    reply: bytes


Answer = Routed | Rejected


class IncomingRequest:
    """Implements `interface.Request`."""

    __slots__ = (
        "_body",
        "_call_headers",
        "_clock",
        "_generated_id",
        "_has_body",
        "_headers",
        "_metadata",
        "_on_answer",
        "_stripped",
        "answer",
        "cancelled",
        "has_trailers",
        "header_bytes",
        "modes",
        "received_s",
    )

    def __init__(
        self,
        message: Any,
        modes: wire.Modes,
        clock: Callable[[], float],
        call_headers: Callable[[], Iterable[tuple[str, str | bytes]] | None] = tuple,
    ) -> None:
        self._clock = clock
        self._call_headers = call_headers
        self.modes = modes
        self._on_answer: Callable[[Answer], None] | None = None
        self._metadata: Any = message
        self._body = b""
        self._has_body = False
        self._stripped: list[str] = []
        self.received_s = clock()
        self.answer: Answer | None = None
        self.cancelled = False
        self.has_trailers = False
        self._headers: dict[str, str] = {}
        self.header_bytes = self._read_headers(message)
        self._generated_id = "" if self._headers.get(REQUEST_ID_HEADER) else str(uuid4())
        if self._generated_id:
            self._headers[REQUEST_ID_HEADER] = self._generated_id

    def _read_headers(self, message: Any) -> int:
        headers = self._headers
        size = 0
        for name, value in wire.header_pairs(message.request_headers):
            size += len(name) + len(value)
            if name in ROUTING_HEADERS:
                self._stripped.append(name)
            elif name in headers:
                headers[name] = f"{headers[name]},{value}"
            else:
                headers[name] = value
        return size

    def complete(self, body: bytes, message: Any, on_answer: Callable[[Answer], None]) -> None:
        """The body has arrived (in `message` its last part): from now on the request can be answered."""
        self._body = body
        self._has_body = True
        if message.HasField("metadata_context"):
            self._metadata = message
        self._on_answer = on_answer

    def complete_without_body(self, on_answer: Callable[[Answer], None]) -> None:
        """There is no body, or this gateway shows none: from now on the request can be answered."""
        self._on_answer = on_answer

    def close(self) -> None:
        """Nothing can be answered any more; lets the body go."""
        self._on_answer = None
        self._body = b""

    @property
    def method(self) -> str:
        return self._headers.get(":method", "")

    @property
    def path(self) -> str:
        return self._headers.get(":path", "")

    @property
    def body(self) -> bytes:
        return self._body

    @property
    def metadata(self) -> Mapping[str, Mapping[str, Any]]:
        if not isinstance(self._metadata, dict):
            self._metadata = wire.filter_metadata(self._metadata)
        return self._metadata

    @property
    def subset(self) -> tuple[str, ...] | None:
        hint = self.metadata.get(SUBSET_NAMESPACE, {}).get(SUBSET_KEY)
        if hint is None:
            return None
        parts = hint.split(",") if isinstance(hint, str) else hint if isinstance(hint, list) else ()
        return tuple(part.strip() for part in parts if isinstance(part, str) and part.strip())

    def header(self, name: str) -> str | None:
        return self._headers.get(name)

    def call_header(self, name: str) -> str | None:
        for key, value in self._call_headers() or ():
            if key == name and isinstance(value, str):
                return value
        return None

    def headers(self) -> dict[str, str]:
        return dict(self._headers)

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
        if self._on_answer is None:
            return False
        if body is not None and not self._has_body:
            raise ValueError("body: this request has none that could be replaced")
        one_message = self._has_body and self.modes.request != wire.FULL_DUPLEX_STREAMED
        reply = wire.routed_reply(
            "request_body" if one_message else "request_headers",
            wire.common_response(
                self._headers_to_set(endpoint, set_headers, body), (*self._stripped, *remove_headers), True
            ),
            wire.destination_metadata(endpoint, dynamic_metadata),
            body if one_message else None,
        )
        sent_on = None if one_message or not self._has_body else self._body if body is None else body
        response_reply = wire.response_headers_reply(response_headers)
        self._give(Routed(reply, sent_on, response_reply, ctx, self._clock()))
        return True

    def reject(self, status: int, body: bytes = b"", headers: Headers = ()) -> bool:
        if self._on_answer is None:
            return False
        self._give(Rejected(wire.immediate_reply(status, body, headers)))
        return True

    def _headers_to_set(
        self, endpoint: str | None, set_headers: Headers, body: bytes | None
    ) -> Iterator[tuple[str, str]]:
        if endpoint is not None:
            yield DESTINATION_HEADER, endpoint
        if self._generated_id:
            yield REQUEST_ID_HEADER, self._generated_id
        if body is not None and not self.has_trailers:
            yield "content-length", str(len(body))
        yield from set_headers

    def _give(self, answer: Answer) -> None:
        on_answer, self._on_answer = self._on_answer, None
        self.answer = answer
        self._body = b""
        assert on_answer is not None
        on_answer(answer)
