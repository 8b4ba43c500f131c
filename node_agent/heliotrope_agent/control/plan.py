"""What should be done with each GPU now: a pure function of what is known.

All GPUs of a pod are a group: they are set alike or not at all, because a tensor-parallel engine runs at the pace of
its slowest GPU. Whatever is owned and no longer wished for is put back, at once. Who does not know holds still: nothing
new is set while it is unknown whose a GPU is, and what is set stays for a bounded time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto

from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.api.v1alpha1.nodepower import GpuOwner, GpuSettings, PowerIntent
from heliotrope_agent.control.memory import GpuMemory
from heliotrope_agent.control.observe import not_effective, throttled
from heliotrope_agent.control.pace import paced
from heliotrope_agent.control.reasons import STANDINGS, Cause, Reason
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.control.wanted import Named, feasible, named_pods, requested
from heliotrope_agent.driver.interface import Device, Reading
from heliotrope_agent.kube.wishes import Wishes
from heliotrope_agent.pods.claims import Holder, PodName, Standing
from heliotrope_agent.state.records import Knob, Levels, Ownership


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a plan is made from; times on the agent's clock."""

    now_s: float
    devices: tuple[Device, ...]
    readings: Mapping[str, Reading]
    """By UUID; absent: it could not be read."""
    holders: Mapping[str, Holder] | None
    """By UUID; None: the kubelet does not answer."""
    wishes: Wishes
    owned: Mapping[str, Ownership]
    """By UUID: what is in the file of originals."""
    memory: Mapping[str, GpuMemory]
    """By UUID; absent: nothing is remembered."""
    blocked: Reason | None = None
    """Why nothing new may be set on this node, whatever is wished."""

    def remembered(self, uuid: str) -> GpuMemory:
        """The memory of a GPU."""
        return self.memory.get(uuid, GpuMemory())


class Action(StrEnum):
    """What to do with a GPU."""

    SET = "set"
    RELEASE = "release"
    HOLD = "hold"
    """It is as it should be, or nobody knows better: what is set stays."""
    NOTHING = "nothing"
    """It is not ours and stays so."""


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """One GPU."""

    uuid: str
    action: Action
    pod: PodName | None = None
    """Its pod, as far as known; a group is all GPUs of one."""
    pod_uid: str = ""
    owner: GpuOwner | None = None
    requested: GpuSettings | None = None
    levels: Levels | None = None
    """To be set (SET), or that would be set were the node not blocked; a knob without a level is put back."""
    lowers: bool = False
    """Whether that slows it down or caps it."""
    left: frozenset[Knob] = frozenset()
    """Not to be put back, for somebody else has set them since (RELEASE)."""
    cause: Cause | None = None
    """Why it is put back (RELEASE)."""
    reasons: tuple[Reason, ...] = ()
    """Why it is not, or not exactly, as requested; sorted."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every GPU of the node and every owned one that has vanished, by UUID."""

    gpus: tuple[GpuPlan, ...] = ()

    def doing(self, action: Action) -> tuple[GpuPlan, ...]:
        """Those with this action."""
        return tuple(each for each in self.gpus if each.action is action)

    def groups(self, action: Action) -> tuple[tuple[GpuPlan, ...], ...]:
        """Those with this action, by pod."""
        found: dict[PodName | None, list[GpuPlan]] = {}
        for each in self.doing(action):
            found.setdefault(each.pod, []).append(each)
        return tuple(tuple(group) for group in found.values())


class _Verdict(Enum):
    """Whether settings are welcome on a GPU."""

    WELCOME = auto()
    KEEP = auto()
    LEAVE = auto()


@dataclass(frozen=True, slots=True)
class _Stand:
    """One GPU before its group is looked at."""

    uuid: str
    device: Device | None
    verdict: _Verdict
    pod: PodName | None = None
    pods: frozenset[PodName] = frozenset()
    """All that have it, where it is shared."""
    named: Named | None = None
    cause: Cause | None = None
    reasons: frozenset[Reason] = frozenset()


