"""Metrics of policies: the version in force, what they decide beside an endpoint, and where they send."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.unknown import finite_or_none
from heliotrope_epp.datalayer.policy_history import PolicyHistory
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.plugins.memory import PickerMemory
from heliotrope_epp.plugins.scheduled import ScheduleResult

UNKNOWN = "unknown"
UNCLASSED = ""


class PolicyCounters:
    """What a decision says of its policy. Labels are names of the policy's own or of few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._classes = Counter(
            "heliotrope_class_requests",
            "Requests by the policy's class (empty: none) and by the demand-response event that held.",
            ["service_class", "event"],
            registry=registry,
        )
        self._overrides = Counter(
            "heliotrope_overrides",
            "What requests asked to change by header, and whether they got it.",
            ["override", "result"],
            registry=registry,
        )
        self._relaxed = Counter(
            "heliotrope_relaxed_limits",
            "Decisions in which a limit of the fleet gave way to the latency promise.",
            ["limit"],
            registry=registry,
        )

    def decided(self, result: ScheduleResult) -> None:
        """A request was scheduled, whatever came of it."""
        decision = result.decision
        if decision is None:
            return
        provenance = decision.policy.provenance
        self._classes.labels(provenance.service_class or UNCLASSED, provenance.event or "").inc()
        for override in provenance.applied:
            self._overrides.labels(override.value, "applied").inc()
        for override, _ in provenance.refused:
            self._overrides.labels(override.value, "refused").inc()
        for limit in decision.relaxed:
            self._relaxed.labels(limit.value).inc()


class PolicyCollector(Collector):
    """Gauges that are read when somebody scrapes."""

    def __init__(
        self,
        history: PolicyHistory,
        store: EndpointStore,
        memory: PickerMemory,
        *,
        clock: Callable[[], float],
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._history = history
        self._store = store
        self._memory = memory
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._versions()
        yield from self._past()
        yield from self._transfers()

    def _transfers(self) -> Iterator[Metric]:
        transfers = self._memory.transfers
        yield GaugeMetricFamily(
            "heliotrope_kv_transfers_in_flight",
            "KV transfers that this picker caused and takes to be on their way.",
            value=transfers.count(self._clock()),
        )
        yield CounterMetricFamily(
            "heliotrope_kv_transfers_uncounted",
            "KV transfers that are not among them because there were too many.",
            value=transfers.dropped,
        )

    def _versions(self) -> Iterator[Metric]:
        history, policy = self._history, self._store.policy()
        info = GaugeMetricFamily(
            "heliotrope_policy_info",
            "1 for the policy in force, with its version.",
            labels=["policy", "revision", "enforced"],
        )
        if policy is not None:
            info.add_metric([policy.name, policy.revision, "true" if policy.enforce else "false"], 1.0)
        yield info
        yield GaugeMetricFamily(
            "heliotrope_policy_outdated",
            "1 while the newest version of the policy in force is refused, so that the last good one holds.",
            value=history.outdated_because is not None,
        )
        granted = GaugeMetricFamily(
            "heliotrope_downgrades_granted",
            "1 where the namespace may have other models answer, 0 where not; absent for a policy without models.",
            labels=["policy"],
        )
        if policy is not None and policy.models is not None:
            granted.add_metric([policy.name], policy.models.withheld is None)
        yield granted
        changes = CounterMetricFamily("heliotrope_policy_changes", "Changes of the policy in force.", labels=["result"])
        for result, count in (
            ("applied", history.applied),
            ("refused", history.refused),
            ("removed", history.removed),
        ):
            changes.add_metric([result], count)
        yield changes

    def _past(self) -> Iterator[Metric]:
        shares = GaugeMetricFamily(
            "heliotrope_region_share",
            "Share of this picker's last thousand or so requests under an enforced policy.",
            labels=["region"],
        )
        counts = self._memory.shares.counts()
        total = sum(counts.values())
        for region, count in counts.items():
            shares.add_metric([region or UNKNOWN], count / total)
        yield shares
        failures = GaugeMetricFamily(
            "heliotrope_endpoint_failure_rate",
            "Chance of failure by this picker's recent requests there; absent without any.",
            labels=["endpoint", "region"],
        )
        now_s = self._clock()
        for state in self._store.states():
            rate = finite_or_none(self._memory.failure_rate(state.endpoint.key, now_s))
            if rate is not None:
                failures.add_metric([state.endpoint.key, state.traits.region or UNKNOWN], rate)
        yield failures
