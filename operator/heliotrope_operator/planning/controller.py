"""Plans the replicas of all variants together, and writes what is wanted into the table that actuation reads."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from heliotrope.api.v1alpha1.carbonpolicy import CarbonPolicyStatus
from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope.power.turns import SETTLE_SECONDS, settle_seconds
from heliotrope.scale.allocate import allocate
from heliotrope.scale.facts import FleetFacts
from heliotrope.scale.plan import FleetPlan, Reason, VariantPlan
from heliotrope_operator.actuation.authority import authority
from heliotrope_operator.actuation.wanted import Wanted
from heliotrope_operator.capacities import Capacities
from heliotrope_operator.conditions import ConditionType, Finding, settle, transitions
from heliotrope_operator.kinds.targets import actuations
from heliotrope_operator.parts import Context
from heliotrope_operator.planning.corrections import Corrections
from heliotrope_operator.planning.gather import Gathered, Gatherer, Member, with_capacities
from heliotrope_operator.planning.metrics import Groups, PlanningMetrics
from heliotrope_operator.planning.watch import DemandWatch, Observed
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.tables import Expected
from heliotrope_operator.turns import clocks_settle

_log = logging.getLogger(__name__)

ALLOCATION = Key(Kind.ALLOCATION, "", "")
NOTHING_TO_PLAN_S = 10.0
"""How soon to look again where no policy scales."""
ELSEWHERE_S = 120.0
"""After so long without a plan another replica may have led: what this one remembers is no longer true."""
URGENT = frozenset({Reason.SATURATION, Reason.WOKEN, Reason.START_AHEAD})
"""Reasons that do not wait for a policy's interval."""


class AllocationController:
    """One plan at a time."""

    def __init__(
        self, context: Context, gatherer: Gatherer, watch: DemandWatch, capacities: Capacities, metrics: PlanningMetrics
    ) -> None:
        """See the arguments' own classes."""
        self._context = context
        self._gatherer = gatherer
        self._watch = watch
        self._capacities = capacities
        self.corrections = Corrections()
        """Of engine models; learned in the thread that plans."""
        self._metrics = metrics
        self._decided: dict[Key, float] = {}
        """When each policy's variants were last decided about."""
        self._planned_unix_s: float | None = None
        self.groups: Groups = {}
        """Of the last plan, by `namespace/pool/model`."""

    async def reconcile(self, _key: Key) -> float:
        """Plan once. Returns the seconds after which to plan again."""
        now = self._context.unix_clock()
        if self._planned_unix_s is not None and now - self._planned_unix_s > ELSEWHERE_S:
            self._context.tables.scaling.clear()
            self._context.tables.wanted.clear()
        self._planned_unix_s = now
        gathered = self._gatherer.gather()
        if not gathered.members:
            self._forget(())
            self.groups = {}
            return NOTHING_TO_PLAN_S
        started = asyncio.get_running_loop().time()
        self._tell_expected(gathered, now)
        facts, plan = await asyncio.to_thread(_plan, gathered, self._capacities, self.corrections)
        self._metrics.planned(plan, asyncio.get_running_loop().time() - started, now)
        by_name = {group.name: group for group in plan.groups}
        self.groups = {group.name: (group, by_name.get(group.name)) for group in facts.groups}
        self._publish(gathered, plan, now)
        await self._tell_policies(gathered, facts, now)
        return min(each.autoscaling.interval.total_seconds() for each in gathered.members.values())

    def _publish(self, gathered: Gathered, plan: FleetPlan, now: float) -> None:
        due = self._due(gathered.members.values(), now)
        touched: list[Key] = []
        for each in plan.variants:
            member = gathered.members[each.name]
            if member.policy_key not in due and each.reason not in URGENT:
                continue
            if self._waits_for_clocks(member, each, now):
                continue
            self._context.tables.scaling[member.key] = each.state
            if self._context.tables.wanted.put(member.key, self._wanted(member, each, now)):
                touched.append(member.key)
        touched += self._forget(member.key for member in gathered.members.values())
        self._context.enqueue([*touched, *actuations(self._context.cluster, touched)])

    def _waits_for_clocks(self, member: Member, plan: VariantPlan, now: float) -> bool:
        """Whether fewer replicas than are wanted so far are asked for while new clocks have not shown their effect."""
        before = self._context.tables.wanted.get(member.key)
        if before is None or before.replicas is None or plan.desired is None:
            return False
        return plan.desired < before.replicas and clocks_settle(member.variant, now, _settles_s(member))

    def _tell_expected(self, gathered: Gathered, now: float) -> None:
        """What is expected of each model, for the parts that look ahead, too."""
        table, facts = self._context.tables.expected, gathered.facts
        demands = {group.name: group.demand for group in facts.groups}
        told = {
            (member.pool, member.variant.spec.model): Expected(now, facts.step_seconds, demand)
            for member in gathered.members.values()
            if (demand := demands[member.group]) is not None
        }
        for gone in table.keys() - told.keys():
            del table[gone]
        table.update(told)

    def _due(self, members: Iterable[Member], now: float) -> set[Key]:
        """Policies whose interval is over; they count as decided now."""
        due = set()
        policies = {member.policy_key: member.autoscaling for member in members}
        for key, autoscaling in policies.items():
            last = self._decided.get(key)
            # Others with shorter intervals have this called earlier than asked for, never later than a little.
            if last is None or now - last >= 0.9 * autoscaling.interval.total_seconds():
                due.add(key)
                self._decided[key] = now
        for gone in self._decided.keys() - policies.keys():
            del self._decided[gone]
        return due

    def _wanted(self, member: Member, plan: VariantPlan, now: float) -> Wanted:
        may = authority(self._context.cluster, member.key)
        return Wanted(
            replicas=None if plan.reason is Reason.NOT_MANAGED else plan.desired,
            mode=may.mode or member.autoscaling.actuation,
            act=may.act,
            reason=plan.reason.value,
            message=plan.explanation,
            decided_unix_s=now,
        )

    def _forget(self, members: Iterable[Key]) -> list[Key]:
        """Drop what is wanted of variants that nobody plans any more; returns them."""
        tables, kept = self._context.tables, set(members)
        gone = [key for key in tables.wanted if key not in kept]
        for key in gone:
            tables.wanted.put(key, None)
        for key in tables.scaling.keys() - kept:
            del tables.scaling[key]
        if gone:
            self._context.enqueue([*gone, *actuations(self._context.cluster, gone)])
        return gone

    async def _tell_policies(self, gathered: Gathered, facts: FleetFacts, now: float) -> None:
        """Say on each policy whether its demand is known: without it replicas are held."""
        known = {group.name: group.demand is not None for group in facts.groups}
        found: dict[Key, dict[str, bool]] = {}
        for member in gathered.members.values():
            found.setdefault(member.policy_key, {})[member.group] = known[member.group]
        pools = {member.policy_key: member.pool for member in gathered.members.values()}
        for key, groups in found.items():
            policy = self._context.cluster.policies.get(key)
            if policy is None or policy.status is None:
                continue  # its own controller writes the first status
            observed = self._watch.of(pools[key])
            finding = demand_finding(groups, observed)
            at = datetime.fromtimestamp(int(now), UTC)
            conditions = settle(
                policy.status.conditions,
                [finding],
                policy.metadata.generation,
                at,
                own={ConditionType.DEMAND_KNOWN},
            )
            status: CarbonPolicyStatus = policy.status.model_copy(update={"conditions": conditions})
            changes = transitions(policy.status.conditions, conditions)
            await self._context.writer.status(key, policy.metadata, policy.status, status, changes)


