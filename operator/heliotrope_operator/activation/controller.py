"""One pass over all pools whose policy rests engines: plan, then do what differs, then say so."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from heliotrope.api.v1alpha1.carbonpolicy import CarbonPolicyStatus
from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.api.v1alpha1.workloadvariant import WorkloadVariantStatus
from heliotrope.scale.activation import ActivationPlan, plan
from heliotrope_operator.activation.gather import INTERVAL_S, Gatherer, Group, accepted, activation_of
from heliotrope_operator.activation.metrics import Decided
from heliotrope_operator.activation.nodes import Nodes
from heliotrope_operator.activation.sleepers import Sleepers, is_marked
from heliotrope_operator.conditions import ConditionType, Finding, settle, transitions
from heliotrope_operator.errors import ApiError, ConflictError
from heliotrope_operator.kinds.nodepowers import POWER
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import Key, Kind

_log = logging.getLogger(__name__)

ACTIVATION = Key(Kind.ACTIVATION, "", "")
AGAIN_S = 1.0
"""While requests wait, or a write lost a race."""
OWN_CONDITIONS = frozenset({ConditionType.ACTIVATED})
_SLEEP, _CLOCK, _OFF = ActivationDepth.ENGINE_SLEEP, ActivationDepth.IDLE_CLOCK, ActivationDepth.NODE_OFF


class ActivationController:
    """Reconciles the one key `ACTIVATION`."""

    def __init__(self, context: Context, gatherer: Gatherer, sleepers: Sleepers, nodes: Nodes) -> None:
        self._context = context
        self._gatherer = gatherer
        self._sleepers = sleepers
        self._nodes = nodes
        self.decided: tuple[Decided, ...] = ()
        """Of the last pass, for metrics."""

    async def reconcile(self, key: Key) -> float | None:  # noqa: ARG002 - there is one key
        """One pass.

        Raises:
            NotLeaderError: if this replica may not write.
        """
        now_unix_s = self._context.unix_clock()
        decided = []
        for group in self._gatherer.groups():
            planned = plan(
                group.facts,
                group.demand,
                group.rules,
                step_seconds=group.step_seconds,
                now_unix_s=now_unix_s,
                held_requests=group.held,
            )
            self._gatherer.history.planned(group, planned, now_unix_s)
            decided.append(Decided(group, planned))
            await asyncio.sleep(0)  # a pass over many pools must not hold up watches and probes
        self.decided = tuple(decided)
        acting = [each for each in decided if each.group.acts]
        self._rest_clocks(acting)
        self._sleep_and_wake(acting)
        off = {node for each in acting for node in each.plan.nodes_off}
        await self._nodes.make_so(off | self._stay_off(acting), self._may_go(acting))
        done = await self._report(decided, datetime.fromtimestamp(int(now_unix_s), UTC))
        if not done or any(each.group.held for each in decided):
            return AGAIN_S
        return min((each.group.rules.interval_seconds for each in decided), default=INTERVAL_S)

    async def close(self) -> None:
        """Wake what sleeps and put nodes back, if this replica still leads."""
        await self._sleepers.close([(pod, self._address(pod)) for pod in self._marked()])
        if self._context.writes.allowed:
            await self._nodes.restore_all()

    def _rest_clocks(self, acting: Sequence[Decided]) -> None:
        """Tell power which engines may run at their idle clock."""
        resting: dict[Key, set[str]] = defaultdict(set)
        for each in acting:
            for engine, todo in zip(each.group.engines, each.plan.engines, strict=True):
                if todo.depth is _CLOCK:
                    resting[engine.variant].add(engine.pod.name)
        table = self._context.tables.resting
        wanted = {key: frozenset(names) for key, names in resting.items()}
        if table != wanted:
            table.clear()
            table.update(wanted)
            self._context.enqueue([POWER])

    def _sleep_and_wake(self, acting: Sequence[Decided]) -> None:
        """Start what differs. Whatever is marked and not meant to rest is woken, whoever marked it and when."""
        meant = set()
        for each in acting:
            for engine, todo in zip(each.group.engines, each.plan.engines, strict=True):
                if todo.depth is _SLEEP:
                    meant.add(engine.pod)
                    if each.group.demand is not None:
                        self._sleepers.rest(engine)
        marked = self._marked()
        for pod in marked:
            if pod not in meant:
                self._sleepers.wake(pod, self._address(pod))
        self._sleepers.keep({*meant, *marked})

    def _marked(self) -> list[Key]:
        return [key for key, pod in self._context.cluster.pods.items() if is_marked(pod) and not pod.terminating]

    def _address(self, pod_key: Key) -> str | None:
        """Of the engine of a marked pod, by the pools that hold it; None where there is none any more."""
        cluster = self._context.cluster
        pod = cluster.pods.get(pod_key)
        if pod is None or pod.ip is None or pod.phase != "Running":
            return None
        labels = dict(pod.labels)
        for key in sorted(cluster.pools.by("namespace", pod_key.namespace)):
            pool = cluster.pools.get(key)
            if pool is not None and len(pool.ports) == 1 and set(pool.match_labels) <= labels.items():
                return f"[{pod.ip}]:{pool.ports[0]}" if ":" in pod.ip else f"{pod.ip}:{pool.ports[0]}"
        return None

    def _stay_off(self, acting: Sequence[Decided]) -> set[str]:
        """Nodes that are empty by now, while nodes may go off and no pod of theirs waits for a place."""
        cluster, wanted = self._context.cluster, self._context.tables.wanted
        groups = [each.group for each in acting if _OFF in each.group.rules.depths]
        if not groups:
            return set()
        for variant in {key for group in groups for key in cluster.variants_of(group.pool)}:
            pods = [pod for _, pod in cluster.pods_of(variant) if not pod.terminating]
            number = wanted.get(variant)
            surplus = number is not None and number.replicas is not None and len(pods) > number.replicas
            if not surplus and any(pod.node is None for pod in pods):
                return set()
        used = {engine.node for group in groups for engine in group.engines}
        return {node for node in self._nodes.taken() if node not in used}

    def _may_go(self, acting: Iterable[Decided]) -> frozenset[Key]:
        """Pods on nodes that go off, as many of each variant as it has more than are wanted of it."""
        cluster, found = self._context.cluster, []
        by_variant: dict[Key, list[Key]] = defaultdict(list)
        for each in acting:
            for engine, todo in zip(each.group.engines, each.plan.engines, strict=True):
                if todo.depth is _OFF and engine.node in each.plan.nodes_off:
                    by_variant[engine.variant].append(engine.pod)
        for variant, pods in by_variant.items():
            wanted = self._context.tables.wanted.get(variant)
            there = sum(not pod.terminating for _, pod in cluster.pods_of(variant))
            if wanted is not None and wanted.replicas is not None and wanted.act:
                found += sorted(pods)[: max(there - wanted.replicas, 0)]
        return frozenset(found)

    async def _report(self, decided: Sequence[Decided], now: datetime) -> bool:
        """Write statuses; False if one has to be tried again."""
        done = True
        active: dict[Key, int] = defaultdict(int)
        for each in decided:
            for engine, fact in zip(each.group.engines, each.group.facts, strict=True):
                active[engine.variant] += fact.depth in (None, _CLOCK)
        cluster, writer = self._context.cluster, self._context.writer
        reported = {engine.variant for each in decided for engine in each.group.engines}
        for key, variant in cluster.variants.items():
            before = None if variant.status is None else variant.status.active_engines
            count = active[key] if key in reported else None
            if count == before or (count is None and self._planned(key)):
                continue
            status = (variant.status or WorkloadVariantStatus()).model_copy(update={"active_engines": count})
            try:
                await writer.status(key, variant.metadata, variant.status, status, ())
            except ApiError as error:
                done = _again(key, error)
        by_policy: dict[Key, list[Decided]] = defaultdict(list)
        for each in decided:
            by_policy[each.group.policy].append(each)
        for key, policy in cluster.policies.items():
            conditions = () if policy.status is None else policy.status.conditions
            spoken = any(condition.type == ConditionType.ACTIVATED for condition in conditions)
            if activation_of(policy) is None and not spoken:
                continue
            findings = [] if activation_of(policy) is None else [finding(by_policy[key], holds=accepted(policy))]
            settled = settle(conditions, findings, policy.metadata.generation, now, own=OWN_CONDITIONS)
            told = transitions(conditions, [each for each in settled if each.type in OWN_CONDITIONS])
            after = (policy.status or CarbonPolicyStatus()).model_copy(update={"conditions": settled})
            try:
                await writer.status(key, policy.metadata, policy.status, after, told)
            except ApiError as error:
                done = _again(key, error)
        return done

    def _planned(self, variant: Key) -> bool:
        """Whether engines of a variant without pods are followed all the same."""
        governing = self._context.cluster.governing(variant)
        return governing is not None and activation_of(governing[1]) is not None


def finding(decided: Sequence[Decided], *, holds: bool) -> Finding:
    """The condition `Activated` of a policy; `holds`: on some pool."""
    kind = ConditionType.ACTIVATED
    plans: list[ActivationPlan] = [each.plan for each in decided]
    engines = [todo for each in plans for todo in each.engines]
    resting = sum(todo.depth is not None for todo in engines)
    told = f"{resting} of {len(engines)} engines rest"
    if not holds:
        return Finding(kind, ConditionStatus.FALSE, "NotAccepted", "it holds on no pool")
    if not engines:
        return Finding(kind, ConditionStatus.UNKNOWN, "NoEngines", "no pod of a variant of its pools serves")
    group: Group = decided[0].group
    if not group.granted.allowed:
        return Finding(kind, ConditionStatus.FALSE, group.granted.reason.value, group.granted.message)
    if all(each.group.demand is None for each in decided):
        return Finding(
            kind, ConditionStatus.UNKNOWN, "DemandUnknown", f"what is asked is not known, so nothing moves; {told}"
        )
    if not group.acts:
        message = f"spec.enforcement is Advise: engines are left alone; by plan {told}"
        return Finding(kind, ConditionStatus.FALSE, "AdviseOnly", message)
    return Finding(kind, ConditionStatus.TRUE, "Activated", told)


def _again(key: Key, error: ApiError) -> bool:
    if not isinstance(error, ConflictError):
        _log.warning("%s: what its engines do was not reported: %s", key, error)
    return False
