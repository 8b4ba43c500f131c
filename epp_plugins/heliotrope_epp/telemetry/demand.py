"""Metrics of demand and of the queue in front of a pool that sleeps."""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope_epp.demand.book import DemandBook
from heliotrope_epp.demand.holding import DROPS, End, HoldQueue


class DemandCollector(Collector):
    """Read when somebody scrapes. Labels are names of the resources, or of few."""

    def __init__(self, book: DemandBook, queue: HoldQueue[Any]) -> None:
        self._book = book
        self._queue = queue

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._demand()
        yield from self._held()

    def _demand(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "heliotrope_demand_requests", "Requests that came, whatever became of them.", labels=["model"]
        )
        prompts = CounterMetricFamily(
            "heliotrope_demand_prompt_tokens", "Their prompt tokens, as the picker counts them.", labels=["model"]
        )
        outputs = CounterMetricFamily(
            "heliotrope_demand_output_tokens", "Output tokens, as engines reported them.", labels=["model"]
        )
        in_flight = GaugeMetricFamily(
            "heliotrope_demand_requests_in_flight", "Requests that engines have.", labels=["model"]
        )
        for model, row in self._book.models.items():
            requests.add_metric([model], row.requests_total)
            prompts.add_metric([model], row.prompt_tokens_total)
            outputs.add_metric([model], row.output_tokens_total)
            in_flight.add_metric([model], row.in_flight)
        yield from (requests, prompts, outputs, in_flight)

    def _held(self) -> Iterator[Metric]:
        queue = self._queue
        held = GaugeMetricFamily(
            "heliotrope_held_requests", "Requests that wait for an engine to start or wake.", labels=["model"]
        )
        oldest = GaugeMetricFamily(
            "heliotrope_oldest_held_seconds", "How long the first of them has waited.", labels=["model"]
        )
        for model, (count, seconds) in queue.held_by(self._book.name).items():
            held.add_metric([model], count)
            oldest.add_metric([model], seconds)
        yield from (held, oldest)
        yield GaugeMetricFamily(
            "heliotrope_held_bytes", "Memory that their bodies and prompts take.", value=queue.held_bytes
        )
        dropped = CounterMetricFamily(
            "heliotrope_hold_dropped", "Requests that were not held (any longer) and refused.", labels=["reason"]
        )
        for end in DROPS:
            dropped.add_metric([end.value], queue.ends[end])
        yield dropped
        yield CounterMetricFamily(
            "heliotrope_hold_released", "Requests that were held and then sent.", value=queue.ends[End.RELEASED]
        )
        yield CounterMetricFamily(
            "heliotrope_hold_left", "Requests whose client left while they were held.", value=queue.ends[End.LEFT]
        )
        yield CounterMetricFamily(
            "heliotrope_hold_seconds", "Time that requests were held, of all together.", value=queue.held_seconds_total
        )
