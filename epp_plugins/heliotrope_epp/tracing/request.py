"""The span of a whole request, from its headers to the end of its answer."""

from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan

from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.tracing import attributes as a
from heliotrope_epp.tracing.decision import Destination, Facts
from heliotrope_epp.tracing.spans import Interval, SpanMaker, Values

_METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
_OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}
COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came in. The path is without its query, where keys may be."""

    method: str
    path: str
    scheme: str | None
    authority: str | None
    received_s: float


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A recorded request that has ended."""

    context: TraceContext
    remote_parent_id: int | None
    offset_s: float
    arrival: Arrival
    ended_s: float
    status: int | None
    cause: str
    first_s: float | None = None
    facts: Facts | None = None
    destination: Destination | None = None
    arm: str | None = None
    rejection: str | None = None
    finished: FinishedRequest | None = None

    @property
    def span_count(self) -> int:
        """One."""
        return 1

    def spans(self, make: SpanMaker) -> list[ReadableSpan]:
        """The request's span."""
        error = self._error()
        interval = Interval(self.arrival.received_s + self.offset_s, self.ended_s + self.offset_s)
        values = self._values(error)
        return [make.make_entry(a.REQUEST, self.context, self.remote_parent_id, interval, values, error=error and "")]

    def _error(self) -> str | None:
        """What a server is to blame for: a status from 500 on, or an answer that did not reach its end."""
        if self.cause != COMPLETE:
            return self.cause
        return str(self.status) if self.status is not None and self.status >= 500 else None

    def _values(self, error: str | None) -> Values:
        arrival = self.arrival
        host, port = _host_and_port(arrival.authority)
        values: dict[a.Attribute, a.Value | None] = {
            a.METHOD: arrival.method if arrival.method in _METHODS else "_OTHER",
            a.URL_PATH: arrival.path,
            a.URL_SCHEME: arrival.scheme,
            a.SERVER_ADDRESS: host,
            a.SERVER_PORT: port,
            a.STATUS: self.status,
            a.ERROR_TYPE: error,
            a.OPERATION: _OPERATIONS.get(arrival.path),
            a.CAUSE: self.cause,
            a.ARM: self.arm,
            a.REJECTION: self.rejection,
        }
        if self.facts is not None:
            values |= {
                **self.facts.names(),
                a.STREAM: self.facts.streaming,
                a.MAX_TOKENS: self.facts.max_output_tokens,
            }
        if self.destination is not None:
            values |= {**self.destination.names(), a.PROVIDER: self.destination.provider}
        if self.finished is not None:
            values |= _of_answer(self.finished)
            if self.finished.streaming and self.first_s is not None:
                values[a.TIME_TO_FIRST_CHUNK] = self.first_s - arrival.received_s
        return values


def _of_answer(finished: FinishedRequest) -> Values:
    return {
        a.INPUT_TOKENS: finished.prompt_tokens,
        a.OUTPUT_TOKENS: finished.output_tokens,
        a.CACHED_INPUT_TOKENS: finished.cached_tokens,
        a.TTFT: finished.ttft_seconds,
        a.TPOT: finished.tpot_seconds,
    }


def _host_and_port(authority: str | None) -> tuple[str | None, int | None]:
    if not authority:
        return None, None
    host, colon, port = authority.rpartition(":")
    if not colon or (host.count(":") and not host.endswith("]")):
        return authority, None
    return (host, int(port)) if port.isdecimal() and len(port) <= 5 else (authority, None)