def plan(facts: Facts, rules: Rules) -> Plan:
    """What to do now. Carrying it out and planning again gives nothing more to do."""
    power = facts.wishes.node_power
    intents = () if power is None else power.spec.intents
    advised = power is not None and power.spec.enforcement is Enforcement.ADVISE
    names = named_pods(intents)
    devices = {each.uuid: each for each in facts.devices}
    stands = [
        _stand(uuid, devices.get(uuid), facts, names, advised, rules) for uuid in sorted({*devices, *facts.owned})
    ]
    groups: dict[PodName, list[_Stand]] = {}
    for stand in stands:
        if stand.pod is not None:
            groups.setdefault(stand.pod, []).append(stand)
    plans = [_alone(stand, facts) for stand in stands if stand.pod is None]
    peers = _peers(stands)
    broken = frozenset(pod for each in stands for pod in each.pods if each.verdict is _Verdict.LEAVE)
    budget = rules.node_changes_per_minute - sum(
        each.lowerings(facts.now_s, _MINUTE_S) for each in facts.memory.values()
    )
    for _, group in sorted(groups.items(), key=lambda each: (each[0].namespace, each[0].name)):
        made = _group(group, peers, facts, rules, budget, broken=group[0].pod in broken)
        budget -= sum(each.action is Action.SET and each.lowers for each in made)
        plans.extend(made)
    return Plan(tuple(sorted(plans, key=lambda each: each.uuid)))


_MINUTE_S = 60.0


def _stand(
    uuid: str,
    device: Device | None,
    facts: Facts,
    names: Mapping[PodName, tuple[Named, ...]],
    advised: bool,
    rules: Rules,
) -> _Stand:
    owned = facts.owned.get(uuid)
    holder = None if facts.holders is None else facts.holders.get(uuid, Holder(Standing.UNVERIFIED))
    pod = _pod(holder, owned)
    named = _named(pod, names)

    def said(verdict: _Verdict, cause: Cause | None = None, *reasons: Reason) -> _Stand:
        pods = frozenset() if holder is None else holder.pods
        return _Stand(uuid, device, verdict, pod, pods, named, cause, frozenset(reasons))

    wish = _wish(pod, named, names, advised, facts)
    if owned is not None and facts.remembered(uuid).stranded:
        return said(_Verdict.LEAVE, Cause.APPLY_FAILED, facts.remembered(uuid).problem or Reason.DRIVER_ERROR)
    if owned is not None and (moved := _moved(owned, holder, pod, named)) is not None:
        return said(_Verdict.LEAVE, moved)
    if device is not None and device.mig:
        return said(_Verdict.LEAVE, Cause.NOT_ELIGIBLE, Reason.MIG)
    if holder is not None and holder.standing in _UNTOUCHABLE:
        return said(_Verdict.LEAVE, Cause.NOT_ELIGIBLE, STANDINGS[holder.standing])
    if wish is not None:
        return said(_Verdict.LEAVE, *wish)
    memory = facts.remembered(uuid)
    if facts.now_s < memory.foreign_until_s and memory.foreign_pod == pod:
        return said(_Verdict.LEAVE, Cause.FOREIGN_WRITER, Reason.FOREIGN_WRITER)
    if holder is None or holder.standing is Standing.UNVERIFIED:
        reason = Reason.OWNERS_UNKNOWN if holder is None else Reason.UNVERIFIED
        if facts.now_s - memory.verified_at_s < rules.unknown_owner_s:
            return said(_Verdict.KEEP, None, reason)
        return said(_Verdict.LEAVE, Cause.OWNERS_UNKNOWN, reason)
    if device is None or uuid not in facts.readings:
        return said(_Verdict.KEEP, None, Reason.DRIVER_ERROR)
    return said(_Verdict.WELCOME)


_UNTOUCHABLE = frozenset({Standing.SHARED, Standing.MIG, Standing.FOREIGN_OWNER})


def _pod(holder: Holder | None, owned: Ownership | None) -> PodName | None:
    """Whose it is: as the kubelet says, else as it was when it was set."""
    if holder is not None and (holder.pod is not None or holder.standing is not Standing.UNVERIFIED):
        return holder.pod
    return None if owned is None else PodName(owned.namespace, owned.pod)


