"""What a NodePower's status says, from a plan carried out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from heliotrope.api.v1alpha1.common import Condition, ConditionStatus
from heliotrope.api.v1alpha1.nodepower import HEARTBEAT_S, GpuSettings, GpuStatus, NodePowerStatus
from heliotrope.units import watts_from_milliwatts
from heliotrope_agent.control.plan import Facts, GpuPlan, Plan
from heliotrope_agent.control.reasons import Reason
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.driver.interface import Reading
from heliotrope_agent.state.records import Levels, Ownership

APPLIED = "Applied"
LEASE_VALID = "LeaseValid"

_MAX_GPUS = 64
_HARMLESS = frozenset({Reason.CLAMPED, Reason.THROTTLED})
"""Reasons under which an intent is in effect as well as the device can."""
_WORST_FIRST = (
    Reason.DENIED,
    Reason.STATE_UNWRITABLE,
    Reason.DRIVER_ERROR,
    Reason.NOT_EFFECTIVE,
    Reason.FOREIGN_WRITER,
    Reason.LEASE_EXPIRED,
    Reason.NO_WATCHDOG,
    Reason.OWNERS_UNKNOWN,
    Reason.AMBIGUOUS,
    Reason.UNVERIFIED,
    Reason.SHARED,
    Reason.MIG,
    Reason.FOREIGN_OWNER,
    Reason.UNSUPPORTED,
    Reason.DRY_RUN,
    Reason.ADVISE,
    Reason.DWELL,
    Reason.GROUP,
)
"""The one that the condition names, if there are several."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its times."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


def status_of(
    plan: Plan, facts: Facts, rules: Rules, previous: NodePowerStatus | None, now: datetime
) -> NodePowerStatus:
    """The status that answers the wishes in `facts`; equal to the previous one where nothing changed.

    Args:
        plan: carried out.
        facts: as they are after that: `owned` and `readings`.
        rules: the loop's.
        previous: what the status says, for the times of conditions.
        now: wall time.
    """
    power = facts.wishes.node_power
    generation = None if power is None else power.metadata.generation
    old = {} if previous is None else {each.type: each for each in previous.conditions}
    conditions = tuple(
        _condition(old.get(each.type), each, generation, now) for each in (_applied(plan, facts, rules), _lease(facts))
    )
    products = {each.uuid: each.product for each in facts.devices}
    gpus = tuple(
        _gpu(each, products.get(each.uuid), facts.owned.get(each.uuid), facts.readings.get(each.uuid))
        for each in plan.gpus
    )
    return NodePowerStatus(
        observed_generation=generation,
        conditions=conditions,
        gpu_count=len(gpus),
        managed_gpus=len(facts.owned),
        gpus=gpus[:_MAX_GPUS],
    )


def stopped(status: NodePowerStatus, managed: int, now: datetime) -> NodePowerStatus:
    """What a status says once the agent has put everything back and ends.

    Args:
        status: the last one.
        managed: GPUs that could not be put back.
        now: wall time.
    """
    message = "the agent has ended" + (f"; {_gpus(managed)} could not be put back" if managed else "")
    finding = Finding(APPLIED, ConditionStatus.FALSE, "AgentStopped", message)
    conditions = tuple(
        _condition(each, finding, each.observed_generation, now) if each.type == APPLIED else each
        for each in status.conditions
    )
    gpus = status.gpus if managed else tuple(_unmanaged(each) for each in status.gpus)
    found = {"conditions": conditions, "managed_gpus": managed, "gpus": gpus, "heartbeat_time": _whole(now)}
    return status.model_copy(update=found)


def _unmanaged(gpu: GpuStatus) -> GpuStatus:
    return gpu.model_copy(update={"effective": gpu.original or gpu.effective, "original": None})


def _condition(old: Condition | None, found: Finding, generation: int | None, now: datetime) -> Condition:
    since = old.last_transition_time if old is not None and old.status is found.status else now
    return Condition(
        type=found.type,
        status=found.status,
        observed_generation=generation,
        last_transition_time=since,
        reason=found.reason,
        message=found.message,
    )


