"""From what is known of the cluster to what engines are rested by."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, sqrt

from heliotrope.api.grants import Grant, Right, grant
from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1.carbonpolicy import CONTROLLER_NAME
from heliotrope.api.v1alpha1.common import RESTING_LABEL, ConditionStatus, Enforcement, Role
from heliotrope.api.v1alpha1.controls import Activation, ActivationDepth
from heliotrope.engine.model import EngineModel
from heliotrope.scale.activation import ActivationPlan, ActivationRules, EngineFacts
from heliotrope.scale.depths import RestTable, WakeTimes, rest_table
from heliotrope.scale.facts import DemandForecast, Mix
from heliotrope.scale.pace import pace
from heliotrope.units import grams_co2e
from heliotrope_operator.capacities import Capacities
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType
from heliotrope_operator.kinds.namespaces import namespace_key
from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.kinds.policies import policy_key
from heliotrope_operator.kinds.pools import Pool
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.outlook import outlook
from heliotrope_operator.places import region_of
from heliotrope_operator.resources import Key
from heliotrope_operator.tables import EngineSeen, PoolDemand, Tables

INTERVAL_S = 5.0
SHORTEST_INTERVAL_S = 1.0
DWELL_S = 60.0
STEP_S = 60.0
STEPS = 60
"""What was asked lately is expected to go on for an hour."""
LOOK_BACK_S = 900.0
"""The most that was asked within this time is the upper quantile of what will be."""
SPREAD = 3.0
"""Standard deviations of a Poisson count that come on top of it."""
COUNTED_S = 30.0
NEWS_S = 30.0
"""So long an engine that was woken counts as awake whatever pickers say."""
STALE_S = 30.0
"""Demand that was measured longer ago is unknown."""
KEPT_S = 3_600.0
"""The mean request of a variant is remembered for so long, also while nobody serves."""
WAKE_TIMES = WakeTimes()


@dataclass(frozen=True, slots=True)
class Engine:
    """A pod whose engine may rest."""

    pod: Key
    uid: str
    variant: Key
    address: str | None
    """`host:port` of the engine; None where there is not exactly one."""
    marked: str | None
    """The depth in its label; None without one."""
    asleep: bool | None
    node: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """Engines that carry one demand between them: of one pool, model and role."""

    policy: Key
    resource: CarbonPolicy
    pool: Key
    model: str
    role: Role
    engines: tuple[Engine, ...]
    facts: tuple[EngineFacts, ...]
    """One for each of them, by the pod's name."""
    demand: DemandForecast | None
    step_seconds: float
    """Of the demand."""
    held: float
    rules: ActivationRules
    granted: Grant

    @property
    def acts(self) -> bool:
        """Whether engines may be touched."""
        return (
            self.resource.spec.enforcement is Enforcement.ENFORCE and self.granted.allowed and accepted(self.resource)
        )


@dataclass(slots=True)
class _Remembered:
    idle_since: float | None = None
    surplus_since: float | None = None


