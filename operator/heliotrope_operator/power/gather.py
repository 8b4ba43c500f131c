"""From what is known of the cluster to what clocks are chosen from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan

from heliotrope.api.grants import Grant, Right, grant
from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.api.v1alpha1.workloadvariant import ChosenPower
from heliotrope.decide.from_resources import engine_model
from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope.power.latency import PROMISE_QUANTILE, modelled
from heliotrope.power.options import Work
from heliotrope.power.plan import VariantFacts
from heliotrope.power.split import Verdict
from heliotrope.power.turns import NEVER, Recent
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType
from heliotrope_operator.kinds.namespaces import namespace_key
from heliotrope_operator.kinds.nodepowers import node_power_key
from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.kinds.policies import policy_key
from heliotrope_operator.power.hearing import Hearing, Sign
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.tables import Tables, VariantLoad
from heliotrope_operator.turns import chosen_power

_PASSING = frozenset({"AdviseOnly", "Dwell", "Group", "LeaseExpired"})
"""Reasons of a NodePower's condition `Applied` that pass by themselves, or are as wanted. An agent that has just begun
has seen no renewal of the Lease yet, which whoever reads this renews."""
LOAD_STALE_S = 300.0
"""A load that was measured longer ago is unknown."""
STOPPED = "AgentStopped"
"""The reason of an agent that has put everything back and ended: it is not expected to say more."""
AGENT_SILENT = "AgentSilent"
_ALIVE = ("Pending", "Running")
_BUDGET_REASONS = frozenset({Verdict.WITHIN.value, Verdict.PROMISE_AT_RISK.value, Verdict.INFEASIBLE.value})


@dataclass(frozen=True, slots=True)
class Engines:
    """The pods of a variant that have GPUs of a node."""

    key: Key
    variant: WorkloadVariant
    by_node: Mapping[str, tuple[tuple[str, str], ...]]
    """Names and UIDs of pods by node, sorted."""
    resting: frozenset[str]
    """Of them."""

    @property
    def count(self) -> int:
        """All of them."""
        return sum(len(pods) for pods in self.by_node.values())


@dataclass(frozen=True, slots=True)
class Governed:
    """A policy and what it governs."""

    key: Key
    policy: CarbonPolicy
    granted: Grant
    engines: tuple[Engines, ...]
    facts: tuple[VariantFacts, ...]
    """Of the same variants, in the same order; those without a pod are left out of both."""
    unanswered: frozenset[str] = frozenset()
    """Of their nodes, those from which no node agent has ever reported."""
    unapplied: Mapping[str, str] = field(default_factory=dict)
    """Of their nodes, those whose agent says that not every intent is in effect, with its reason."""
    silent: frozenset[str] = frozenset()
    """Of their nodes, those whose agent has said something once and gives no sign of life any more."""

    @property
    def acts(self) -> bool:
        """Whether the policy may set anything."""
        return self.granted.allowed and self.policy.spec.enforcement is Enforcement.ENFORCE


class Gatherer:
    """Gathers, and remembers when the pods of a variant last changed: nothing in the cluster tells of one that went."""

    def __init__(
        self,
        cluster: Cluster,
        tables: Tables,
        profiles: Mapping[str, EngineModel],
        *,
        unix_clock: Callable[[], float],
    ) -> None:
        """`profiles` are the shipped engine profiles by name."""
        self._cluster = cluster
        self._tables = tables
        self._profiles = profiles
        self._unix_clock = unix_clock
        self._pods: dict[Key, tuple[frozenset[str], float]] = {}
        self.hearing = Hearing()
        """Of the nodes' agents."""

    def signs(self) -> dict[str, Sign]:
        """The last sign of life of each node's agent; without those that leave none, or have ended."""
        return {
            key.name: (each.uid, each.heartbeat)
            for key, each in self._cluster.table(Kind.NODE_POWER).items()
            if each.heartbeat is not None and (each.applied is None or each.applied[1] != STOPPED)
        }

    def policies(self) -> list[Governed]:
        """All policies that power is about, with the variants that they govern."""
        cluster = self._cluster
        found: dict[Key, tuple[CarbonPolicy, list[tuple[Key, WorkloadVariant]]]] = {
            key: (policy, [])
            for key, policy in cluster.policies.items()
            if policy.spec.power is not None or policy.spec.demand_response is not None or rests_clocks(policy)
        }
        taken: set[Key] = set()
        for pool in sorted(cluster.pools):  # as `Cluster.governing`, which looks at one variant
            winner = cluster.winner(pool)
            if winner is None:
                continue
            entry = found.get(policy_key(winner))
            for key in cluster.variants_of(pool) - taken:
                taken.add(key)
                variant = cluster.variants.get(key)
                if entry is not None and variant is not None:
                    entry[1].append((key, variant))
        for gone in self._pods.keys() - taken:
            del self._pods[gone]
        return [self._governed(key, policy, variants) for key, (policy, variants) in sorted(found.items())]

    def _governed(self, key: Key, policy: CarbonPolicy, variants: list[tuple[Key, WorkloadVariant]]) -> Governed:
        granted = power_grant(self._cluster, key.namespace)
        ordered = sorted(variants, key=lambda each: each[0])
        engines = [found for each in ordered if (found := self._engines(*each)).count > 0]
        nodes = {node for each in engines for node in each.by_node}
        acting = granted.allowed and policy.spec.enforcement is Enforcement.ENFORCE
        known = {node: self._cluster.table(Kind.NODE_POWER).get(node_power_key(node)) for node in nodes}
        agents = {node: each for node, each in known.items() if each is not None and each.answered}
        silent = (self.hearing.silent() | (self.hearing.unheard() & _called_silent(policy))) & agents.keys()
        unapplied = {
            node: each.applied[1]
            for node, each in sorted(agents.items())
            if node not in silent
            and each.applied is not None
            and each.applied[0] == "False"
            and each.applied[1] not in _PASSING
        }
        facts = tuple(
            self._facts(each, acting=acting and not agents.keys().isdisjoint(each.by_node)) for each in engines
        )
        return Governed(
            key,
            policy,
            granted,
            tuple(engines),
            facts,
            unanswered=frozenset(nodes - agents.keys()),
            unapplied=unapplied if acting else {},
            silent=frozenset(silent) if acting else frozenset(),
        )

    def _engines(self, key: Key, variant: WorkloadVariant) -> Engines:
        by_node: dict[str, list[tuple[str, str]]] = {}
        for pod_key, pod in self._cluster.pods_of(key):
            if pod.node is not None and pod.phase in _ALIVE:
                by_node.setdefault(pod.node, []).append((pod_key.name, pod.uid))
        names = {name for each in by_node.values() for name, _ in each}
        resting = self._tables.resting.get(key, frozenset()) & names
        return Engines(key, variant, {node: tuple(sorted(each)) for node, each in sorted(by_node.items())}, resting)

    def _facts(self, engines: Engines, *, acting: bool) -> VariantFacts:
        """`acting`: whether what was chosen last is what is set, as far as is known."""
        variant, spec = engines.variant, engines.variant.spec
        chosen = chosen_power(variant)
        present = chosen.sm_clock_mhz if acting and chosen is not None else None
        awake = engines.count - len(engines.resting)
        work, rate, ttft, tpot = self._load(engines.key, variant, awake, present)
        return VariantFacts(
            name=f"{engines.key.namespace}/{engines.key.name}",
            spec=spec,
            awake=awake,
            resting=len(engines.resting),
            resting_watts=self._resting_watts(variant),
            present_mhz=present,
            requests_per_second=rate,
            ttft_seconds=ttft,
            tpot_seconds=tpot,
            work=work,
            for_budget=chosen is not None and chosen.reason in _BUDGET_REASONS,
            recent=self._recent(engines, chosen if acting else None),
        )

    def _load(
        self, key: Key, variant: WorkloadVariant, awake: int, present_mhz: int | None
    ) -> tuple[Work | None, float, float, float]:
        """Mean request, requests per second, TTFT and TPOT; None and NaN where unknown."""
        load = self._tables.loads.get(key)
        if load is None or self._unix_clock() - load.measured_unix_s > LOAD_STALE_S or awake == 0:
            return None, nan, nan, nan
        work = None
        if load.prompt_tokens is not None and load.output_tokens is not None:
            work = Work(load.prompt_tokens, load.output_tokens)
        rate, ttft, tpot = (_number(each) for each in _numbers(load))
        engine = self._engine(variant)
        if engine is not None and work is not None and (load.ttft_seconds is None or load.tpot_seconds is None):
            at = engine if present_mhz is None else engine.at_clock(present_mhz)
            expected = modelled(at, variant.spec.role, work, rate / awake, PROMISE_QUANTILE)
            ttft = expected.ttft_seconds if load.ttft_seconds is None else ttft
            tpot = expected.tpot_seconds if load.tpot_seconds is None else tpot
        return work, rate, ttft, tpot

    def _engine(self, variant: WorkloadVariant) -> EngineModel | None:
        try:
            return engine_model(variant, self._profiles)
        except InvalidInputError:
            return None  # the picker says so where it matters

    def _resting_watts(self, variant: WorkloadVariant) -> float | None:
        engine, limits = self._engine(variant), variant.spec.clock_range
        if engine is None:
            return None
        return engine.idle_watts if limits is None else engine.at_clock(limits.min_mhz).idle_watts

    def _recent(self, engines: Engines, chosen: ChosenPower | None) -> Recent:
        pods: list[tuple[Key, Pod]] = self._cluster.pods_of(engines.key)
        serving = frozenset(key.name for key, pod in pods if pod.serves)
        before = self._pods.get(engines.key)
        if before is None:
            # After a start the youngest pod tells when the number last grew; of one that went before, nothing tells.
            changed = max((pod.ready_since_unix_s or NEVER for _, pod in pods), default=NEVER)
            self._pods[engines.key] = serving, changed
        elif before[0] != serving:
            self._pods[engines.key] = serving, self._unix_clock()
        return Recent(
            clocks_changed_unix_s=NEVER if chosen is None or chosen.since is None else chosen.since.timestamp(),
            replicas_changed_unix_s=self._pods[engines.key][1],
            replicas_in_transition=any(pod.starts or pod.terminating for _, pod in pods),
        )


