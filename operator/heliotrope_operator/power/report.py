"""What a policy's and a variant's status say about power and demand response."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite, isinf

from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1.carbonpolicy import CarbonPolicyStatus, DemandResponseStatus
from heliotrope.api.v1alpha1.common import ConditionStatus, Enforcement
from heliotrope.api.v1alpha1.workloadvariant import ChosenPower, WorkloadVariantStatus
from heliotrope.power.budget import Limit
from heliotrope.power.demand import Answer
from heliotrope.power.plan import PowerPlan, Setting
from heliotrope.power.split import Verdict
from heliotrope_operator.conditions import ConditionType, Finding, settle
from heliotrope_operator.power.gather import Governed
from heliotrope_operator.power.sources import Heard
from heliotrope_operator.turns import chosen_power

OWN_CONDITIONS = frozenset({ConditionType.POWER_MANAGED, ConditionType.DEMAND_ANSWERED})
EXTEND_S = 900.0
"""An event without an end is said to end so much later, so that the picker does not answer it for ever alone."""
EXTEND_BELOW_S = 600.0
SHOWN = 3
"""Names in a message."""


@dataclass(frozen=True, slots=True)
class Budgeted:
    """The limit that holds for a policy now, and what is wrong with its budget."""

    limit: Limit | None
    problems: tuple[str, ...] = ()
    moves: bool = False
    """Whether it changes within the next passes."""


def power_finding(
    governed: Governed, accepted: bool, plan: PowerPlan, budgeted: Budgeted, conflicts: Sequence[str]
) -> Finding:
    """The condition `PowerManaged`; the first of what asks somebody to act, else how it is.

    Args:
        governed: the policy and what it governs.
        accepted: whether it holds on any pool.
        plan: what was chosen.
        budgeted: the budget of now.
        conflicts: nodes whose NodePower is somebody else's.
    """
    told = _figures(plan, budgeted.limit)
    for reason, message in _obstacles(governed, accepted, plan, budgeted, conflicts):
        return Finding(ConditionType.POWER_MANAGED, ConditionStatus.FALSE, reason, f"{message}; {told}")
    clocks = sum(setting.sm_clock_mhz is not None or setting.watts is not None for setting in plan.settings.values())
    message = f"clocks or watts of {clocks} of {len(plan.settings)} variants are set; {told}"
    return Finding(ConditionType.POWER_MANAGED, ConditionStatus.TRUE, "PowerManaged", message)


def _obstacles(
    governed: Governed, accepted: bool, plan: PowerPlan, budgeted: Budgeted, conflicts: Sequence[str]
) -> list[tuple[str, str]]:
    found = []
    if not accepted:
        found.append(("NotAccepted", "it holds on no pool"))
    elif not governed.granted.allowed:
        found.append((governed.granted.reason.value, governed.granted.message))
    if budgeted.problems:
        found.append(("BudgetUnreadable", "; ".join(budgeted.problems)))
    if plan.verdict is Verdict.INFEASIBLE and plan.split is not None:
        message = (
            f"even the lowest clocks draw {plan.split.excess_watts:.0f} W more than the budget: best effort at the "
            f"lowest clocks; fewer replicas, a wider clockRange or a higher budget would keep it"
        )
        found.append(("BudgetInfeasible", message))
    if plan.verdict is Verdict.PROMISE_AT_RISK:
        found.append(("PromiseAtRisk", "within the budget some engines cannot keep the promise"))
    if plan.without_profile and budgeted.limit is not None:
        message = f"no energy profile, so no budget can hold, of {_some(plan.without_profile)}"
        found.append(("PowerUnknown", message))
    if conflicts:
        message = f"somebody else wrote the NodePower of {_some(conflicts)}; delete it to have clocks chosen there"
        found.append(("NodePowerConflict", message))
    if accepted and not governed.engines:
        found.append(("NoEngines", "no pod of a variant of its pools is on a node"))
    idle = sorted({each.reason for each in plan.settings.values()})
    if idle and not any(each.sm_clock_mhz or each.watts for each in plan.settings.values()):
        found.append(("NothingSet", f"clocks are left alone: {', '.join(idle)}"))
    if governed.policy.spec.enforcement is Enforcement.ADVISE:
        found.append(("AdviseOnly", "spec.enforcement is Advise: settings are published and not put into effect"))
    if governed.unanswered:
        message = (
            f"no node agent has reported from {_some(governed.unanswered)}, so the NodePowers are not put into effect"
        )
        found.append(("NoAgent", message))
    if governed.silent:
        message = (
            f"no sign of life of the node agents of {_some(governed.silent)}: what their NodePowers say is of before, "
            "and GPUs there may still be set; see to the nodes and to the agents' pods"
        )
        found.append(("AgentSilent", message))
    if governed.unapplied:
        nodes = _some([f"{node} ({reason})" for node, reason in governed.unapplied.items()])
        message = f"not every intent is in effect on {nodes}: kubectl describe nodepower has the reasons of each GPU"
        found.append(("NotApplied", message))
    return found


def _figures(plan: PowerPlan, limit: Limit | None) -> str:
    drawn = f"at most {plan.projected_watts:.0f} W" if isfinite(plan.projected_watts) else "unknown power"
    if limit is None:
        return f"{drawn}, no budget"
    name = f" {limit.name}" if limit.name else ""
    return f"{drawn} of {limit.watts:.0f} W ({limit.source.value}{name})"


def demand_finding(answered: Answer | None, heard: Heard, now_unix_s: float, *, granted: bool) -> Finding:
    """The condition `DemandAnswered`: True while an event is answered."""
    kind = ConditionType.DEMAND_ANSWERED
    problems = "; ".join((*([heard.failure] if heard.failure else []), *heard.problems[:SHOWN]))
    suffix = f"; {problems}" if problems else ""
    if not granted and heard.pending:
        message = "the source is not asked: its namespace lacks the label heliotrope.io/allow-power=true"
        return Finding(kind, ConditionStatus.UNKNOWN, "NotGranted", message)
    if answered is not None and answered.holds(now_unix_s):
        watts = "without a limit" if answered.target_watts is None else f"at most {answered.target_watts:.0f} W"
        return Finding(kind, ConditionStatus.TRUE, "EventAnswered", f"event {answered.event}: {watts}{suffix}")
    if heard.failure is not None:
        return Finding(kind, ConditionStatus.UNKNOWN, "SourceUnavailable", heard.failure)
    if answered is not None:
        return Finding(kind, ConditionStatus.FALSE, "PowerReturns", f"event {answered.event} has ended{suffix}")
    if heard.pending:
        return Finding(kind, ConditionStatus.UNKNOWN, "SourcePending", "the source is being asked")
    return Finding(kind, ConditionStatus.FALSE, "NoEvent", f"no event asks for less{suffix}")


def answer_of(status: DemandResponseStatus | None) -> Answer | None:
    """The answer as a status keeps it."""
    if status is None:
        return None
    since = status.since.timestamp()
    return Answer(
        event=status.event,
        since_unix_s=since,
        start_unix_s=since if status.start is None else status.start.timestamp(),
        end_unix_s=float("inf") if status.end is None else status.end.timestamp(),
        baseline_watts=None if status.baseline_watts is None else float(status.baseline_watts),
        target_watts=None if status.watts is None else float(status.watts),
    )


def demand_status(
    answered: Answer | None, previous: DemandResponseStatus | None, now_unix_s: float
) -> DemandResponseStatus | None:
    """The answer for a status; the end of an endless event is moved on now and then."""
    if answered is None:
        return None
    end = answered.end_unix_s
    if isinf(end):
        said = None if previous is None or previous.event != answered.event else previous.end
        lasts = said is not None and said.timestamp() - now_unix_s > EXTEND_BELOW_S
        end = said.timestamp() if lasts and said is not None else now_unix_s + EXTEND_S
    return DemandResponseStatus(
        event=answered.event,
        since=_time(answered.since_unix_s),
        start=_time(answered.start_unix_s),
        end=_time(end),
        watts=None if answered.target_watts is None else round(answered.target_watts),
        baseline_watts=None if answered.baseline_watts is None else round(answered.baseline_watts),
    )


def policy_status(
    policy: CarbonPolicy, findings: Sequence[Finding], demand: DemandResponseStatus | None, now: datetime
) -> CarbonPolicyStatus:
    """The status with this part's conditions and event; the rest is others'."""
    previous = policy.status or CarbonPolicyStatus()
    generation = policy.metadata.generation
    return previous.model_copy(
        update={
            "conditions": settle(previous.conditions, findings, generation, now, own=OWN_CONDITIONS),
            "demand_response": demand,
        }
    )


def variant_status(
    variant: WorkloadVariant,
    setting: Setting | None,
    now: datetime,
    *,
    acts: bool = True,
    hold: timedelta | None = None,
) -> WorkloadVariantStatus:
    """The status with the chosen power; `since` stays while the settings do.

    Args:
        variant: as it is.
        setting: what was chosen; None: nothing is chosen for it any more.
        now: the time.
        acts: whether the settings are put into effect, or advice.
        hold: advice of equal reason that is younger than this stays, so that a status is not written for every wind.
    """
    previous = variant.status or WorkloadVariantStatus()
    before = chosen_power(variant)
    if setting is None:
        return previous.model_copy(update={"chosen_power": ()})
    enforcement = Enforcement.ENFORCE if acts else Enforcement.ADVISE
    settings = (setting.sm_clock_mhz, setting.watts, enforcement)
    same = before is not None and (before.sm_clock_mhz, before.watts, before.enforcement) == settings
    if (
        before is not None
        and before.enforcement is enforcement
        and hold is not None
        and before.reason == setting.reason
        and before.since is not None
    ):
        same = same or now - before.since < hold
    if same and before is not None:
        chosen = before.model_copy(update={"reason": setting.reason, "since": before.since or now})
    else:
        chosen = ChosenPower(
            role=variant.spec.role,
            enforcement=enforcement,
            sm_clock_mhz=setting.sm_clock_mhz,
            watts=setting.watts,
            since=now,
            reason=setting.reason,
        )
    return previous.model_copy(update={"chosen_power": (chosen,)})


def _time(unix_s: float) -> datetime:
    return datetime.fromtimestamp(int(unix_s), UTC)


def _some(names: Collection[str]) -> str:
    listed = ", ".join(sorted(names)[:SHOWN])
    return listed if len(names) <= SHOWN else f"{listed} and {len(names) - SHOWN} more"
