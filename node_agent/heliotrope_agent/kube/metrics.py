"""What can be measured of the agent's talk with the API server."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class KubeMetrics:
    """Counters and gauges, in the process' registry."""

    def __init__(self, registry: CollectorRegistry, *, unix_clock: Callable[[], float]) -> None:
        self._unix_clock = unix_clock
        self._up = Gauge(
            "heliotrope_agent_api_up", "Whether the API server gave its last answer; 0: it is away.", registry=registry
        )
        self._last = Gauge(
            "heliotrope_agent_api_last_success_timestamp_seconds",
            "When the API server last answered.",
            registry=registry,
        )
        self.requests = Counter(
            "heliotrope_agent_api_requests",
            "Requests to the API server; code 0: no answer.",
            ["method", "code"],
            registry=registry,
        )
        self.watch_restarts = Counter(
            "heliotrope_agent_watch_restarts",
            "Watches that ended before their time and were begun anew.",
            ["object"],
            registry=registry,
        )
        self.status_writes = Counter(
            "heliotrope_agent_status_writes",
            "Statuses of the NodePower: written, conflict, failed.",
            ["outcome"],
            registry=registry,
        )
        self.events = Counter(
            "heliotrope_agent_events",
            "Events: created, repeated, limited, failed, dropped (the queue was full).",
            ["outcome"],
            registry=registry,
        )
        self.registry = registry

    def answered(self) -> None:
        """The API server is there."""
        self._up.set(1.0)
        self._last.set(self._unix_clock())

    def silent(self) -> None:
        """It is not."""
        self._up.set(0.0)

    def show_lease(self, remaining_s: Callable[[], float | None]) -> None:
        """Have the time that the Lease has left shown whenever the page is read; None: no sample."""
        self.registry.register(_LeaseRemaining(remaining_s))


class _LeaseRemaining(Collector):
    def __init__(self, remaining_s: Callable[[], float | None]) -> None:
        self._remaining_s = remaining_s

    def collect(self) -> Iterator[GaugeMetricFamily]:
        remaining_s = self._remaining_s()
        if remaining_s is not None:
            yield GaugeMetricFamily(
                "heliotrope_agent_lease_remaining_seconds",
                "Time for which the operator's wishes still hold; below 0: they have expired.",
                value=remaining_s,
            )

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("heliotrope_agent_lease_remaining_seconds", "")
