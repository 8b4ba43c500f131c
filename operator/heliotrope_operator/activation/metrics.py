"""Metrics of engines at rest: what was decided last, and what was done."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.scale.activation import ActivationPlan
from heliotrope_operator.activation.gather import Group

AWAKE = "Awake"


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided for one group."""

    group: Group
    plan: ActivationPlan


class ActivationMetrics:
    """What is counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.moves = Counter(
            "heliotrope_activation_moves",
            "What was done: sleep, wake, cordon, uncordon, evict.",
            ["move"],
            registry=registry,
        )
        self.failures = Counter(
            "heliotrope_activation_failures",
            "Engines and nodes that did not do as they were told; they are told again.",
            registry=registry,
        )


class ActivationCollector(Collector):
    """Engines by planned depth and reason, and the watts that rest saves. What is unknown has no sample."""

    def __init__(self, decided: Callable[[], Sequence[Decided]]) -> None:
        self._decided = decided

    def collect(self) -> Iterator[Metric]:
        """All families."""
        labels = ["namespace", "pool", "model", "role"]
        engines = GaugeMetricFamily(
            "heliotrope_activation_engines",
            "Engines by the depth that is planned for them and why.",
            labels=[*labels, "depth", "reason", "enforced"],
        )
        saved = GaugeMetricFamily(
            "heliotrope_activation_saved_watts", "IT power that planned rest saves (modelled).", labels=labels
        )
        required = GaugeMetricFamily(
            "heliotrope_activation_required_requests_per_second",
            "Upper quantile of the demand until the next plan, with the warm reserve.",
            labels=labels,
        )
        for each in self._decided():
            group, plan = each.group, each.plan
            place = [group.pool.namespace, group.pool.name, group.model, group.role.value]
            enforced = "true" if group.acts else "false"
            tally = Tally((AWAKE if e.depth is None else e.depth.value, e.why.value) for e in plan.engines)
            for (depth, why), count in sorted(tally.items()):
                engines.add_metric([*place, depth, why, enforced], count)
            saved.add_metric(place, plan.saved_watts)
            if plan.required_requests_per_second is not None:
                required.add_metric(place, plan.required_requests_per_second)
        yield from (engines, saved, required)
