"""What became of the spans, for Prometheus."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope_epp.tracing.export import SpanCounts


class TraceCollector(Collector):
    """Read when somebody scrapes."""

    def __init__(self, counts: Callable[[], SpanCounts]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Both families."""
        counts = self._counts()
        spans = CounterMetricFamily(
            "heliotrope_trace_spans",
            "Spans of recorded requests: exported, dropped (queue full or process ended), failed (collector).",
            labels=["result"],
        )
        for result in ("exported", "dropped", "failed"):
            spans.add_metric([result], getattr(counts, result))
        yield spans
        yield GaugeMetricFamily("heliotrope_trace_spans_waiting", "Spans in the export queue.", value=counts.waiting)
