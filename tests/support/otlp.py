"""An OTLP collector for tests: takes spans over gRPC and HTTP and decodes the real protobuf. It can misbehave."""

import contextlib
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from heliotrope_epp.tracing.protocol import provide_messages

provide_messages()

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: E402
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (  # noqa: E402
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue  # noqa: E402


class Mood(Enum):
    """What the collector does with what it gets."""

    WELL = "well"
    REFUSES = "refuses"
    """With an answer that forbids a retry."""
    BUSY = "busy"
    """With an answer that asks for a retry."""
    SLOW = "slow"
    """Answers only once it is told to end."""
    GARBAGE = "garbage"
    """Answers with what is no answer."""


@dataclass(frozen=True)
class Span:
    """A span as it arrived, its ids in hexadecimal and its instants in nanoseconds."""

    service: str
    scope: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    kind: int
    status: int
    status_message: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]


@dataclass
class Collector:
    """Runs until its context ends. `spans` holds what was taken so far."""

    mood: Mood = Mood.WELL
    spans: list[Span] = field(default_factory=list)
    requests: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    grpc_url: str = ""
    http_url: str = ""
    ending: threading.Event = field(default_factory=threading.Event)

    def named(self, name: str) -> list[Span]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]

    def wait(self, found: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
        """Until this holds.

        Raises:
            AssertionError: if it does not in time.
        """
        deadline = time.monotonic() + seconds
        while not found():
            assert time.monotonic() < deadline, f"{what}: {sorted(span.name for span in self.spans)}"
            time.sleep(0.02)

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Decode and keep."""
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        service=service,
                        scope=scope.scope.name,
                        name=span.name,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        trace_state=span.trace_state,
                        kind=span.kind,
                        status=span.status.code,
                        status_message=span.status.message,
                        start_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                        attributes=_attributes(span.attributes),
                    )
                    for span in scope.spans
                ]


@contextlib.contextmanager
def collector(mood: Mood = Mood.WELL) -> Iterator[Collector]:
    """A collector that listens on two ports of this machine."""
    running = Collector(mood)
    with contextlib.ExitStack() as stack:
        server = grpc.server(ThreadPoolExecutor(4))
        add_TraceServiceServicer_to_server(_Grpc(running), server)
        running.grpc_url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        stack.callback(lambda: server.stop(0).wait())
        http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(running))
        http.daemon_threads = True
        running.http_url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        stack.callback(thread.join)
        stack.callback(http.server_close)
        stack.callback(http.shutdown)
        stack.callback(running.ending.set)
        yield running


class _Grpc(TraceServiceServicer):
    def __init__(self, running: Collector) -> None:
        self._running = running

    def Export(  # noqa: N802 - gRPC's name
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        running = self._running
        running.requests += 1
        running.headers.append(dict(context.invocation_metadata()))
        if running.mood is Mood.SLOW:
            running.ending.wait(60)
        elif running.mood is Mood.REFUSES:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        elif running.mood is Mood.BUSY:
            context.abort(grpc.StatusCode.UNAVAILABLE, "later")
        elif running.mood is Mood.GARBAGE:
            context.abort(grpc.StatusCode.UNKNOWN, "\x00" * 100)
        running.take(request)
        return ExportTraceServiceResponse()


def _handler(running: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            running.requests += 1
            running.headers.append({name.lower(): value for name, value in self.headers.items()})
            if running.mood is Mood.SLOW:
                running.ending.wait(60)
            if running.mood is Mood.GARBAGE:
                self.wfile.write(b"\xff\xfe not http at all\r\n\r\n")
                self.close_connection = True
                return
            status = {Mood.REFUSES: 400, Mood.BUSY: 503}.get(running.mood, 200)
            if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
                status = 404
            if status == 200:
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                running.take(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)