def demand_finding(groups: Mapping[str, bool], observed: Observed) -> Finding:
    """Whether it is known what is asked of the pools of a policy.

    Args:
        groups: by `namespace/pool/model`, whether the demand is known.
        observed: of the pool.
    """
    kind, problem = ConditionType.DEMAND_KNOWN, observed.problem
    unknown = sorted(name for name, known in groups.items() if not known)
    if not unknown and observed.by_prometheus:
        return Finding(kind, ConditionStatus.TRUE, "DemandFromPrometheus", _by_prometheus(groups, observed))
    for name in unknown:
        if (gap := observed.gaps.get(_model(name))) is not None:
            problem = f"{problem}; Prometheus: {gap}" if problem else f"Prometheus: {gap}"
            break
    if not unknown:
        return Finding(kind, ConditionStatus.TRUE, "DemandKnown", "pickers tell what is asked of every model")
    names = ", ".join(name.split("/", 1)[1] for name in unknown[:5]) + (" and others" if len(unknown) > 5 else "")
    if problem is None:
        message = f"it is being learned what is asked of {names}; until then replicas are held"
        return Finding(kind, ConditionStatus.UNKNOWN, "DemandPending", message)
    message = f"replicas are held, as it is not known what is asked of {names}: {problem}"
    return Finding(kind, ConditionStatus.FALSE, "DemandUnknown", message)


def _by_prometheus(groups: Mapping[str, bool], observed: Observed) -> str:
    """From what Prometheus tells it, what is held, and why the pickers do not tell."""
    silent = observed.problem or "no picker has told rates yet"
    source = "the requests that engines serve" if observed.by_engines else "the pickers' counters"
    held = sorted(model for name in groups if (model := _model(name)) in observed.keeps)
    if held:
        limit = f"nothing is taken away of {held[0]}: {observed.keeps[held[0]]}"
    elif not observed.engines:
        limit = "nothing is taken away, as no engine is among what it scrapes"
    else:
        limit = "the last replica of a model stays"
    return f"Prometheus tells what is asked of every model, by {source}; {limit}. It is asked, as {silent}"


def _model(group: str) -> str:
    return group.split("/", 2)[2]


def _settles_s(member: Member) -> float:
    """How long a change of clocks is waited for before replicas go."""
    power = member.policy.spec.power
    return SETTLE_SECONDS if power is None else settle_seconds(power.minimum_dwell.total_seconds())


def _plan(gathered: Gathered, capacities: Capacities, corrections: Corrections) -> tuple[FleetFacts, FleetPlan]:
    facts = with_capacities(gathered, capacities, corrections)
    return facts, allocate(facts)
