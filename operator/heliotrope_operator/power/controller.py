"""Clocks and watts of all variants, and answers to the grid, in one pass over all policies."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.api.v1alpha1.carbonpolicy import CONTROLLER_NAME, DemandResponseStatus
from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope.api.v1alpha1.controls import DemandResponse, Power
from heliotrope.errors import HeliotropeError
from heliotrope.power.budget import lowest, planned
from heliotrope.power.clocks import ClockRules
from heliotrope.power.demand import Answer, Ramps, answer, limit_at
from heliotrope.power.latency import Promise
from heliotrope.power.plan import Planning, PowerPlan, PowerRules, Setting
from heliotrope.power.turns import settle_seconds
from heliotrope_operator.conditions import ConditionType, transitions
from heliotrope_operator.errors import ApiError, ConflictError, NotFoundError, NotLeaderError
from heliotrope_operator.kinds.nodepowers import KnownNodePower
from heliotrope_operator.kinds.nodes import node_key
from heliotrope_operator.parts import Context
from heliotrope_operator.power.gather import Gatherer, Governed
from heliotrope_operator.power.lease import PowerLease
from heliotrope_operator.power.metrics import Agents, Decided, PowerMetrics
from heliotrope_operator.power.publish import Wanted, is_so, node_power_document, wanted_node_powers
from heliotrope_operator.power.report import (
    OWN_CONDITIONS,
    Budgeted,
    answer_of,
    demand_finding,
    demand_status,
    policy_status,
    power_finding,
    variant_status,
)
from heliotrope_operator.power.sources import DemandSources, Heard
from heliotrope_operator.resources import RESOURCES, Key, Kind
from heliotrope_operator.turns import chosen_power

_log = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""While an event is answered, or a budget is about to change."""
QUIET_S = 10.0
FORGET_S = 60.0
"""After so long without a pass its decisions are no news any more."""
MOST_ASKED = 20
"""NodePowers that one pass reads from the API server before it calls their agents silent."""
ASKING_S = 5.0
"""How long that may take, all together."""
AGAIN_S = 1.0
"""After a write that lost a race."""
DEFAULT_POWER = Power(clock_per_phase=False)
"""Of policies without `power`, which answer the grid by other means or rest idle engines: none that works is set."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a pass decides for a policy, before it is written."""

    governed: Governed
    plan: PowerPlan
    budgeted: Budgeted
    heard: Heard | None
    """None: it has no `demandResponse`."""
    answered: Answer | None


