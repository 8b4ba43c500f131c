"""The queue: bounded, counted, never in the way of requests, and ended in bounded time."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from heliotrope_epp.tracing.export import SpanQueue
from heliotrope_epp.tracing.metrics import TraceCollector
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.tracing.spans import SpanMaker

MAKER = SpanMaker(Resource({}))


class Exporter(SpanExporter):
    """Remembers its batches; fails, raises or hangs as told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.result = SpanExportResult.SUCCESS
        self.error: Exception | None = None
        self.hold: threading.Event | None = None
        self.ended = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.batches.append(len(spans))
        if self.hold is not None:
            self.hold.wait(30.0)
        if self.error is not None:
            raise self.error
        return self.result

    def shutdown(self) -> None:
        self.ended = True


@dataclass(frozen=True)
class Some:
    """Spans to be made."""

    span_count: int = 1
    broken: bool = False

    def spans(self, make: SpanMaker) -> list[ReadableSpan]:
        if self.broken:
            raise ValueError("cannot be made")
        return [ReadableSpan(f"s{i}") for i in range(self.span_count)]


def queue(exporter: Exporter, **settings: float) -> SpanQueue:
    given: dict[str, float] = {
        "max_queue_spans": 100,
        "max_batch_spans": 10,
        "delay_s": 60.0,
        "flush_s": 2.0,
        **settings,
    }
    return SpanQueue(exporter, MAKER, TracingSettings(**given))  # type: ignore[arg-type]


def until(holds: object, what: str = "") -> None:
    deadline = time.monotonic() + 5.0
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def test_a_full_batch_leaves_at_once_and_the_rest_at_the_end() -> None:
    exporter = Exporter()
    spans = queue(exporter)
    spans.start()
    for _ in range(5):
        spans.put(Some(2))
    until(lambda: spans.counts().exported == 10)
    spans.put(Some(3))
    assert exporter.batches == [10]
    spans.close()
    assert exporter.batches == [10, 3]
    assert exporter.ended
    counts = spans.counts()
    assert (counts.exported, counts.dropped, counts.failed, counts.waiting) == (13, 0, 0, 0)


def test_a_few_spans_leave_after_the_delay() -> None:
    exporter = Exporter()
    spans = queue(exporter, delay_s=0.02)
    spans.start()
    spans.put(Some(3))
    until(lambda: exporter.batches == [3])
    spans.close()


def test_a_hanging_collector_costs_spans_and_nothing_else() -> None:
    exporter = Exporter()
    exporter.hold = threading.Event()
    spans = queue(exporter, flush_s=0.2)
    spans.start()
    started = time.monotonic()
    for _ in range(5_000):
        spans.put(Some(3))
    assert time.monotonic() - started < 5.0
    counts = spans.counts()
    assert counts.waiting <= 100
    assert counts.waiting + counts.dropped == 15_000
    started = time.monotonic()
    spans.close()
    assert time.monotonic() - started < 5.0
    after = spans.counts()
    assert (after.dropped, after.waiting, after.exported, after.failed) == (15_000, 0, 0, 0)
    exporter.hold.set()
    spans._thread.join(5.0)
    assert spans.counts() == after


@pytest.mark.parametrize("how", ["result", "error"])
def test_failed_exports_are_counted_and_the_next_ones_are_tried(how: str) -> None:
    exporter = Exporter()
    if how == "result":
        exporter.result = SpanExportResult.FAILURE
    else:
        exporter.error = ConnectionError("the collector is gone")
    spans = queue(exporter)
    spans.start()
    spans.put(Some(10))
    until(lambda: spans.counts().failed == 10)
    exporter.result, exporter.error = SpanExportResult.SUCCESS, None
    spans.put(Some(4))
    spans.close()
    counts = spans.counts()
    assert (counts.exported, counts.failed, counts.dropped) == (4, 10, 0)


@pytest.mark.parametrize("alone", [True, False])
def test_a_record_that_cannot_be_made_takes_nobody_with_it(*, alone: bool) -> None:
    exporter = Exporter()
    spans = queue(exporter)
    spans.start()
    spans.put(Some(2, broken=True))
    if not alone:
        spans.put(Some(3))
    spans.close()
    counts = spans.counts()
    assert (counts.exported, counts.failed) == (0 if alone else 3, 2)


def test_after_the_end_nothing_is_taken() -> None:
    spans = queue(Exporter())
    spans.start()
    spans.close()
    spans.put(Some(2))
    assert spans.counts().dropped == 2


def test_what_became_of_spans_is_a_metric() -> None:
    registry, exporter = CollectorRegistry(), Exporter()
    spans = queue(exporter, max_queue_spans=12)
    registry.register(TraceCollector(spans.counts))
    spans.put(Some(7))
    spans.put(Some(7))
    assert registry.get_sample_value("heliotrope_trace_spans_waiting") == 7
    assert registry.get_sample_value("heliotrope_trace_spans_total", {"result": "dropped"}) == 7
    spans.start()
    spans.close()
    assert registry.get_sample_value("heliotrope_trace_spans_total", {"result": "exported"}) == 7
    assert registry.get_sample_value("heliotrope_trace_spans_total", {"result": "failed"}) == 0
    assert registry.get_sample_value("heliotrope_trace_spans_waiting") == 0
