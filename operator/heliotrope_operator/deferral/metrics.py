"""What deferral does and saves, as metrics."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.units import grams_co2e, joules_from_watts
from heliotrope_operator.deferral.annotations import Ask
from heliotrope_operator.deferral.verdict import Verdict

_HOURS_S = (60, 600, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 172_800)


class DeferralMetrics:
    """Counts plans and starts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.plans = Counter(
            "heliotrope_deferral_plans",
            "Times at which work was given a planned start: first, or moved.",
            ["namespace", "plan"],
            registry=registry,
        )
        self.starts = Counter(
            "heliotrope_deferral_starts",
            "Work that was started, by reason.",
            ["namespace", "reason"],
            registry=registry,
        )
        self.waits = Histogram(
            "heliotrope_deferral_wait_seconds",
            "Time from the creation of work to its start.",
            ["namespace"],
            buckets=_HOURS_S,
            registry=registry,
        )
        self.grams = Counter(
            "heliotrope_deferral_expected_grams_co2e",
            "Modelled emissions of started work that states its power: had it started on arrival, and deferred; their "
            "difference is the modelled saving. Under Advise, deferred is what would have been.",
            ["namespace", "enforcement", "start"],
            registry=registry,
        )

    def planned(self, namespace: str, *, moved: bool) -> None:
        """Work has a planned start, or another one."""
        self.plans.labels(namespace, "moved" if moved else "first").inc()

    def started(self, namespace: str, ask: Ask, verdict: Verdict, *, waited_s: float) -> None:
        """Work was started."""
        self.starts.labels(namespace, verdict.reason).inc()
        self.waits.labels(namespace).observe(waited_s)
        found, region, policy = verdict.plan, verdict.region, verdict.policy
        if ask.work is None or ask.power_watts is None or found is None or region is None or policy is None:
            return
        arrival = ask.undeferred_g_per_kwh
        if arrival is None:
            arrival = None if found.now is None else found.now.expected
        if arrival is None or found.planned is None:
            return
        joules = joules_from_watts(ask.power_watts, ask.work.expected_s)
        for start, intensity in (("on_arrival", arrival), ("deferred", found.planned.expected)):
            grams = grams_co2e(joules, region.spec.pue, intensity)
            self.grams.labels(namespace, policy.spec.enforcement.value, start).inc(grams)


class StateCollector(Collector):
    """What waits now, and how much batch work to dispatch; read when it is asked for."""

    def __init__(
        self,
        waiting: Callable[[], Iterable[str]],
        budgets: Callable[[], Iterable[tuple[str, str, float]]],
        behind_s: Callable[[], float],
    ) -> None:
        """`waiting` gives the namespace of each waiting Job, `budgets` namespace, pool and share."""
        self._waiting = waiting
        self._budgets = budgets
        self._behind_s = behind_s

    def collect(self) -> Iterator[Metric]:
        """All families."""
        jobs = GaugeMetricFamily(
            "heliotrope_deferral_waiting_jobs",
            "Suspended Jobs that opted in and wait for a start.",
            labels=["namespace"],
        )
        for namespace, count in sorted(Tally(self._waiting()).items()):
            jobs.add_metric([namespace], count)
        yield jobs
        budget = GaugeMetricFamily(
            "heliotrope_dispatch_budget_ratio",
            "Share of a pool's batch work to dispatch now, from 0 to 1; 1 also where nothing is known.",
            labels=["namespace", "pool"],
        )
        for namespace, pool, share in self._budgets():
            budget.add_metric([namespace, pool], share)
        yield budget
        yield GaugeMetricFamily(
            "heliotrope_deferral_clock_behind_seconds",
            "How far this process's clock is known to be behind the API server's; deadlines are kept all the same.",
            value=self._behind_s(),
        )
