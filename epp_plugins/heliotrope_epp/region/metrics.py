"""Prometheus metrics of the region tier. Base units are in the names."""

from collections.abc import Callable, Iterator
from math import isfinite

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope_epp.region.beliefs import Beliefs
from heliotrope_epp.region.collector import Collector as WindowCollector
from heliotrope_epp.region.deadlines import DeadlineQueue
from heliotrope_epp.region.decided import Decided
from heliotrope_epp.region.placer import Placer
from heliotrope_epp.region.provisioner import Provisioner
from heliotrope_epp.region.solver import SolverProcess
from heliotrope_epp.tracing.placement import Placement
from heliotrope_epp.transport.interface import Report

WINDOW_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1_000, 2_000)
WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5)
SOLVER_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2)
GAP_BUCKETS = (0.0, 0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
NOWHERE = ""


class RegionMetrics:
    """The counters that windows and requests move."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._windows = Counter(
            "heliotrope_region_windows",
            "Windows that were assigned, by scheduler, outcome and the reason why greedy took another's place.",
            ["scheduler", "outcome", "fallback"],
            registry=registry,
        )
        self._size = Histogram(
            "heliotrope_region_window_requests", "Requests in a window.", buckets=WINDOW_BUCKETS, registry=registry
        )
        self._wait = Histogram(
            "heliotrope_region_window_seconds",
            "From a request's entry into its window to its assignment.",
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._solver = Histogram(
            "heliotrope_region_solver_seconds",
            "Of one assignment.",
            ["scheduler"],
            buckets=SOLVER_BUCKETS,
            registry=registry,
        )
        self._gap = Histogram(
            "heliotrope_region_gap_ratio",
            "Relative distance of an assignment to its proven bound; only where one is known.",
            buckets=GAP_BUCKETS,
            registry=registry,
        )
        self._dispatches = Counter(
            "heliotrope_region_dispatches",
            "Requests by region (empty: nowhere) and reason.",
            ["region", "reason"],
            registry=registry,
        )
        self._advised = Counter(
            "heliotrope_region_advised",
            "Requests by the region that an advising policy would have chosen.",
            ["region"],
            registry=registry,
        )
        self._sessions = Counter(
            "heliotrope_region_session_turns", "Turns of sessions by why they stayed or moved.", ["because"],
            registry=registry,
        )  # fmt: skip
        self._ended = Counter(
            "heliotrope_region_requests",
            "Routed requests that ended.",
            ["region", "code", "cause"],
            registry=registry,
        )
        self._rejected = Counter(
            "heliotrope_rejected_requests",
            "Requests answered by the picker itself.",
            ["code", "reason"],
            registry=registry,
        )
        self._cancelled = Counter(
            "heliotrope_cancelled_requests", "Clients that left before the decision.", registry=registry
        )
        self._pauses = Counter(
            "heliotrope_region_pauses",
            "Times that a region was left alone because its gateway failed request after request.",
            ["region"],
            registry=registry,
        )

    def decided(self, decided: Decided) -> None:
        """A window was assigned."""
        assignment = decided.assignment
        self._windows.labels(decided.scheduler, assignment.outcome.value, decided.fallback or "").inc()
        self._size.observe(len(decided.prepared.batch))
        self._solver.labels(decided.scheduler).observe(decided.solver_seconds)
        if isfinite(assignment.gap):
            self._gap.observe(assignment.gap)
        if decided.advised is not None:
            for place in decided.advised.tolist():
                self._advised.labels(decided.prepared.regions.names[place] if place >= 0 else NOWHERE).inc()

    def placed(self, placement: Placement) -> None:
        """A request of it leaves."""
        self._wait.observe(max(placement.window_seconds, 0.0))
        self._dispatches.labels(placement.region or NOWHERE, placement.reason).inc()
        if placement.session is not None:
            self._sessions.labels(placement.session).inc()

    def ended(self, region: str, report: Report) -> None:
        """It ended."""
        self._ended.labels(region, "" if report.status is None else str(report.status), report.cause.value).inc()

    def rejected(self, status: int, reason: str) -> None:
        """The picker answered a request itself."""
        self._rejected.labels(str(status), reason).inc()

    def cancelled(self) -> None:
        """A client left before its request was placed."""
        self._cancelled.inc()

    def paused(self, region: str) -> None:
        """A region is left alone for a while."""
        self._pauses.labels(region).inc()


class RegionCollector(Collector):
    """Gauges that are read when somebody scrapes."""

    def __init__(
        self,
        *,
        provisioner: Provisioner,
        windows: WindowCollector,
        placer: Placer,
        deadlines: DeadlineQueue,
        solver: SolverProcess,
        beliefs: Beliefs,
        clock: Callable[[], float],
    ) -> None:
        self._provisioner = provisioner
        self._windows = windows
        self._placer = placer
        self._deadlines = deadlines
        self._solver = solver
        self._beliefs = beliefs
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._regions()
        yield from self._queues()
        yield from self._solvers()

    def _regions(self) -> Iterator[Metric]:
        now_s, up = self._clock(), set(self._provisioner.up(self._clock()))
        there = GaugeMetricFamily("heliotrope_region_up", "1 if the region takes requests.", labels=["region"])
        age = GaugeMetricFamily("heliotrope_region_state_age_seconds", "Age of its last state.", labels=["region"])
        polls = CounterMetricFamily(
            "heliotrope_region_state_polls", "Reads of its state, by what came of them.", labels=["region", "result"]
        )
        for name, feed in self._provisioner.feeds.items():
            there.add_metric([name], name in up)
            if isfinite(feed.received_s):
                age.add_metric([name], now_s - feed.received_s)
            counts = self._provisioner.counts[name]
            polls.add_metric([name, "ok"], counts.succeeded)
            for reason, count in counts.failed.items():
                polls.add_metric([name, reason], count)
        yield there
        yield age
        yield polls
        shares = GaugeMetricFamily(
            "heliotrope_region_share", "Share of this scheduler's last thousand or so requests.", labels=["region"]
        )
        counts_by_region = self._beliefs.shares()
        total = sum(counts_by_region.values())
        for region, value in counts_by_region.items():
            shares.add_metric([region or NOWHERE], value / total)
        yield shares

    def _queues(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "heliotrope_region_window_open_requests", "Requests in the open window.", value=len(self._windows)
        )
        yield GaugeMetricFamily(
            "heliotrope_region_queued_windows",
            "Closed windows that wait for the solver.",
            value=self._placer.queued_windows,
        )
        yield GaugeMetricFamily(
            "heliotrope_region_deadline_queue_requests",
            "Requests held for a cleaner hour.",
            value=len(self._deadlines),
        )
        ends = CounterMetricFamily(
            "heliotrope_region_deadline_requests",
            "Requests with a deadline, by why they are not held, or no longer.",
            labels=["result"],
        )
        for result, count in self._deadlines.ends.items():
            ends.add_metric([result], count)
        yield ends
        yield CounterMetricFamily(
            "heliotrope_region_deadline_held_seconds",
            "Time that requests were held, together.",
            value=self._deadlines.held_seconds_total,
        )
        yield GaugeMetricFamily(
            "heliotrope_region_prefix_blocks",
            "Blocks of prompts that regions are believed to cache.",
            value=self._beliefs.prefixes.blocks,
        )
        yield CounterMetricFamily(
            "heliotrope_region_dropped_dispatches",
            "Own dispatches that were forgotten for room while projections still needed them.",
            value=self._beliefs.dropped,
        )

    def _solvers(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "heliotrope_region_solver_up", "1 while the solver takes windows.", value=self._solver.ready
        )
        ends = CounterMetricFamily(
            "heliotrope_region_solver_ends", "Ends of the solver's process, by why.", labels=["reason"]
        )
        for reason, count in self._solver.ends.items():
            ends.add_metric([reason], count)
        yield ends
