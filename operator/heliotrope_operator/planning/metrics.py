"""Metrics of planning, under names that say what is promised, asked and missing."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.scale.facts import GroupFacts
from heliotrope.scale.plan import FleetPlan, GroupPlan

DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)


class PlanningMetrics:
    """What is counted of plans."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.plans = Counter(
            "heliotrope_allocation_plans",
            "Plans of all replicas, by how their programs ended: Optimal, Feasible, Failed.",
            ["outcome"],
            registry=registry,
        )
        self.decisions = Counter(
            "heliotrope_allocation_decisions",
            "Decisions on a variant's replicas, by reason; those of reason Saturation went against carbon.",
            ["reason"],
            registry=registry,
        )
        self.seconds = Histogram(
            "heliotrope_allocation_duration_seconds",
            "Wall time of one plan.",
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self.gap = Gauge(
            "heliotrope_allocation_gap_ratio",
            "By how much another plan may at most be better, as a share of the last plan's objective; NaN: unknown.",
            registry=registry,
        )
        self.last_plan = Gauge(
            "heliotrope_allocation_last_plan_timestamp_seconds", "When the last plan was made.", registry=registry
        )

    def planned(self, plan: FleetPlan, seconds: float, now_unix_s: float) -> None:
        """A plan was made."""
        self.plans.labels(plan.certificate.outcome.value).inc()
        self.seconds.observe(seconds)
        self.gap.set(float("nan") if plan.certificate.gap is None else plan.certificate.gap)
        self.last_plan.set(now_unix_s)
        for variant in plan.variants:
            self.decisions.labels(variant.reason.value).inc()


Groups = Mapping[str, tuple[GroupFacts, GroupPlan | None]]
"""Groups and their plans, by `namespace/pool/model`."""


class GroupCollector(Collector):
    """Demand and capacity by model of a pool, as the last plan saw them; what is unknown has no sample."""

    def __init__(
        self,
        newest: Callable[[], Groups],
        polls: Callable[[], Mapping[str, int]],
        queries: Callable[[], Mapping[tuple[str, str], int]] = dict,
    ) -> None:
        """Read from whoever has the numbers.

        Args:
            newest: those of the last plan.
            polls: questions to pickers by outcome.
            queries: questions to Prometheus by what was asked for and outcome.
        """
        self._newest = newest
        self._polls = polls
        self._queries = queries

    def collect(self) -> Iterator[Metric]:
        """All families."""
        labels = ["namespace", "pool", "model"]
        expected = GaugeMetricFamily(
            "heliotrope_demand_expected_requests_per_second", "What is expected to be asked now.", labels=labels
        )
        upper = GaugeMetricFamily(
            "heliotrope_demand_upper_requests_per_second",
            "The upper quantile of it, which capacity is planned for.",
            labels=labels,
        )
        capacity = GaugeMetricFamily(
            "heliotrope_capacity_requests_per_second",
            "What the wanted replicas carry within the SLO once they serve.",
            labels=labels,
        )
        share = GaugeMetricFamily(
            "heliotrope_load_ratio", "Measured load as a share of what serves; above 1 the SLO breaks.", labels=labels
        )
        unmet = GaugeMetricFamily(
            "heliotrope_unmet_requests_per_second", "Demand that no plan within the limits carries.", labels=labels
        )
        for name, (facts, plan) in self._newest().items():
            values = name.split("/", 2)
            if facts.demand is not None:
                expected.add_metric(values, facts.demand.expected[0])
                upper.add_metric(values, facts.demand.upper[0])
            if plan is None:
                continue
            if plan.capacity_requests_per_second is not None:
                capacity.add_metric(values, plan.capacity_requests_per_second)
            if plan.load_share is not None:
                share.add_metric(values, plan.load_share)
            unmet.add_metric(values, plan.unmet_requests_per_second)
        polls = CounterMetricFamily(
            "heliotrope_picker_polls", "Questions to endpoint pickers, by outcome.", labels=["outcome"]
        )
        for outcome, count in self._polls().items():
            polls.add_metric([outcome], count)
        queries = CounterMetricFamily(
            "heliotrope_demand_queries",
            "Questions to Prometheus for the past of demand (past) and for its present (now), by outcome.",
            labels=["about", "outcome"],
        )
        for (about, outcome), count in self._queries().items():
            queries.add_metric([about, outcome], count)
        yield from (expected, upper, capacity, share, unmet, polls, queries)
