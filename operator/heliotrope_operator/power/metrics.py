"""Metrics of power: what was decided last, read from the decisions themselves so that no series outlives its object."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from heliotrope.power.budget import Limit
from heliotrope.power.demand import Answer
from heliotrope.power.plan import PowerPlan
from heliotrope_operator.power.gather import Governed


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided for one policy."""

    governed: Governed
    plan: PowerPlan
    limit: Limit | None
    answered: Answer | None
    active: bool
    """Whether an event holds now."""


@dataclass(frozen=True, slots=True)
class Agents:
    """What was heard of the nodes' agents."""

    silent: frozenset[str]
    """Nodes."""
    ages_s: Mapping[str, float]
    """By node, since a new sign of life was seen."""


class PowerMetrics:
    """What is counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.changes = Counter(
            "heliotrope_power_changes",
            "Changes of a variant's clock or power limit, by the new reason.",
            ["reason"],
            registry=registry,
        )
        self.writes = Counter(
            "heliotrope_nodepower_writes",
            "NodePowers applied, deleted, and found to be somebody else's (conflict).",
            ["outcome"],
            registry=registry,
        )
        self.polls = Counter(
            "heliotrope_demand_polls",
            "Questions to sources of demand events by outcome: success, failure.",
            ["outcome"],
            registry=registry,
        )
        self.left_out = Counter(
            "heliotrope_nodepower_intents_dropped",
            "Intents that found no room in a NodePower.",
            registry=registry,
        )


class PowerCollector(Collector):
    """Budgets, projected watts, shares and agents of the last pass. What is unknown has no sample."""

    def __init__(self, decided: Callable[[], Sequence[Decided]], agents: Callable[[], Agents | None]) -> None:
        self._decided = decided
        self._agents = agents

    def collect(self) -> Iterator[Metric]:
        """All families."""
        policy, variant = ["namespace", "policy"], ["namespace", "policy", "variant", "role"]
        budget = GaugeMetricFamily(
            "heliotrope_power_budget_watts", "Power that the pool may draw, by whose limit counts.",
            labels=[*policy, "source", "name"],
        )  # fmt: skip
        projected = GaugeMetricFamily(
            "heliotrope_power_projected_watts", "Power of all engines at the chosen clocks, at most.", labels=policy
        )
        full = GaugeMetricFamily(
            "heliotrope_power_uncapped_watts", "The same with every engine left alone.", labels=policy
        )
        verdict = GaugeMetricFamily(
            "heliotrope_power_verdict", "1 for what the budget allows.", labels=[*policy, "verdict"]
        )
        event = GaugeMetricFamily(
            "heliotrope_demand_event", "1 while an event is answered, 0 while power returns.", labels=[*policy, "event"]
        )
        goodput = GaugeMetricFamily(
            "heliotrope_power_goodput_requests_per_second",
            "Requests within the promise that the split of a budget that binds keeps.",
            labels=policy,
        )
        clock = GaugeMetricFamily("heliotrope_power_sm_clock_mhz", "Chosen SM clock.", labels=variant)
        watts = GaugeMetricFamily(
            "heliotrope_power_limit_watts", "Chosen power limit of one accelerator.", labels=variant
        )
        share = GaugeMetricFamily(
            "heliotrope_power_share_watts", "Watts of the budget that the variant gets.", labels=variant
        )
        busy = GaugeMetricFamily(
            "heliotrope_power_utilization_ratio", "Share of its time that an engine works at its clock.", labels=variant
        )
        silent = GaugeMetricFamily(
            "heliotrope_nodepower_silent_agents",
            "Node agents that have reported once and give no sign of life any more.",
        )
        age = GaugeMetricFamily(
            "heliotrope_nodepower_agent_age_seconds", "Time since a new sign of life of a node's agent was seen.",
            labels=["node"],
        )  # fmt: skip
        agents = self._agents()
        if agents is not None:
            silent.add_metric([], len(agents.silent))
            for node, age_s in agents.ages_s.items():
                age.add_metric([node], age_s)
        for each in self._decided():
            name = [each.governed.key.namespace, each.governed.key.name]
            if each.limit is not None:
                budget.add_metric([*name, each.limit.source.value, each.limit.name], each.limit.watts)
            if isfinite(each.plan.projected_watts):
                projected.add_metric(name, each.plan.projected_watts)
                full.add_metric(name, each.plan.full_watts)
            verdict.add_metric([*name, each.plan.verdict.value], 1)
            if each.answered is not None:
                event.add_metric([*name, each.answered.event], each.active)
            if each.plan.split is not None:
                goodput.add_metric(name, each.plan.split.goodput_per_second)
            for engines in each.governed.engines:
                of = f"{engines.key.namespace}/{engines.key.name}"
                labels = [*name, engines.key.name, engines.variant.spec.role.value]
                setting = each.plan.settings[of]
                if setting.sm_clock_mhz is not None:
                    clock.add_metric(labels, setting.sm_clock_mhz)
                if setting.watts is not None:
                    watts.add_metric(labels, setting.watts)
                if isfinite(setting.utilization):
                    busy.add_metric(labels, setting.utilization)
                if each.plan.split is not None and of in each.plan.split.shares:
                    share.add_metric(labels, each.plan.split.shares[of].watts)
        yield from (budget, projected, full, verdict, event, goodput, clock, watts, share, busy, silent, age)
