"""Where in a trace a request stands, for what is added to the trace after the request's end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The span of a recorded request, as a parent for later ones."""

    trace_id: int
    span_id: int
    state: str = ""
    """The W3C tracestate that came with the request, unchanged."""
