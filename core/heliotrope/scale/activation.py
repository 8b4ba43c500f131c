"""Which engines rest, and how deep: enough stay awake for what is expected, the others rest as deep as time allows.

The demand ahead says when each engine is needed. Engines are put in the order in which they are to be awake; the one at
place k is needed from the moment at which the upper quantile of the demand, with the warm reserve on top, exceeds what
those before it carry. That moment is its idle time: it rests at the depth that saves most over it, and is woken so
early that it serves when the moment comes. Demand that is unknown moves nothing; requests that wait wake.

Pure: from frozen facts to a plan.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.scale.depths import ORDER, RestTable
from heliotrope.scale.facts import DemandForecast

AWAKE_BONUS = 0.8
"""What keeping an engine awake that is awake counts, so that engines of nearly equal cost do not take turns."""
MARGIN = 1.5
"""Times the break-even time that an engine must be expected to rest."""
WORTH_SHARE = 0.1
"""Of what it saves: what another depth must save more for a resting engine to go there."""


class Why(StrEnum):
    """Why an engine is awake, or rests; reasons for conditions, events and metrics."""

    NEEDED = "Needed"
    """For the demand expected until it could be woken again."""
    LEAST_AWAKE = "LeastAwake"
    BUSY = "Busy"
    """It has requests."""
    HELD_REQUESTS = "HeldRequests"
    """Requests wait because no engine is awake."""
    UNKNOWN = "Unknown"
    """What it does or carries, or what is asked for, is not known: it is left as it is."""
    DWELL = "Dwell"
    """Idle, and not for long enough."""
    NOTHING_SAVED = "NothingSaved"
    """No depth pays for the time that it is expected to rest."""
    SURPLUS = "Surplus"
    """It rests."""


@dataclass(frozen=True, slots=True)
class ActivationRules:
    """What a policy says on resting, as numbers."""

    depths: frozenset[ActivationDepth] = frozenset()
    """Depths that may be used."""
    warm_reserve_share: float = 0.2
    """Capacity kept awake above the expected load, as a share of it."""
    least_awake: int = 1
    interval_seconds: float = 10.0
    """Time between plans: what is needed within it cannot wait for the next."""
    dwell_seconds: float = 60.0
    """How long an engine must have had nothing to do, or been surplus, before it rests."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine now. None is unknown, never zero."""

    name: str
    """Unique."""
    table: RestTable | None
    """None: nothing is known of its depths, so it stays as it is."""
    requests_per_second: float | None
    """What it carries within the SLO."""
    busy: bool | None
    """Whether it has requests. Unknown counts as busy."""
    depth: ActivationDepth | None = None
    """Where it rests now; None: awake."""
    idle_since_unix_s: float | None = None
    """Since when it has had nothing to do; None: unknown, or it has."""
    drains: bool = False
    """Whether new requests can be kept from it until it has none; else it rests only when it happens to be idle."""
    surplus_since_unix_s: float | None = None
    """Since when plans have found it surplus (`EnginePlan.surplus`); None: the last one did not, or there was none."""
    node: str | None = None
    node_ours: bool = False
    """Whether nothing else than engines of these facts keeps its node up."""
    grams_per_joule: float | None = None
    """Expected of its region's grid, PUE included, from a Fresh signal."""
    cache_watts: float = 0.0
    """Mean power that its KV cache spares by hits: what computing them anew would draw."""
    depths: frozenset[ActivationDepth] | None = None
    """Depths that this engine can take, if not all that the rules allow."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What one engine is to do."""

    name: str
    depth: ActivationDepth | None
    """None: be awake."""
    why: Why
    idle_seconds: float
    """Until it is expected to be needed; inf: not within the horizon."""
    saved_watts: float = 0.0

    @property
    def surplus(self) -> bool:
        """Whether the demand does not need it now."""
        return self.idle_seconds > 0.0