@dataclass(slots=True)
class History:
    """What the next pass has to know of those before; after a start it fills again."""

    engines: dict[str, _Remembered] = field(default_factory=dict)
    """By the pod's uid."""
    woken: dict[Key, float] = field(default_factory=dict)
    """When engines were woken and seen awake, by pod."""
    rates: dict[tuple[Key, str], deque[tuple[float, float]]] = field(default_factory=dict)
    """(Unix time, requests per second) by pool and model."""
    mixes: dict[Key, tuple[float, float, float]] = field(default_factory=dict)
    """(Unix time, prompt tokens, output tokens) by variant."""

    def seen(self, uid: str, *, busy: bool | None, now_unix_s: float) -> _Remembered:
        """Take in whether an engine is busy."""
        known = self.engines.setdefault(uid, _Remembered())
        if busy is False:
            known.idle_since = now_unix_s if known.idle_since is None else known.idle_since
        else:
            known.idle_since = None
        return known

    def planned(self, group: Group, decided: ActivationPlan, now_unix_s: float) -> None:
        """Take in which engines were found surplus."""
        for engine, todo in zip(group.engines, decided.engines, strict=True):
            known = self.engines.setdefault(engine.uid, _Remembered())
            if not todo.surplus or decided.required_requests_per_second is None:
                known.surplus_since = None
            elif known.surplus_since is None:
                known.surplus_since = now_unix_s

    def keep(self, uids: Iterable[str], rates: Iterable[tuple[Key, str]], now_unix_s: float) -> None:
        """Forget everything else."""
        kept, kept_rates = set(uids), set(rates)
        self.woken = {pod: when for pod, when in self.woken.items() if when > now_unix_s - NEWS_S}
        self.engines = {uid: each for uid, each in self.engines.items() if uid in kept}
        self.rates = {key: each for key, each in self.rates.items() if key in kept_rates}

    def forecast(self, key: tuple[Key, str], rate: float, now_unix_s: float, look_back_s: float) -> DemandForecast:
        """What is asked goes on; the most of the time that is looked back at, and chance on top, may come again."""
        rates = self.rates.setdefault(key, deque())
        rates.append((now_unix_s, rate))
        while rates and rates[0][0] < now_unix_s - look_back_s:
            rates.popleft()
        most = max(value for _, value in rates)
        upper = most + SPREAD * sqrt(most / COUNTED_S)
        return DemandForecast((rate,) * STEPS, (upper,) * STEPS, None)


