"""From what is known of the cluster to what a fleet is planned from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from heliotrope.api.grants import Right, grant
from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.api.v1alpha1.controls import Autoscaling
from heliotrope.scale.ceilings import Ceilings
from heliotrope.scale.facts import FleetFacts, GroupFacts, Mix, VariantFacts
from heliotrope.scale.pace import USUAL_INTERVAL_SECONDS
from heliotrope_operator.capacities import Capacities
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.namespaces import namespace_key
from heliotrope_operator.kinds.policies import policy_key
from heliotrope_operator.planning.corrections import Corrections, Measured
from heliotrope_operator.planning.histories import Histories
from heliotrope_operator.planning.regions import region_facts
from heliotrope_operator.planning.rules import scaling_rules
from heliotrope_operator.planning.starts import Starts
from heliotrope_operator.planning.variants import variant_facts
from heliotrope_operator.planning.watch import DemandWatch
from heliotrope_operator.resources import Key
from heliotrope_operator.tables import Tables

STEP_INTERVALS = 10.0
"""Decisions in the shortest step of the horizon: five minutes at the usual interval of 30 s."""
MOST_STEPS = 7
"""The horizon has at most so many steps; a longer look ahead has longer ones."""

_PROMETHEUS = "Prometheus"

ASSUMED_MIX = Mix(prompt_tokens=1_024.0, output_tokens=256.0)
"""Of a model that nobody has asked for yet: what its first engine is started for."""


@dataclass(frozen=True, slots=True)
class Member:
    """A variant that is planned, with its policy."""

    key: Key
    variant: WorkloadVariant
    pool: Key
    policy_key: Key
    policy: CarbonPolicy
    autoscaling: Autoscaling

    @property
    def group(self) -> str:
        """Name of the group whose demand it carries."""
        return f"{self.pool.namespace}/{self.pool.name}/{self.variant.spec.model}"


@dataclass(frozen=True, slots=True)
class Gathered:
    """Facts without capacities, which take a while to compute, and what those are computed from."""

    facts: FleetFacts
    members: Mapping[str, Member]
    """By the names of the variants in the facts."""
    mixes: Mapping[str, Mix]
    """Requests of each group on average, also where its demand is not known at the moment."""
    measured: Mapping[str, Measured]
    """What engines of each variant showed."""


class Gatherer:
    """Reads tables and the cluster; nothing is changed."""

    def __init__(
        self,
        cluster: Cluster,
        tables: Tables,
        watch: DemandWatch,
        histories: Histories,
        starts: Starts,
        *,
        unix_clock: Callable[[], float],
    ) -> None:
        """See the arguments' own classes."""
        self._cluster = cluster
        self._tables = tables
        self._watch = watch
        self._histories = histories
        self._starts = starts
        self._unix_clock = unix_clock

    def members(self) -> list[Member]:
        """Variants of pools whose policy scales, in the order of their names."""
        found = []
        for key, variant in sorted(self._cluster.variants.items()):
            governing = self._cluster.governing(key)
            if governing is None or (autoscaling := governing[1].spec.autoscaling) is None:
                continue
            pool, policy = governing
            found.append(Member(key, variant, pool, policy_key(policy), policy, autoscaling))
        return found

    def gather(self) -> Gathered:
        """Everything, as of now."""
        now, members = self._unix_clock(), self.members()
        self._histories.keep((member.pool, member.variant.spec.model) for member in members)
        self._starts.keep(member.key for member in members)
        step_seconds, steps = horizon(member.autoscaling for member in members)
        starts_unix_s = [now + step * step_seconds for step in range(steps)]
        groups: dict[str, GroupFacts] = {}
        mixes: dict[str, Mix] = {}
        variants = []
        for member in members:
            if member.group not in groups:
                groups[member.group] = self._group(member, now, step_seconds, steps)
                history = self._histories.of(member.pool, member.variant.spec.model)
                mixes[member.group] = (None if history is None else history.mix()) or ASSUMED_MIX
            variants.append(self._variant(member, now))
        there = {each.group for each in variants if each.replicas is not None and each.replicas.wanted > 0}
        members_by_name = {f"{member.key.namespace}/{member.key.name}": member for member in members}
        holding = self._tables.ceilings.holding(now)
        if holding is not None:
            variants = under_ceilings(variants, holding)
        return Gathered(
            FleetFacts(
                now_unix_s=now,
                step_seconds=step_seconds,
                groups=tuple(_kept_awake(each) if each.name in there else each for each in groups.values()),
                regions=tuple(
                    region_facts(profile, starts_unix_s, step_seconds)
                    for _, profile in sorted(self._cluster.regions.items())
                ),
                variants=tuple(variants),
            ),
            members_by_name,
            mixes,
            {each.name: self._measured(members_by_name[each.name].key, each) for each in variants},
        )

    def _group(self, member: Member, now: float, step_seconds: float, steps: int) -> GroupFacts:
        model = member.variant.spec.model
        observed = self._watch.of(member.pool)
        known = observed.models is not None
        return GroupFacts(
            name=member.group,
            rules=scaling_rules(member.policy, member.autoscaling),
            demand=self._histories.forecast(member.pool, model, now, step_seconds, steps) if known else None,
            held_requests=observed.held.get(model, 0.0),
            told_by=_PROMETHEUS if observed.by_prometheus else None,
            keeps=observed.keeps.get(model) is not None,
        )

    def _variant(self, member: Member, now: float) -> VariantFacts:
        pods = self._cluster.pods_of(member.key)
        self._starts.observe(member.key, (pod for _, pod in pods))
        scale = self._tables.scales.get(member.key)
        return variant_facts(
            self._cluster,
            member.key,
            member.variant,
            group=member.group,
            wanted=None if scale is None else scale.wanted,
            pods=pods,
            engines=self._watch.of(member.pool).engines,
            start_seconds=self._starts.seconds(member.key),
            granted=self._granted(member),
            state=self._tables.scaling.get(member.key),
            now_unix_s=now,
        )

    def _measured(self, key: Key, facts: VariantFacts) -> Measured:
        load = self._tables.loads.get(key)
        serving = 0 if facts.replicas is None else facts.replicas.serving
        if load is None or load.requests_per_second is None or serving == 0:
            return Measured(None, None, None)
        return Measured(load.requests_per_second / serving, load.mean_ttft_seconds, load.mean_tpot_seconds)

    def _granted(self, member: Member) -> bool:
        """Advice needs no grant: it changes nothing."""
        if member.policy.spec.enforcement is not Enforcement.ENFORCE:
            return True
        namespace = self._cluster.namespaces.get(namespace_key(member.key.namespace))
        labels = None if namespace is None else dict(namespace.labels)
        return grant(Right.SCALING, member.key.namespace, labels).allowed


