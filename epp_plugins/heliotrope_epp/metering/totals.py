"""How metering went since the start of the picker, and its Prometheus metrics; joules are counted by the ledger's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.engine.counters import Refusal


class WithoutEnergy(StrEnum):
    """Why a request that ended has no energy."""

    UNKNOWN_ENDPOINT = "unknown_endpoint"
    """Its endpoint was gone, or metering began after it was sent."""
    NO_COUNTER = "no_counter"
    """Nobody shows the energy of its endpoint."""
    UNCOVERED = "uncovered"
    """Whatever its counters showed while it ran could not be believed or shared out."""
    SHED = "shed"
    """Too many requests were waiting for theirs."""


@dataclass(slots=True)
class Totals:
    """Counts since the start."""

    refused: dict[Refusal, int] = field(default_factory=dict)
    without: dict[WithoutEnergy, int] = field(default_factory=dict)
    with_energy: int = 0
    failures: int = 0
    """Looks that ended in a defect."""

    def add_without(self, reason: WithoutEnergy) -> None:
        """Count a request."""
        self.without[reason] = self.without.get(reason, 0) + 1


class MeteringCollector(Collector):
    """Reads the totals when somebody scrapes. `node_failures` are pages of nodes' exporters that failed, by reason."""

    def __init__(
        self, totals: Totals, *, waiting: Callable[[], int], node_failures: Callable[[], dict[str, int]]
    ) -> None:
        self._totals = totals
        self._waiting = waiting
        self._node_failures = node_failures

    def collect(self) -> Iterator[Metric]:
        """All families."""
        totals = self._totals
        refused = CounterMetricFamily(
            "heliotrope_refused_energy_readings",
            "Readings of energy counters that were not believed.",
            labels=["reason"],
        )
        for reason, count in totals.refused.items():
            refused.add_metric([reason.value], count)
        yield refused
        without = CounterMetricFamily(
            "heliotrope_requests_without_energy", "Requests that ended without an energy.", labels=["reason"]
        )
        for why, count in totals.without.items():
            without.add_metric([why.value], count)
        yield without
        yield CounterMetricFamily(
            "heliotrope_requests_with_energy", "Requests whose energy was attributed.", value=totals.with_energy
        )
        yield GaugeMetricFamily(
            "heliotrope_requests_awaiting_energy", "Requests that ended and are not settled.", value=self._waiting()
        )
        yield CounterMetricFamily(
            "heliotrope_metering_failures", "Looks at requests and counters that failed.", value=totals.failures
        )
        failures = CounterMetricFamily(
            "heliotrope_node_energy_failures", "Pages of nodes' exporters that could not be read.", labels=["reason"]
        )
        for name, count in self._node_failures().items():
            failures.add_metric([name], count)
        yield failures