class Gatherer:
    """Makes groups of what is known now."""

    def __init__(
        self,
        cluster: Cluster,
        tables: Tables,
        profiles: Mapping[str, EngineModel],
        *,
        all_namespaces: bool,
        unix_clock: Callable[[], float],
    ) -> None:
        """`profiles` are the shipped ones by name; only where all namespaces are watched can a node be known whole."""
        self._cluster = cluster
        self._tables = tables
        self._capacities = Capacities(profiles)
        self._all_namespaces = all_namespaces
        self._unix_clock = unix_clock
        self.history = History()

    def groups(self) -> list[Group]:
        """Of all policies with `spec.autoscaling.activation`, in the order of their pools."""
        found = []
        for pool_key, pool in sorted(self._cluster.pools.items()):
            policy = self._cluster.winner(pool_key)
            activation = activation_of(policy)
            if policy is not None and activation is not None:
                found += self._groups_of(pool_key, pool, policy, activation)
        self.history.keep(
            (engine.uid for group in found for engine in group.engines),
            {(each.pool, each.model) for each in found},
            self._unix_clock(),
        )
        return found

    def _groups_of(self, pool_key: Key, pool: Pool, policy: CarbonPolicy, activation: Activation) -> list[Group]:
        now = self._unix_clock()
        variants: dict[tuple[str, Role], list[tuple[Key, WorkloadVariant]]] = defaultdict(list)
        for key in sorted(self._cluster.variants_of(pool_key)):
            variant = self._cluster.variants.get(key)
            governing = self._cluster.governing(key)
            if variant is not None and governing is not None and governing[0] == pool_key:
                variants[(variant.spec.model, variant.spec.role)].append((key, variant))
        known = self._tables.demand.get(pool_key)
        if known is not None and now - known.measured_unix_s > STALE_S:
            known = None
        models = {model for model, _ in variants}
        faster = 1.0 if policy.spec.autoscaling is None else pace(policy.spec.autoscaling.interval.total_seconds())
        demands = {model: self._demand(pool_key, model, models, known, now, faster) for model in models}
        namespace = self._cluster.namespaces.get(namespace_key(pool_key.namespace))
        granted = grant(Right.SCALING, pool_key.namespace, None if namespace is None else dict(namespace.labels))
        rules = ActivationRules(
            depths=frozenset(activation.depths),
            warm_reserve_share=activation.warm_reserve_percent / 100.0,
            least_awake=activation.least_awake,
            interval_seconds=max(INTERVAL_S * faster, SHORTEST_INTERVAL_S),
            dwell_seconds=DWELL_S * faster,
        )
        groups = []
        for (model, role), members in sorted(variants.items()):
            engines, facts = [], []
            for key, variant in members:
                for engine, fact in self._engines(key, variant, pool, policy, known, now):
                    engines.append(engine)
                    facts.append(fact)
            demand, step_seconds, held = demands[model]
            groups.append(
                Group(
                    policy_key(policy),
                    policy,
                    pool_key,
                    model,
                    role,
                    tuple(engines),
                    tuple(facts),
                    demand,
                    step_seconds,
                    held,
                    rules,
                    granted,
                )
            )
        return groups

    def _demand(
        self, pool: Key, model: str, models: set[str], known: PoolDemand | None, now: float, faster: float
    ) -> tuple[DemandForecast | None, float, float]:
        """Of one model, with the seconds of its steps and what is held.

        Names that no variant serves, such as adapters, may be any model's. What is planned by counts; without a plan,
        what was asked lately.
        """
        if known is None:
            return None, STEP_S, 0.0

        def of(by_name: Mapping[str, float]) -> float:
            return sum(value for name, value in by_name.items() if name == model or name not in models)

        held = of(known.held)
        if known.requests_per_second is None:
            return None, STEP_S, held
        lately = self.history.forecast((pool, model), of(known.requests_per_second), now, LOOK_BACK_S * faster)
        planned = self._tables.expected.get((pool, model))
        if planned is not None and now - planned.made_unix_s <= STALE_S and len(planned.demand.upper) > 1:
            return planned.demand, planned.step_seconds, held
        return lately, STEP_S, held

    def _engines(
        self,
        key: Key,
        variant: WorkloadVariant,
        pool: Pool,
        policy: CarbonPolicy,
        known: PoolDemand | None,
        now: float,
    ) -> list[tuple[Engine, EngineFacts]]:
        table, carried = self._kind(key, variant, policy, now)
        grams = self._grams_per_joule(key, variant, now)
        resting = self._tables.resting.get(key, frozenset())
        found = []
        for pod_key, pod in self._cluster.pods_of(key):
            labels = dict(pod.labels)
            if not pod.serves or not pod.leads:
                continue
            seen = EngineSeen() if known is None else known.engines.get(pod_key.name, EngineSeen())
            marked = labels.get(RESTING_LABEL)
            if seen.asleep and marked is None:
                if now - self.history.woken.get(pod_key, -inf) > NEWS_S:
                    continue  # somebody else's doing: it neither carries anything nor is ours to wake
                seen = replace(seen, asleep=False)  # pickers have not looked since it was woken
            engine = Engine(
                pod=pod_key,
                uid=pod.uid,
                variant=key,
                address=_address(pod, pool),
                marked=marked,
                asleep=seen.asleep,
                node=pod.node,
            )
            found.append((engine, self._facts(engine, pod, seen, table, carried, grams, pod_key.name in resting, now)))
        return found

    def _facts(
        self,
        engine: Engine,
        pod: Pod,
        seen: EngineSeen,
        table: RestTable | None,
        carried: float | None,
        grams: float | None,
        at_idle_clock: bool,
        now: float,
    ) -> EngineFacts:
        busy = None if seen.running is None or seen.waiting is None else seen.running + seen.waiting > 0.0
        known = self.history.seen(engine.uid, busy=busy, now_unix_s=now)
        depth = None
        if seen.asleep or (seen.asleep is None and engine.marked == ActivationDepth.ENGINE_SLEEP):
            depth = ActivationDepth.ENGINE_SLEEP  # while nobody has looked, as the mark says
        elif at_idle_clock:
            depth = ActivationDepth.IDLE_CLOCK
        # Which pods a smaller number of replicas leaves is not ours to choose: exiting is the allocation's.
        depths = {ActivationDepth.IDLE_CLOCK, ActivationDepth.NODE_OFF}
        if engine.address is not None and pod.ip is not None:
            depths.add(ActivationDepth.ENGINE_SLEEP)
        return EngineFacts(
            name=engine.pod.name,
            table=table,
            requests_per_second=carried,
            busy=busy,
            depth=depth,
            idle_since_unix_s=known.idle_since,
            node=pod.node,
            node_ours=pod.node is not None and self._ours(pod.node),
            grams_per_joule=grams,
            drains=engine.address is not None,
            surplus_since_unix_s=known.surplus_since,
            depths=frozenset(depths),
        )

    def _kind(
        self, key: Key, variant: WorkloadVariant, policy: CarbonPolicy, now: float
    ) -> tuple[RestTable | None, float | None]:
        """What its depths draw, and what one engine carries; None where it is unknown."""
        model = self._capacities.engine(variant)
        if model is None:
            return None, None
        load = self._tables.loads.get(key)
        if load is not None and load.prompt_tokens is not None and load.output_tokens is not None:
            self.history.mixes[key] = now, load.prompt_tokens, load.output_tokens
        mix = self.history.mixes.get(key)
        if mix is None or now - mix[0] > KEPT_S:
            return rest_table(model, WAKE_TIMES), None
        carried = self._capacities.of(variant, policy, Mix(*mix[1:]))
        return rest_table(model, WAKE_TIMES), None if carried is None else carried.requests_per_second

    def _grams_per_joule(self, key: Key, variant: WorkloadVariant, now: float) -> float | None:
        name = region_of(self._cluster, variant, (pod for _, pod in self._cluster.pods_of(key)))
        profile = None if name is None else self._cluster.regions.get(region_key(name))
        ahead = None if profile is None else outlook(profile)
        if profile is None or ahead is None:
            return None
        expected = ahead.mean_over(now, now + STEP_S * STEPS) or ahead.mean_over(now, now)
        return None if expected is None else grams_co2e(1.0, profile.spec.pue, expected.expected)

    def _ours(self, node: str) -> bool:
        """Whether every pod that draining a node would evict is a variant's."""
        if not self._all_namespaces:
            return False
        for key in self._cluster.pods.by("node", node):
            pod = self._cluster.pods.get(key)
            if pod is None or pod.phase in ("Succeeded", "Failed") or stays_with_node(pod):
                continue
            if not self._cluster.variants_selecting(key.namespace, dict(pod.labels)):
                return False
        return True


def stays_with_node(pod: Pod) -> bool:
    """Whether draining leaves a pod where it is: DaemonSets' and the node's own."""
    return pod.owner is not None and pod.owner[0] in ("DaemonSet", "Node")


def activation_of(policy: CarbonPolicy | None) -> Activation | None:
    """The policy's `spec.autoscaling.activation`."""
    autoscaling = None if policy is None else policy.spec.autoscaling
    return None if autoscaling is None else autoscaling.activation


def accepted(policy: CarbonPolicy) -> bool:
    """Whether the policy holds on a pool, as its status says; one that was not looked at yet does not."""
    own = [] if policy.status is None else [e for e in policy.status.ancestors if e.controller_name == CONTROLLER_NAME]
    return any(
        condition.status is ConditionStatus.TRUE
        for entry in own
        for condition in entry.conditions
        if condition.type == ConditionType.ACCEPTED
    )


def _address(pod: Pod, pool: Pool) -> str | None:
    """Of the pod's one engine; several ports are several engines, which sleep together or not at all."""
    if pod.ip is None or len(pool.ports) != 1:
        return None
    return f"[{pod.ip}]:{pool.ports[0]}" if ":" in pod.ip else f"{pod.ip}:{pool.ports[0]}"