@dataclass(frozen=True, slots=True)
class ActivationPlan:
    """What all engines of a group are to do, in the order of the facts."""

    engines: tuple[EnginePlan, ...]
    required_requests_per_second: float | None
    """Upper quantile of the demand until the next plan, reserve included; None: unknown."""
    nodes_off: frozenset[str] = frozenset()
    by_name: Mapping[str, EnginePlan] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {each.name: each for each in self.engines})

    @property
    def awake(self) -> int:
        """Engines that are to be awake."""
        return sum(each.depth is None for each in self.engines)

    @property
    def saved_watts(self) -> float:
        """What all that rest save together."""
        return sum(each.saved_watts for each in self.engines)


def plan(
    engines: Sequence[EngineFacts],
    demand: DemandForecast | None,
    rules: ActivationRules,
    *,
    step_seconds: float,
    now_unix_s: float,
    held_requests: float = 0.0,
) -> ActivationPlan:
    """Decide on the engines of one group, which carry one demand between them.

    Args:
        engines: all of them, those that rest included.
        demand: that they carry; None: unknown.
        rules: the policy's.
        step_seconds: length of the forecast's steps.
        now_unix_s: the time.
        held_requests: that wait because no engine is awake.
    """
    if demand is None:
        return _hold(engines, held_requests)
    need = _Need(demand, rules, step_seconds)
    order = _order(engines, rules)
    idle_s = _idle_times(order, need, rules, held_requests)
    times = {name: _Idle(seconds, min(seconds, need.reach_s)) for name, seconds in idle_s.items()}
    decided = {each.name: _decide(each, times[each.name], rules, now_unix_s) for each in engines}
    alone = dict(decided)
    nodes_off = _nodes_off(engines, decided, times, rules, now_unix_s)
    kept = _keep_enough(order, decided, need, rules)
    for node in nodes_off & {each.node for each in engines if each.name in kept}:
        nodes_off.discard(node)
        decided.update({e.name: alone[e.name] for e in engines if e.node == node and e.name not in kept})
    return ActivationPlan(
        tuple(_explained(decided[e.name], order, held_requests, rules) for e in engines),
        need.over(0.0, rules.interval_seconds),
        frozenset(nodes_off),
    )


@dataclass(frozen=True, slots=True)
class _Idle:
    """How long an engine is not needed, seconds."""

    until_s: float
    """When it is; inf: not within the forecast."""
    sure_s: float
    """How long that is known for: the forecast's reach at most."""


