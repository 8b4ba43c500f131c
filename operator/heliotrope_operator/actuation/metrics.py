"""Metrics of actuation: what was done, and the numbers that users' own autoscalers read."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope_operator.actuation.authority import UNGOVERNED, authority
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.tables import Tables

LABELS = ("variant_name", "namespace", "accelerator_type")
"""As llm-d's autoscaler names them, so that dashboards and HPAs made for it work unchanged."""


class ActuationMetrics:
    """Counts what is done to other people's fields."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.actions = Counter(
            "heliotrope_actuations",
            "Changes of others' fields by action (scale, ceiling, restore) and outcome (success, forbidden, refused).",
            ["action", "outcome"],
            registry=registry,
        )
        self.conflicts = Counter(
            "heliotrope_actuation_conflicts",
            "Conflicts found with somebody else who decides on a field, by reason.",
            ["reason"],
            registry=registry,
        )


class WantedCollector(Collector):
    """Wanted and current replicas of every variant that a policy scales and for which something was decided.

    A number that is not known has no series. Only the replica that leads has any.
    """

    def __init__(self, tables: Tables, cluster: Cluster, leads: Callable[[], bool]) -> None:
        self._tables = tables
        self._cluster = cluster
        self._leads = leads

    def collect(self) -> Iterator[Metric]:
        """All families."""
        own = _family("heliotrope_desired_replicas", "Replicas that are wanted of a variant.")
        desired = _family("wva_desired_replicas", "The same, for autoscalers that read llm-d's metric.")
        current = _family("wva_current_replicas", "Replicas that the variant's target has.")
        ratio = _family("wva_desired_ratio", "Wanted by current replicas; wanted replicas where there are none.")
        for key in self._tables.wanted if self._leads() else ():
            variant, wanted = self._cluster.variants.get(key), self._tables.wanted.get(key)
            if variant is None or wanted is None or wanted.replicas is None:
                continue
            if authority(self._cluster, key) is UNGOVERNED:
                continue
            labels = [key.name, key.namespace, variant.spec.accelerator.type]
            own.add_metric(labels, wanted.replicas)
            desired.add_metric(labels, wanted.replicas)
            if variant.status is not None and (now := variant.status.current_replicas) is not None:
                current.add_metric(labels, now)
                ratio.add_metric(labels, wanted.replicas / now if now else wanted.replicas)
        yield from (own, desired, current, ratio)


def _family(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, labels=LABELS)
