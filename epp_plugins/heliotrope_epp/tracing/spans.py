"""Finished spans from times and numbers that were taken down earlier.

Spans are made in the exporting thread, after the fact: a request on the loop pays for noting its instants and nothing
else. That is why they are built directly as the `ReadableSpan`s that exporters take, not through a tracer.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from heliotrope import __version__
from heliotrope.units import nanoseconds_from_seconds
from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.tracing.attributes import Attribute, SpanType, Value
from heliotrope_epp.tracing.w3c import tracestate_members

MAX_TEXT = 256
"""Longest text in an attribute: model names, request ids and paths are written by clients."""

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)

Values = Mapping[Attribute, Value | None]


@dataclass(frozen=True, slots=True)
class Interval:
    """Start and end in Unix seconds."""

    start_unix_s: float
    end_unix_s: float


class Pending(Protocol):
    """Something that spans are made of when their turn to be exported comes."""

    @property
    def span_count(self) -> int:
        """How many, for the bound of the queue."""
        ...

    def spans(self, make: "SpanMaker") -> list[ReadableSpan]:
        """The spans, parents first."""
        ...


class SpanMaker:
    """Makes spans of one resource."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("heliotrope.epp", __version__)
        self._random = random.Random()

    def make(
        self,
        span_type: SpanType,
        parent: TraceContext,
        interval: Interval,
        values: Values,
        *,
        name: str | None = None,
        error: str | None = None,
    ) -> tuple[ReadableSpan, TraceContext]:
        """A child of `parent`, and itself as a parent of others; `error` is the status' description."""
        node = TraceContext(parent.trace_id, self._random.getrandbits(64) or 1, parent.state)
        span = self._span(name or span_type.name, node, _context(parent), interval, values, SpanKind.INTERNAL, error)
        return span, node

    def make_entry(
        self,
        span_type: SpanType,
        node: TraceContext,
        remote_parent_id: int | None,
        interval: Interval,
        values: Values,
        *,
        error: str | None,
    ) -> ReadableSpan:
        """The span under which a request enters this process; its ids are known already, as others refer to them."""
        parent = None
        if remote_parent_id is not None:
            parent = _context(TraceContext(node.trace_id, remote_parent_id, node.state), remote=True)
        return self._span(span_type.name, node, parent, interval, values, SpanKind.SERVER, error)

    def _span(
        self,
        name: str,
        node: TraceContext,
        parent: SpanContext | None,
        interval: Interval,
        values: Values,
        kind: SpanKind,
        error: str | None,
    ) -> ReadableSpan:
        start_ns = round(nanoseconds_from_seconds(interval.start_unix_s))
        return ReadableSpan(
            name=name,
            context=_context(node),
            parent=parent,
            resource=self._resource,
            attributes=_known(values),
            kind=kind,
            status=_UNSET if error is None else Status(StatusCode.ERROR, error),
            start_time=start_ns,
            end_time=max(round(nanoseconds_from_seconds(interval.end_unix_s)), start_ns),
            instrumentation_scope=self._scope,
        )


def _context(node: TraceContext, *, remote: bool = False) -> SpanContext:
    state = TraceState(tracestate_members(node.state) or ()) if node.state else None
    return SpanContext(node.trace_id, node.span_id, remote, _SAMPLED, state)


def _known(values: Values) -> dict[str, Value]:
    """What is neither unknown nor empty, by name, with texts cut. Runs for some ninety values of a request."""
    known: dict[str, Value] = {}
    for attribute, value in values.items():
        if value is None or value == ():
            continue
        if isinstance(value, str):
            known[attribute.name] = value if len(value) <= MAX_TEXT else value[:MAX_TEXT]
        elif isinstance(value, tuple):
            known[attribute.name] = tuple(v[:MAX_TEXT] if isinstance(v, str) else v for v in value)  # type: ignore[assignment]
        elif math.isfinite(value):
            known[attribute.name] = value
    return known