def _kept_awake(group: GroupFacts) -> GroupFacts:
    """The last replica of a model stays where no picker answers: nobody would hold its requests, or wake it."""
    return group if group.told_by is None else replace(group, rules=replace(group.rules, scale_to_zero=False))


def under_ceilings(variants: Sequence[VariantFacts], ceilings: Ceilings) -> list[VariantFacts]:
    """The variants with what a hub leaves each of them beside the others of its region and type of accelerator."""
    taken: dict[tuple[str | None, str], int] = {}
    for each in variants:
        place = (each.region, each.accelerator_type)
        taken[place] = taken.get(place, 0) + _accelerators(each)
    found = []
    for each in variants:
        limit = None if each.region is None else ceilings.ceiling(each.region, each.accelerator_type)
        if limit is None:
            found.append(each)
            continue
        left = limit - (taken[each.region, each.accelerator_type] - _accelerators(each))
        found.append(replace(each, ceiling=max(left, 0) // each.accelerators_per_replica))
    return found


def _accelerators(variant: VariantFacts) -> int:
    return 0 if variant.replicas is None else variant.replicas.wanted * variant.accelerators_per_replica


def with_capacities(gathered: Gathered, capacities: Capacities, corrections: Corrections) -> FleetFacts:
    """The facts, whole. Takes a while where engines are met for the first time: not for the event loop."""
    corrections.keep(member.key for member in gathered.members.values())
    variants = []
    for facts in gathered.facts.variants:
        member = gathered.members[facts.name]
        mix, engine = gathered.mixes[facts.group], capacities.engine(member.variant)
        if engine is not None:
            corrections.learn(member.key, engine, facts.role, mix, gathered.measured[facts.name])
        capacity = capacities.of(member.variant, member.policy, mix, corrections.of(member.key))
        variants.append(replace(facts, capacity=capacity))
    return replace(gathered.facts, variants=tuple(variants))


def horizon(policies: Iterable[Autoscaling]) -> tuple[float, int]:
    """Seconds of a step and number of steps, for the longest look ahead of all policies; step 0 is now."""
    times = [(each.look_ahead.total_seconds(), each.interval.total_seconds()) for each in policies]
    longest = max((look_ahead for look_ahead, _ in times), default=0.0)
    shortest = min((interval for _, interval in times), default=USUAL_INTERVAL_SECONDS)
    step_seconds = max(STEP_INTERVALS * shortest, longest / (MOST_STEPS - 1))
    return step_seconds, min(1 + ceil(longest / step_seconds), MOST_STEPS)