def _applied(plan: Plan, facts: Facts, rules: Rules) -> Finding:
    def finding(status: ConditionStatus, reason: str, message: str) -> Finding:
        return Finding(APPLIED, status, reason, message)

    power = facts.wishes.node_power
    if power is None or not power.spec.intents:
        return finding(ConditionStatus.TRUE, "NothingAsked", "no intents; every GPU is as it was found")
    asked = [each for each in plan.gpus if each.requested is not None or Reason.AMBIGUOUS in each.reasons]
    if facts.blocked is not None and rules.dry_run:
        return finding(ConditionStatus.FALSE, Reason.DRY_RUN, "the agent runs with --dry-run and changes nothing")
    if facts.holders is None and not asked:
        return finding(ConditionStatus.UNKNOWN, Reason.OWNERS_UNKNOWN, "the kubelet does not tell which pods have GPUs")
    if not asked:
        return finding(ConditionStatus.UNKNOWN, "NoPods", "no pod that an intent names has a GPU of this node yet")
    short = {each.uuid: set(each.reasons) - _HARMLESS for each in asked}
    short = {uuid: reasons for uuid, reasons in short.items() if reasons}
    if not short:
        clamped = any(Reason.CLAMPED in each.reasons for each in asked)
        return finding(
            ConditionStatus.TRUE,
            "Clamped" if clamped else "Applied",
            f"{_gpus(len(asked))} set as asked" + (", as near as the devices can" if clamped else ""),
        )
    found = set[Reason]().union(*short.values())
    worst = next(each for each in _WORST_FIRST if each in found)
    concerned = sorted(uuid for uuid, reasons in short.items() if worst in reasons)
    return finding(
        ConditionStatus.FALSE,
        "AdviseOnly" if worst is Reason.ADVISE else worst.value,
        f"{len(short)} of {_gpus(len(asked))} not as asked; {worst.value}: {_listed(concerned)}",
    )


def _lease(facts: Facts) -> Finding:
    until_s = facts.wishes.lease_until_s
    if until_s == float("inf"):
        return Finding(LEASE_VALID, ConditionStatus.TRUE, "NotNeeded", "wishes from a folder hold without a lease")
    if facts.now_s < until_s:
        return Finding(LEASE_VALID, ConditionStatus.TRUE, "Renewed", "the operator renews its Lease")
    if until_s == float("-inf"):
        return Finding(
            LEASE_VALID, ConditionStatus.UNKNOWN, "NotSeen", "no renewal of the operator's Lease has been seen yet"
        )
    return Finding(
        LEASE_VALID,
        ConditionStatus.FALSE,
        "Expired",
        "the operator does not renew its Lease; every GPU was put back",
    )


def _gpu(plan: GpuPlan, product: str | None, owned: Ownership | None, reading: Reading | None) -> GpuStatus:
    return GpuStatus(
        uuid=plan.uuid,
        product=product,
        owner=plan.owner,
        requested=plan.requested,
        effective=_effective(owned, reading),
        original=None if owned is None else _settings(owned.original),
        reasons=plan.reasons,
    )


def _effective(owned: Ownership | None, reading: Reading | None) -> GpuSettings | None:
    """Locks as the driver took them, for it cannot tell them; the power limit as it reads."""
    if reading is None:
        return None
    locks = Levels() if owned is None else owned.set
    return _settings(Levels(locks.sm_clock_mhz, locks.memory_clock_mhz, reading.power_limit_milliwatts))


def _settings(levels: Levels) -> GpuSettings:
    milliwatts = levels.power_limit_milliwatts
    watts = None if milliwatts is None else max(1, round(watts_from_milliwatts(milliwatts)))
    return GpuSettings(sm_clock_mhz=levels.sm_clock_mhz, memory_clock_mhz=levels.memory_clock_mhz, watts=watts)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _listed(uuids: list[str], shown: int = 4) -> str:
    more = len(uuids) - shown
    return ", ".join(uuids[:shown]) + (f" and {more} more" if more > 0 else "")


def beating(status: NodePowerStatus, previous: NodePowerStatus | None, now: datetime) -> NodePowerStatus:
    """The status with a sign of life: a new one where it says something new, or the last one is a minute old.

    Args:
        status: as `status_of` has it.
        previous: what the status says.
        now: wall time; one that was set back makes the last sign one of the future, and a new one due.
    """
    before = None if previous is None else previous.heartbeat_time
    lasts = before is not None and 0.0 <= (now - before).total_seconds() < HEARTBEAT_S
    time = before if lasts and same(previous, status) else _whole(now)
    return status.model_copy(update={"heartbeat_time": time})


def _whole(now: datetime) -> datetime:
    return now.replace(microsecond=0)


def same(one: NodePowerStatus | None, other: NodePowerStatus) -> bool:
    """Whether two statuses say the same, whenever they began to, and whenever the agent was at work."""
    return one is not None and _timeless(one) == _timeless(other)


def _timeless(status: NodePowerStatus) -> Mapping[str, object]:
    found = status.model_dump(exclude={"heartbeat_time"})
    for each in found["conditions"]:
        del each["last_transition_time"]
    return found