def _named(pod: PodName | None, names: Mapping[PodName, tuple[Named, ...]]) -> Named | None:
    found = () if pod is None else names.get(pod, ())
    return found[0] if len(found) == 1 else None


def _moved(owned: Ownership, holder: Holder | None, pod: PodName | None, named: Named | None) -> Cause | None:
    """Why an owned GPU is no longer its pod's; None: it is."""
    if holder is not None and holder.standing is Standing.FREE:
        return Cause.POD_GONE
    if pod != PodName(owned.namespace, owned.pod):
        return Cause.MOVED if pod is not None else None
    if named is not None and named.uid != owned.pod_uid:
        return Cause.MOVED
    return None


def _wish(
    pod: PodName | None,
    named: Named | None,
    names: Mapping[PodName, tuple[Named, ...]],
    advised: bool,
    facts: Facts,
) -> tuple[Cause, *tuple[Reason, ...]] | None:
    """Why nothing is wished of a pod's GPUs; None: something is."""
    if named is None:
        ambiguous = pod is not None and len(names.get(pod, ())) > 1
        return (Cause.NOT_ELIGIBLE, Reason.AMBIGUOUS) if ambiguous else (Cause.INTENT_GONE,)
    enforcement = named.intent.enforcement
    if enforcement is Enforcement.ADVISE or (enforcement is None and advised):
        return Cause.ADVISE, Reason.ADVISE
    if facts.now_s >= facts.wishes.lease_until_s:
        return Cause.LEASE_EXPIRED, Reason.LEASE_EXPIRED
    return None


def _peers(stands: Iterable[_Stand]) -> Mapping[tuple[str, str, str, bool], tuple[Device, ...]]:
    """The devices of all GPUs that are asked for the same, so that they are clamped alike."""
    found: dict[tuple[str, str, str, bool], tuple[Device, ...]] = {}
    for stand in stands:
        if stand.named is not None and stand.pod is not None and stand.device is not None and not stand.device.mig:
            key = _kinship(stand.named.intent, stand.pod.name)
            found[key] = (*found.get(key, ()), stand.device)
    return found


def _kinship(intent: PowerIntent, pod: str) -> tuple[str, str, str, bool]:
    return intent.namespace, intent.variant, intent.role.value, pod in intent.resting_pods


def _alone(stand: _Stand, facts: Facts) -> GpuPlan:
    """A GPU without a pod."""
    owned = stand.uuid in facts.owned
    if stand.verdict is _Verdict.LEAVE:
        return _left(stand, facts, stand.cause, stand.reasons)
    return GpuPlan(stand.uuid, Action.HOLD if owned else Action.NOTHING, reasons=_sorted(stand.reasons))


def _left(stand: _Stand, facts: Facts, cause: Cause | None, reasons: Iterable[Reason]) -> GpuPlan:
    """A GPU on which nothing is wanted: put back what was set."""
    if stand.uuid not in facts.owned:
        return _described(stand, Action.NOTHING, reasons)
    foreign = facts.remembered(stand.uuid).foreign if cause is Cause.FOREIGN_WRITER else frozenset()
    return replace(_described(stand, Action.RELEASE, reasons), cause=cause, left=foreign)


def _described(stand: _Stand, action: Action, reasons: Iterable[Reason]) -> GpuPlan:
    owner, asked = None, None
    if stand.pod is not None:
        owner = GpuOwner(namespace=stand.pod.namespace, pod=stand.pod.name)
    if stand.named is not None and owner is not None:
        intent = stand.named.intent
        owner = owner.model_copy(update={"variant": intent.variant, "role": intent.role})
        asked = requested(intent, owner.pod)
    uid = "" if stand.named is None else stand.named.uid
    return GpuPlan(stand.uuid, action, stand.pod, uid, owner, asked, reasons=_sorted(reasons))