class _Need:
    """Requests per second that must be carried, by time from now."""

    def __init__(self, demand: DemandForecast, rules: ActivationRules, step_seconds: float) -> None:
        self._upper = [value * (1.0 + rules.warm_reserve_share) for value in demand.upper]
        self._step_s = step_seconds
        self.reach_s = step_seconds * len(self._upper)

    def over(self, start_s: float, end_s: float) -> float:
        """Most of it between two times; what lies beyond the forecast is its last step."""
        if not self._upper:
            return 0.0
        first = min(int(start_s // self._step_s), len(self._upper) - 1)
        last = min(int(end_s // self._step_s), len(self._upper) - 1)
        return max(self._upper[first : last + 1])

    def first_above(self, carried: float) -> float:
        """Seconds until more is needed than this; inf: not within the forecast."""
        return next((i * self._step_s for i, value in enumerate(self._upper) if value > carried * (1.0 + 1e-9)), inf)


def _hold(engines: Sequence[EngineFacts], held_requests: float) -> ActivationPlan:
    """Nothing moves, but that requests which wait wake the engine that is quickest to wake."""
    woken = None
    if held_requests > 0.0 and not any(each.depth is None for each in engines):
        woken = min(
            engines, key=lambda e: (inf if e.table is None else e.table.wake_seconds(e.depth), e.name), default=None
        )
    return ActivationPlan(
        tuple(
            EnginePlan(e.name, None, Why.HELD_REQUESTS, 0.0)
            if e is woken
            else EnginePlan(e.name, e.depth, Why.UNKNOWN, inf, 0.0 if e.table is None else e.table.saved_watts(e.depth))
            for e in engines
        ),
        None,
    )


def _pinned(engine: EngineFacts) -> bool:
    """Whether it has to be awake: what is at work, or may be, is never put to rest."""
    if engine.depth not in (None, ActivationDepth.IDLE_CLOCK) or engine.busy is False:
        return False
    return engine.busy is None or not engine.drains


def _order(engines: Sequence[EngineFacts], rules: ActivationRules) -> list[EngineFacts]:
    """In which order engines are to be awake: what works anyway, then the cheapest to keep awake for what it carries.

    Where nodes may go off, a node is filled before the next one is opened, and one that is on anyway costs no host.
    Carbon counts where it is known of all, else energy.
    """
    carbon = all(each.grams_per_joule is not None for each in engines)
    whole_nodes = ActivationDepth.NODE_OFF in rules.depths
    groups: dict[str, list[EngineFacts]] = defaultdict(list)
    for each in engines:
        groups[_group(each, whole_nodes)].append(each)
    cost: dict[str, float] = {}
    group_cost: dict[str, float] = {}
    for name, there in groups.items():
        host = whole_nodes and not any(_pinned(each) for each in there)
        for each in there:
            cost[each.name] = _standing_cost(each, carbon, with_host=host)
        carried = sum(each.requests_per_second or 0.0 for each in there)
        group_cost[name] = sum(cost[each.name] for each in there) / carried if carried > 0.0 else inf

    def place(engine: EngineFacts) -> tuple[bool, float, str, float, str]:
        group = _group(engine, whole_nodes)
        return not _pinned(engine), group_cost[group], group, cost[engine.name], engine.name

    return sorted(engines, key=place)


def _group(engine: EngineFacts, whole_nodes: bool) -> str:
    return f"node {engine.node}" if whole_nodes and engine.node is not None else f"engine {engine.name}"


def _standing_cost(engine: EngineFacts, carbon: bool, *, with_host: bool) -> float:
    """Watts, or grams per second, of keeping it awake and idle, less what its cache spares."""
    table = engine.table
    if table is None:
        return inf
    watts = table.awake_watts + (table.host_watts if with_host else 0.0) - engine.cache_watts
    cost = watts * (engine.grams_per_joule or 0.0) if carbon else watts
    return cost * (AWAKE_BONUS if engine.depth is None and cost > 0.0 else 1.0)


def _idle_times(
    order: Sequence[EngineFacts], need: _Need, rules: ActivationRules, held_requests: float
) -> dict[str, float]:
    """Seconds until each engine is needed: 0 now, inf not within the forecast. Unknown capacity carries nothing."""
    carried, found = 0.0, {}
    least = max(rules.least_awake, 1 if held_requests > 0.0 else 0)
    for awake, engine in enumerate(order):
        if awake < least or _pinned(engine):
            found[engine.name] = 0.0
        else:  # of what carries nobody knows how much, nobody knows when it is needed: it stays as it is
            found[engine.name] = inf if engine.requests_per_second is None else need.first_above(carried)
        carried += engine.requests_per_second or 0.0
    return found


def _allowed(engine: EngineFacts, rules: ActivationRules) -> frozenset[ActivationDepth]:
    return rules.depths if engine.depths is None else rules.depths & engine.depths


def _decide(engine: EngineFacts, idle: _Idle, rules: ActivationRules, now_unix_s: float) -> EnginePlan:
    """One engine for itself: no depth that takes its whole node."""
    table = engine.table
    if _pinned(engine):
        return EnginePlan(engine.name, None, Why.BUSY if engine.busy else Why.UNKNOWN, 0.0)
    if table is None or (engine.requests_per_second is None and idle.until_s > 0.0):
        return EnginePlan(engine.name, engine.depth, Why.UNKNOWN, idle.until_s)
    allowed = _allowed(engine, rules) - {ActivationDepth.NODE_OFF}
    if engine.depth is ActivationDepth.NODE_OFF and ActivationDepth.NODE_OFF in _allowed(engine, rules):
        allowed |= {ActivationDepth.NODE_OFF}
    if not allowed and engine.depth is None:
        return EnginePlan(engine.name, None, Why.NOTHING_SAVED, idle.until_s)
    depth = _deepest(engine, table, idle, allowed, rules)
    if depth is None:
        why = (
            Why.NEEDED
            if idle.until_s <= table.wake_seconds(engine.depth) + rules.interval_seconds
            else Why.NOTHING_SAVED
        )
        return EnginePlan(engine.name, None, why, idle.until_s)
    if engine.depth is None and not _dwelt(engine, rules, now_unix_s):
        return EnginePlan(engine.name, None, Why.DWELL, idle.until_s)
    return EnginePlan(engine.name, depth, Why.SURPLUS, idle.until_s, table.saved_watts(depth))


def _dwelt(engine: EngineFacts, rules: ActivationRules, now_unix_s: float) -> bool:
    since = [engine.idle_since_unix_s, engine.surplus_since_unix_s if engine.drains else None]
    return any(each is not None and now_unix_s - each >= rules.dwell_seconds for each in since)


def _deepest(
    engine: EngineFacts,
    table: RestTable,
    idle: _Idle,
    allowed: frozenset[ActivationDepth],
    rules: ActivationRules,
) -> ActivationDepth | None:
    """The depth that saves most over the idle time; one that it has stays while it may and another saves little more.

    It must be possible to wait for the next plan and then wake in time.
    """
    sure_s = idle.sure_s
    saved: dict[ActivationDepth, float] = {}
    for depth in ORDER:
        if depth not in allowed or depth not in table.depths:
            continue
        if table.wake_seconds(depth) + rules.interval_seconds >= idle.until_s:
            continue
        if depth is engine.depth:
            # It is there already, and must be woken some day whatever is decided now: what it draws till then counts.
            until_s = sure_s if idle.until_s == inf else idle.until_s - table.wake_seconds(depth)
            saved[depth] = table.saved_watts(depth) * until_s
        elif sure_s >= MARGIN * table.break_even_seconds(depth) and _way_down(engine, depth):
            saved[depth] = table.saved_joules(depth, sure_s) - engine.cache_watts * _lost(table, depth) * sure_s
    best = max(saved, key=lambda depth: (saved[depth], -ORDER.index(depth)), default=None)
    if best is None or saved[best] <= 0.0:
        return None
    present = engine.depth
    if present is not None and present in saved and saved[best] <= (1.0 + WORTH_SHARE) * saved[present]:
        return present
    return best


def _way_down(engine: EngineFacts, depth: ActivationDepth) -> bool:
    """An engine goes deeper from where it rests, never back to a lighter rest: it would have to wake for it."""
    return engine.depth is None or ORDER.index(depth) > ORDER.index(engine.depth)


def _lost(table: RestTable, depth: ActivationDepth) -> float:
    return 1.0 if table.depths[depth].loses_cache else 0.0


def _nodes_off(
    engines: Sequence[EngineFacts],
    decided: dict[str, EnginePlan],
    times: Mapping[str, _Idle],
    rules: ActivationRules,
    now_unix_s: float,
) -> set[str]:
    """Nodes whose engines all rest and save more with the node off; changes their plans to `NodeOff`."""
    off = set()
    by_node: dict[str, list[EngineFacts]] = defaultdict(list)
    for each in engines:
        if each.node is not None:
            by_node[each.node].append(each)
    for node, there in by_node.items():
        if _goes_off(there, decided, times, rules, now_unix_s):
            off.add(node)
            for e in there:
                saved = 0.0 if e.table is None else e.table.saved_watts(_OFF)
                decided[e.name] = EnginePlan(e.name, _OFF, Why.SURPLUS, times[e.name].until_s, saved)
            continue
        for e in there:
            if decided[e.name].depth is _OFF:
                decided[e.name] = _on_again(e, times[e.name], rules)
    return off


_OFF = ActivationDepth.NODE_OFF


def _goes_off(
    there: Sequence[EngineFacts],
    decided: Mapping[str, EnginePlan],
    times: Mapping[str, _Idle],
    rules: ActivationRules,
    now_unix_s: float,
) -> bool:
    """Whether a node with these engines is better off; one that is stays so while none of them is needed."""
    if not all(e.node_ours and _OFF in _allowed(e, rules) and not _stays(decided[e.name]) for e in there):
        return False
    until_s = min(times[e.name].until_s for e in there)
    sure_s = min(times[e.name].sure_s for e in there)
    whole = apart = 0.0
    for e in there:
        table = e.table
        if table is None or table.wake_seconds(_OFF) + rules.interval_seconds >= until_s:
            return False
        if e.depth is not _OFF:
            dwelt = e.depth is not None or _dwelt(e, rules, now_unix_s)
            if not dwelt or sure_s < MARGIN * table.break_even_seconds(_OFF):
                return False
        whole += table.saved_joules(_OFF, sure_s)
        apart += table.saved_joules(decided[e.name].depth, sure_s)
    return all(e.depth is _OFF for e in there) or whole > (1.0 + WORTH_SHARE) * apart


def _on_again(engine: EngineFacts, idle: _Idle, rules: ActivationRules) -> EnginePlan:
    """Its node comes back for another engine; without a process it rests on where that is allowed."""
    rest, table = ActivationDepth.PROCESS_EXIT, engine.table
    if table is not None and rest in _allowed(engine, rules) and rest in table.depths:
        return EnginePlan(engine.name, rest, Why.SURPLUS, idle.until_s, table.saved_watts(rest))
    return EnginePlan(engine.name, None, Why.NEEDED, idle.until_s)


def _keep_enough(
    order: Sequence[EngineFacts], decided: dict[str, EnginePlan], need: _Need, rules: ActivationRules
) -> set[str]:
    """Let no engine rest whose place another takes before that one serves; returns those that stay for it."""
    waking = [e for e in order if e.depth is not None and decided[e.name].depth is None]
    if not waking:
        return set()
    longest_s = max(0.0 if e.table is None else e.table.wake_seconds(e.depth) for e in waking)
    need_now = need.over(0.0, longest_s + rules.interval_seconds)
    serving = sum(e.requests_per_second or 0.0 for e in order if e.depth is None and decided[e.name].depth is None)
    awake = sum(e.depth is None and decided[e.name].depth is None for e in order)
    kept = set()
    for e in order:
        if serving >= need_now and awake >= rules.least_awake:
            break
        if e.depth is None and decided[e.name].depth is not None:
            decided[e.name] = EnginePlan(e.name, None, Why.NEEDED, decided[e.name].idle_seconds)
            serving += e.requests_per_second or 0.0
            awake += 1
            kept.add(e.name)
    return kept


def _stays(decided: EnginePlan) -> bool:
    """Whether it is awake for a reason that holds with its node off as well."""
    return decided.depth is None and decided.why is not Why.NOTHING_SAVED


def _explained(
    decided: EnginePlan, order: Sequence[EngineFacts], held_requests: float, rules: ActivationRules
) -> EnginePlan:
    """Says of the first of the order, which are awake whatever the demand, why."""
    if decided.why is not Why.NEEDED:
        return decided
    place = next(i for i, each in enumerate(order) if each.name == decided.name)
    if place < rules.least_awake:
        return EnginePlan(decided.name, None, Why.LEAST_AWAKE, decided.idle_seconds)
    if place == 0 and held_requests > 0.0:
        return EnginePlan(decided.name, None, Why.HELD_REQUESTS, decided.idle_seconds)
    return decided