class PowerController:
    """Decides for all policies, then writes what differs: NodePowers, statuses, and last the Lease."""

    def __init__(
        self,
        context: Context,
        gatherer: Gatherer,
        sources: DemandSources,
        lease: PowerLease,
        metrics: PowerMetrics,
    ) -> None:
        self._context = context
        self._gatherer = gatherer
        self._sources = sources
        self._lease = lease
        self._metrics = metrics
        self._conflicts: dict[str, frozenset[Key]] = {}
        """Nodes whose NodePower is somebody else's, with the policies that wanted to write it."""
        self._decided: tuple[Decided, ...] = ()
        self._decided_unix_s = float("-inf")
        self._agents: Agents | None = None

    def decided(self) -> tuple[Decided, ...]:
        """What the last pass decided; nothing if that was long ago, as another replica leads. For any thread."""
        recent = self._context.unix_clock() - self._decided_unix_s < FORGET_S
        return self._decided if recent else ()

    def agents(self) -> Agents | None:
        """What the last pass heard of the nodes' agents; None as `decided` is empty. For any thread."""
        recent = self._context.unix_clock() - self._decided_unix_s < FORGET_S
        return self._agents if recent else None

    async def reconcile(self, key: Key) -> float | None:  # noqa: ARG002 - there is one key
        """One pass; see `RegionController.reconcile`.

        Raises:
            NotLeaderError: if this replica may not write.
            ApiError: if what keeps the NodePowers alive could not be written.
        """
        try:
            return await self._pass()
        except ApiError:
            self._gatherer.hearing.failed()
            raise

    async def _pass(self) -> float:
        now_unix_s = self._context.unix_clock()
        await self._listen(now_unix_s)
        found = self._gatherer.policies()
        self._sources.keep(frozenset(each.key for each in found))
        decisions = []
        for governed in found:
            self._follow(governed)
            decisions.append(self._decide(governed, now_unix_s))
            await asyncio.sleep(0)  # a pass over many policies must not hold up watches and probes
        self._decided_unix_s = now_unix_s
        self._decided = tuple(
            Decided(
                each.governed,
                each.plan,
                each.budgeted.limit,
                each.answered,
                each.answered is not None and each.answered.holds(now_unix_s),
            )
            for each in decisions
        )
        wanted = wanted_node_powers([(each.governed, each.plan.settings) for each in decisions])
        lost = not await self._publish(wanted)
        lost |= not await self._report(decisions, now_unix_s)
        if wanted:
            await self._lease.renew()
        if lost:
            return AGAIN_S
        return INTERVAL_S if any(each.budgeted.moves for each in decisions) else QUIET_S

    async def _listen(self, now_unix_s: float) -> None:
        """Hear the nodes' agents. Before one is called silent the API server is asked: the watch may have stalled."""
        hearing = self._gatherer.hearing
        hearing.look(self._gatherer.signs(), now_unix_s)
        try:
            async with asyncio.timeout(ASKING_S):
                await self._ask(hearing.doubtful(MOST_ASKED))
        except (ApiError, TimeoutError) as error:  # nobody is called silent for that, and the Lease must not wait
            _log.debug("the nodes' agents cannot be asked about: %s", error)
        hearing.look(self._gatherer.signs(), now_unix_s)
        self._agents = Agents(hearing.silent(), hearing.ages_s())

    async def _ask(self, nodes: Sequence[str]) -> None:
        """Read NodePowers past the watch."""
        for node in nodes:
            path = RESOURCES[Kind.NODE_POWER].path(name=node)
            try:
                self._context.cluster.observe(Kind.NODE_POWER, await self._context.kube.get(path))
            except NotFoundError:
                continue  # the watch will tell
            self._gatherer.hearing.asked(node)

    def _follow(self, governed: Governed) -> None:
        """Have a source asked that nobody asks yet."""
        response = governed.policy.spec.demand_response
        if response is not None and governed.granted.allowed and not self._sources.followed(governed.key, response):
            key = governed.key
            self._context.enqueue([Key(Kind.DEMAND_RESPONSE, key.namespace, key.name)])

    def _decide(self, governed: Governed, now_unix_s: float) -> _Decision:
        spec = governed.policy.spec
        power = spec.power or DEFAULT_POWER
        rules = _rules(governed.policy, power)
        planning = Planning(governed.facts, rules, now_unix_s)
        now = planned(power.budget, now_unix_s)
        until = _settled_unix_s(governed, now_unix_s, rules.dwell_seconds)
        heard, answered, limit = None, None, None
        if spec.demand_response is not None:
            previous = answer_of(None if governed.policy.status is None else governed.policy.status.demand_response)
            heard = self._sources.heard(governed.key, spec.demand_response, previous)
            ramps = _ramps(spec.demand_response)
            baseline = min(planning.free_watts, inf if now.limit is None else now.limit.watts)
            answered = answer(
                previous, heard.events, now_unix_s, ramps, baseline if governed.facts and baseline < inf else None
            )
            # Ramps are straight, so the ends of that time tell what the least will be.
            limit = lowest([limit_at(answered, at, ramps) for at in (now_unix_s, until)])
        limits = [limit, now.limit]
        if now.changes_unix_s <= until:
            limits.append(planned(power.budget, now.changes_unix_s).limit)
        counts = lowest(limits) if spec.power is not None else None
        plan = planning.within(inf if counts is None else counts.watts)
        moves = answered is not None or now.changes_unix_s < now_unix_s + 2 * QUIET_S
        return _Decision(governed, plan, Budgeted(counts, now.problems, moves=moves), heard, answered)

    async def _publish(self, wanted: Mapping[str, Wanted]) -> bool:
        """Make the NodePowers so; False if one has to be tried again."""
        context, resource, done = self._context, RESOURCES[Kind.NODE_POWER], True
        known: Mapping[str, KnownNodePower] = {
            key.name: value for key, value in context.cluster.table(Kind.NODE_POWER).items()
        }
        self._conflicts = {node: of for node, of in self._conflicts.items() if node in wanted}
        for node, each in wanted.items():
            if is_so(known.get(node), each):
                self._conflicts.pop(node, None)
                continue
            self._metrics.left_out.inc(each.left_out)
            document = node_power_document(node, each, context.cluster.nodes.get(node_key(node)))
            try:
                applied = await context.writes.apply(resource.path(name=node), document)
            except ConflictError:
                self._conflicts[node] = each.policies
                self._metrics.writes.labels("conflict").inc()
            else:
                self._conflicts.pop(node, None)
                self._metrics.writes.labels("applied").inc()
                context.cluster.observe(Kind.NODE_POWER, applied)
        for node, value in known.items():
            if node in wanted or not value.managed:
                continue
            try:
                await context.writes.delete(resource.path(name=node), uid=value.uid)
            except NotFoundError:
                pass
            except ConflictError:
                done = False  # another of its name: the watch will tell
                continue
            self._metrics.writes.labels("deleted").inc()
            context.cluster.forget(Key(Kind.NODE_POWER, "", node), value.uid)
        return done

    async def _report(self, decisions: Sequence[_Decision], now_unix_s: float) -> bool:
        """Write the statuses; False if one has to be tried again."""
        now = datetime.fromtimestamp(int(now_unix_s), UTC)
        done = True
        chosen: dict[Key, tuple[Setting, timedelta | None]] = {}
        for each in decisions:
            if each.governed.policy.spec.power is None:
                continue
            advice = None if each.governed.acts else each.governed.policy.spec.power.minimum_dwell
            for engines in each.governed.engines:
                setting = each.plan.settings[f"{engines.key.namespace}/{engines.key.name}"]
                chosen[engines.key] = setting, advice
        for key, variant in self._context.cluster.variants.items():
            if key in chosen or chosen_power(variant) is not None:
                done &= await self._report_variant(key, *chosen.get(key, (None, None)), now=now)
        decided = {each.governed.key: each for each in decisions}
        for key, policy in self._context.cluster.policies.items():
            if key in decided or _reported(policy):
                done &= await self._report_policy(key, decided.get(key), now_unix_s)
        return done

    async def _report_variant(
        self, key: Key, setting: Setting | None, hold: timedelta | None, *, now: datetime
    ) -> bool:
        variant = self._context.cluster.variants.get(key)
        if variant is None:
            return True
        status = variant_status(variant, setting, now, acts=hold is None, hold=hold)
        before, after = chosen_power(variant), next(iter(status.chosen_power), None)
        if before == after:
            return True
        if after is not None and (before is None or before.since != after.since):
            self._metrics.changes.labels(after.reason).inc()
        try:
            await self._context.writer.status(key, variant.metadata, variant.status, status, ())
        except NotLeaderError:
            raise
        except ApiError as error:
            return _again(key, error)
        return True

    async def _report_policy(self, key: Key, decision: _Decision | None, now_unix_s: float) -> bool:
        policy = self._context.cluster.policies.get(key)
        if policy is None:
            return True
        findings = []
        demand: DemandResponseStatus | None = None
        if decision is not None and policy.spec.power is not None:
            nodes = [node for node, of in self._conflicts.items() if key in of]
            findings.append(
                power_finding(decision.governed, _accepted(policy), decision.plan, decision.budgeted, nodes)
            )
        if decision is not None and decision.heard is not None:
            previous = None if policy.status is None else policy.status.demand_response
            demand = demand_status(decision.answered, previous, now_unix_s)
            granted = decision.governed.granted.allowed
            findings.append(demand_finding(decision.answered, decision.heard, now_unix_s, granted=granted))
        status = policy_status(policy, findings, demand, datetime.fromtimestamp(int(now_unix_s), UTC))
        before = () if policy.status is None else policy.status.conditions
        told = transitions(before, [each for each in status.conditions if each.type in OWN_CONDITIONS])
        try:
            await self._context.writer.status(key, policy.metadata, policy.status, status, told)
        except NotLeaderError:
            raise
        except ApiError as error:
            return _again(key, error)
        return True