def _sorted(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(sorted(set(reasons)))


def _group(
    group: Sequence[_Stand],
    peers: Mapping[tuple[str, str, str, bool], tuple[Device, ...]],
    facts: Facts,
    rules: Rules,
    budget: int,
    *,
    broken: bool,
) -> list[GpuPlan]:
    if broken or any(each.verdict is _Verdict.LEAVE for each in group):
        return [
            _left(each, facts, each.cause, each.reasons)
            if each.verdict is _Verdict.LEAVE
            else _left(each, facts, Cause.GROUP, {*each.reasons, Reason.GROUP})
            for each in group
        ]
    if any(each.verdict is _Verdict.KEEP for each in group):
        return [_kept(each, facts, each.reasons or {Reason.GROUP}) for each in group]
    named, pod = group[0].named, group[0].pod
    assert named is not None
    assert pod is not None
    asked = requested(named.intent, pod.name)
    wanted, reasons = feasible(asked, peers[_kinship(named.intent, pod.name)])
    if wanted.power_limit_milliwatts is not None and not _originals_known(group, facts):
        wanted, reasons = replace(wanted, power_limit_milliwatts=None), reasons | {Reason.UNSUPPORTED}
    for knob in wanted.knobs() & frozenset().union(*(facts.remembered(each.uuid).unsupported for each in group)):
        wanted, reasons = wanted.with_level(knob, None), reasons | {Reason.UNSUPPORTED}
    if not wanted.knobs():
        return [_left(each, facts, Cause.UNSUPPORTED, reasons) for each in group]
    memories = [facts.remembered(each.uuid) for each in group]
    retry_at_s = max(each.retry_at_s for each in memories)
    if facts.now_s < retry_at_s:
        problems = {each.problem for each in memories if each.problem is not None}
        return [_kept(each, facts, reasons | problems) for each in group]
    return _paced(group, wanted, reasons, memories, facts, rules, budget)


def _originals_known(group: Sequence[_Stand], facts: Facts) -> bool:
    """Whether the power limit of each is known as it was before us."""
    return all(
        (
            facts.owned[each.uuid].original if each.uuid in facts.owned else facts.readings[each.uuid]
        ).power_limit_milliwatts
        is not None
        for each in group
    )


def _kept(stand: _Stand, facts: Facts, reasons: Iterable[Reason]) -> GpuPlan:
    return _described(stand, Action.HOLD if stand.uuid in facts.owned else Action.NOTHING, reasons)


def _paced(
    group: Sequence[_Stand],
    wanted: Levels,
    reasons: frozenset[Reason],
    memories: Sequence[GpuMemory],
    facts: Facts,
    rules: Rules,
    budget: int,
) -> list[GpuPlan]:
    """The group that nothing stands in the way of, but for how often it may change."""
    owned = [facts.owned[each.uuid] for each in group if each.uuid in facts.owned]
    levels = paced(wanted, [each.set for each in owned], memories, facts.now_s, rules, room=len(group) <= budget)
    if levels != wanted:
        reasons |= {Reason.DWELL}
    plans = []
    for stand in group:
        memory, record = facts.remembered(stand.uuid), facts.owned.get(stand.uuid)
        why = set(reasons)
        if record is not None:
            why |= {Reason.NOT_EFFECTIVE} if not_effective(memory.drift, rules) else set()
            why |= {Reason.THROTTLED} if throttled(memory.drift, facts.now_s) else set()
        due = levels is not None and (levels.knobs() if record is None else record.set != levels or memory.drift.lost)
        if not due:
            plans.append(_kept(stand, facts, why))
        elif facts.blocked is not None:
            plans.append(replace(_kept(stand, facts, why | {facts.blocked}), levels=levels))
        else:
            assert levels is not None
            lowers = record is None or lower(levels, record.set)
            plans.append(replace(_described(stand, Action.SET, why), levels=levels, lowers=lowers))
    return plans


def lower(levels: Levels, than: Levels) -> bool:
    """Whether some knob is lower than it was; what is not set counts as infinitely high."""
    return any((levels.of(knob) or math.inf) < (than.of(knob) or math.inf) for knob in Knob)
