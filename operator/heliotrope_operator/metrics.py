"""Prometheus metrics of the operator, in one registry that is passed explicitly."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.regionprofile import Freshness
from heliotrope_operator.polling import Outcome
from heliotrope_operator.resources import Kind

DURATION_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Everything that the operator counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.reconciles = Counter(
            "heliotrope_reconcile",
            "Reconciles by kind and outcome: success, conflict, error.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.errors = Counter(
            "heliotrope_reconcile_errors",
            "Reconciles that failed, by class of error.",
            ["kind", "error"],
            registry=registry,
        )
        self.duration = Histogram(
            "heliotrope_reconcile_duration_seconds",
            "Wall time of one reconcile.",
            ["kind"],
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self.retries = Counter(
            "heliotrope_reconcile_retries",
            "Reconciles put back with back-off after a failure.",
            ["kind"],
            registry=registry,
        )
        self.queue_depth = Gauge(
            "heliotrope_reconcile_queue_depth", "Objects that wait to be reconciled now.", registry=registry
        )
        self.queue_scheduled = Gauge(
            "heliotrope_reconcile_queue_scheduled", "Objects that wait for a later time.", registry=registry
        )
        self.dropped = Counter(
            "heliotrope_reconcile_dropped",
            "Objects that did not fit into the queue; a resync finds them again.",
            registry=registry,
        )
        self.last_success = Gauge(
            "heliotrope_reconcile_last_success_timestamp_seconds",
            "When a reconcile of the kind last succeeded.",
            ["kind"],
            registry=registry,
        )
        self.resyncs = Counter(
            "heliotrope_reconcile_resyncs",
            "Comparisons of everything known with the API server, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.event_failures = Counter(
            "heliotrope_reconcile_watch_failures",
            "Watch events that could not be taken in; a resync makes up for them.",
            ["kind"],
            registry=registry,
        )
        self.status_writes = Counter(
            "heliotrope_reconcile_status_writes", "Statuses written.", ["kind"], registry=registry
        )
        self.leader = Gauge(
            "heliotrope_reconcile_leader", "1 while this replica may write, 0 while it stands by.", registry=registry
        )
        self.requests = Counter(
            "heliotrope_kubernetes_requests",
            "Requests to the API server other than watches; code is 0 without an answer.",
            ["method", "code"],
            registry=registry,
        )
        self.events = Counter(
            "heliotrope_events",
            "Kubernetes events by outcome: created, repeated, limited, failed.",
            ["outcome"],
            registry=registry,
        )
        self.polls = Counter(
            "heliotrope_carbon_polls",
            "Polls of carbon sources by outcome: success, credentials_missing, credentials_refused, throttled, "
            "no_data, bad_answer, timeout, error.",
            ["region", "outcome"],
            registry=registry,
        )

        self.forecast_trainings = Counter(
            "heliotrope_carbon_forecast_trainings",
            "Times that forecasting a region was learned anew, by outcome: learned, too_little_known, error.",
            ["outcome"],
            registry=registry,
        )

    def forget_region(self, name: str) -> None:
        """Drop the series of a RegionProfile that is gone."""
        for outcome in Outcome:
            self.polls.remove(name, outcome.value)

    def succeeded(self, kind: Kind, seconds: float) -> None:
        """A reconcile went well."""
        self.reconciles.labels(kind.value, "success").inc()
        self.duration.labels(kind.value).observe(seconds)
        self.last_success.labels(kind.value).set_to_current_time()

    def failed(self, kind: Kind, seconds: float, error: Exception, *, conflict: bool) -> None:
        """A reconcile failed and is put back. Losing a race for a write is no error."""
        self.reconciles.labels(kind.value, "conflict" if conflict else "error").inc()
        self.duration.labels(kind.value).observe(seconds)
        self.retries.labels(kind.value).inc()
        if not conflict:
            self.errors.labels(kind.value, type(error).__name__).inc()


class RegionCollector(Collector):
    """The regions' signals as their statuses have them, under the names that the picker uses too."""

    def __init__(self, regions: Callable[[], Iterable[RegionProfile]], unix_clock: Callable[[], float]) -> None:
        self._regions = regions
        self._unix_clock = unix_clock

    def collect(self) -> Iterator[Metric]:
        """All families."""
        now = self._unix_clock()
        intensity = GaugeMetricFamily(
            "heliotrope_carbon_intensity_grams_per_kwh",
            "The newest reading; use it with its freshness.",
            labels=["region", "signal_type", "source"],
        )
        age = GaugeMetricFamily("heliotrope_carbon_signal_age_seconds", "Age of the reading.", labels=["region"])
        fresh = GaugeMetricFamily("heliotrope_carbon_signal_fresh", "1 if it may steer decisions.", labels=["region"])
        error = GaugeMetricFamily(
            "heliotrope_carbon_forecast_error_grams_per_kwh",
            "Mean absolute error of past forecasts over all hours up to the horizon: of those issued, and of the "
            "baseline (as at the same hour yesterday).",
            labels=["region", "horizon_hours", "forecast"],
        )
        for region in self._regions():
            name, status = region.metadata.name, region.status
            fresh.add_metric([name], status is not None and status.freshness is Freshness.FRESH)
            if status is not None and (reading := status.intensity) is not None:
                intensity.add_metric([name, reading.signal_type.value, reading.source], reading.value)
                age.add_metric([name], now - reading.time.timestamp())
            if status is not None and (measured := status.forecast_error) is not None:
                horizon = str(measured.horizon_hours)
                error.add_metric([name, horizon, "issued"], measured.mean_absolute_error)
                if measured.baseline_mean_absolute_error is not None:
                    error.add_metric([name, horizon, "baseline"], measured.baseline_mean_absolute_error)
        yield intensity
        yield age
        yield fresh
        yield error