def _rules(policy: CarbonPolicy, power: Power) -> PowerRules:
    slo, autoscaling = policy.spec.slo, policy.spec.autoscaling
    saturation = {} if autoscaling is None else {"saturation": autoscaling.saturation.scale_up_percent / 100.0}
    return PowerRules(
        clocks=ClockRules(
            Promise(slo.ttft.total_seconds(), slo.tpot.total_seconds()),
            slo_headroom=power.slo_headroom_percent / 100.0,
            **saturation,
        ),
        clock_per_phase=power.clock_per_phase,
        dwell_seconds=power.minimum_dwell.total_seconds(),
        settle_seconds=settle_seconds(power.minimum_dwell.total_seconds()),
    )


def _ramps(response: DemandResponse) -> Ramps:
    return Ramps(
        response.ramp_in.total_seconds(), response.ramp_out.total_seconds(), response.reduction_percent / 100.0
    )


def _settled_unix_s(governed: Governed, now_unix_s: float, dwell_seconds: float) -> float:
    """Until when settings hold: those of now while they have to, else those that are chosen now.

    Clocks are chosen for the least that is left until then, so that they follow a ramp in steps and not at every pass.
    """
    chosen = (chosen_power(engines.variant) for engines in governed.engines)
    changed = (each.since.timestamp() for each in chosen if each is not None and each.since is not None)
    held_until = max(changed, default=-inf) + dwell_seconds
    return held_until if now_unix_s < held_until else now_unix_s + dwell_seconds


def _accepted(policy: CarbonPolicy) -> bool:
    """Whether the policy holds on a pool, as its status says; one that was not looked at yet is taken to."""
    own = [] if policy.status is None else [e for e in policy.status.ancestors if e.controller_name == CONTROLLER_NAME]
    accepted = [
        condition.status is ConditionStatus.TRUE
        for entry in own
        for condition in entry.conditions
        if condition.type == ConditionType.ACCEPTED
    ]
    return any(accepted) if accepted else True


def _reported(policy: CarbonPolicy) -> bool:
    """Whether a status still speaks of power or demand response."""
    status = policy.status
    if status is None:
        return False
    return status.demand_response is not None or any(each.type in OWN_CONDITIONS for each in status.conditions)


def _again(key: Key, error: HeliotropeError) -> bool:
    if not isinstance(error, ConflictError):
        _log.warning("%s: the status with clocks and watts was not written: %s", key, error)
    return False