def power_grant(cluster: Cluster, namespace: str) -> Grant:
    """Whether policies of a namespace may set clocks and watts, and have sources asked."""
    known = cluster.namespaces.get(namespace_key(namespace))
    return grant(Right.POWER, namespace, None if known is None else dict(known.labels))


def _called_silent(policy: CarbonPolicy) -> frozenset[str]:
    """Words of the condition that says of nodes that they are silent, their names among them; else none."""
    conditions = () if policy.status is None else policy.status.conditions
    said = next((each for each in conditions if each.type == ConditionType.POWER_MANAGED), None)
    if said is None or said.reason != AGENT_SILENT:
        return frozenset()
    return frozenset(said.message.replace(",", " ").replace(":", " ").split())


def rests_clocks(policy: CarbonPolicy) -> bool:
    """Whether idle engines of the policy may rest at a low clock, which is told to nodes as all clocks are."""
    autoscaling = policy.spec.autoscaling
    activation = None if autoscaling is None else autoscaling.activation
    return activation is not None and ActivationDepth.IDLE_CLOCK in activation.depths


def _numbers(load: VariantLoad) -> tuple[float | None, float | None, float | None]:
    return load.requests_per_second, load.ttft_seconds, load.tpot_seconds


def _number(value: float | None) -> float:
    return nan if value is None else value
