"""The response on its way through: what is answered to each message, and what is counted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heliotrope_epp.transport.aio import wire
from heliotrope_epp.transport.interface import DESTINATION_HEADER

SERVED_KEY = f"{DESTINATION_HEADER}-served"


class ResponseRelay:
    """Answers each message of the response phase at once, and keeps figures and the body's tail."""

    __slots__ = (
        "_clock",
        "_headers_reply",
        "_modes",
        "_report_names",
        "_tail",
        "_tail_limit",
        "body_bytes",
        "chunks",
        "first_s",
        "headers",
        "last_s",
        "served",
        "status",
    )

    def __init__(
        self,
        modes: wire.Modes,
        clock: Callable[[], float],
        headers_reply: bytes = wire.RESPONSE_HEADERS_CONTINUE,
        report_names: frozenset[str] = frozenset(),
        tail_limit: int = 0,
    ) -> None:
        self._modes = modes
        self._clock = clock
        self._headers_reply = headers_reply
        self._report_names = report_names
        self._tail = bytearray()
        self._tail_limit = tail_limit
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.served: str | None = None
        self.chunks = 0
        self.body_bytes = 0
        self.first_s: float | None = None
        self.last_s: float | None = None

    def handle(self, message: Any) -> tuple[Sequence[bytes], bool]:
        """What to send back, and whether the response ended with this message.

        Raises:
            MalformedMessageError: if the message has no place here.
        """
        kind = message.WhichOneof("request")
        if kind == "response_body":
            return self._body(message.response_body)
        if kind == "response_headers":
            self._read_headers(message)
            # Without a body there is nothing more to wait for; the gateway goes on alone.
            ended = message.response_headers.end_of_stream or self._modes.response == wire.NONE
            return (self._headers_reply,), ended
        if kind == "response_trailers":
            return (wire.RESPONSE_TRAILERS_CONTINUE,), True
        if kind == "request_body":
            # In full duplex the body has gone on already; a gateway that ends it twice gets no second answer.
            answered = self._modes.request == wire.FULL_DUPLEX_STREAMED
            return () if answered else (wire.REQUEST_BODY_CONTINUE,), False
        if kind == "request_trailers":
            return (wire.REQUEST_TRAILERS_CONTINUE,), False
        raise wire.MalformedMessageError(f"{kind} after the request")

    def _body(self, part: Any) -> tuple[Sequence[bytes], bool]:
        body, ends = part.body, part.end_of_stream
        if body:
            self._count(body)
        if self._modes.response == wire.FULL_DUPLEX_STREAMED:
            return wire.response_chunks(body, ends), ends
        return (wire.RESPONSE_BODY_CONTINUE,), ends

    def _count(self, body: bytes) -> None:
        self.last_s = self._clock()
        if self.first_s is None:
            self.first_s = self.last_s
        self.chunks += 1
        self.body_bytes += len(body)
        self._tail += body[-self._tail_limit :] if self._tail_limit else b""
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def _read_headers(self, message: Any) -> None:
        wanted = self._report_names
        found: dict[str, str] = {}
        for name, value in wire.header_pairs(message.response_headers):
            if name == ":status":
                self.status = int(value) if value.isdecimal() else None
            elif name in wanted:
                found[name] = f"{found[name]},{value}" if name in found else value
        self.headers = found
        if message.HasField("metadata_context"):
            served = wire.filter_metadata(message).get(wire.LB_NAMESPACE, {}).get(SERVED_KEY)
            self.served = served if isinstance(served, str) else None

    def tail(self) -> bytes:
        """The body's last bytes, at most the limit."""
        return bytes(self._tail[-self._tail_limit :])
