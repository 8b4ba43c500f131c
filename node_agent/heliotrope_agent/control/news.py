"""What a person should hear of as an event: changes from one look to the next, never a state that goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from heliotrope_agent.control.apply import Outcome
from heliotrope_agent.control.plan import Action, Plan
from heliotrope_agent.control.reasons import Cause, Reason
from heliotrope_agent.state.records import Levels

_BAD = (
    Reason.FOREIGN_WRITER,
    Reason.NOT_EFFECTIVE,
    Reason.DENIED,
    Reason.DRIVER_ERROR,
    Reason.STATE_UNWRITABLE,
    Reason.AMBIGUOUS,
    Reason.NO_WATCHDOG,
)
"""Reasons that ask somebody to act."""
_EXPECTED = frozenset({Cause.INTENT_GONE, Cause.POD_GONE, Cause.ADVISE, Cause.MOVED})
"""Causes of putting back that are the daily round."""


@dataclass(frozen=True, slots=True)
class News:
    """An event."""

    reason: str
    message: str
    warning: bool


def news(before: Plan, now: Plan, outcomes: Sequence[Outcome], first: frozenset[str]) -> tuple[News, ...]:
    """Events of one look.

    Args:
        before: the plan of the look before.
        now: this one.
        outcomes: of carrying it out.
        first: UUIDs of GPUs that were set for the first time since they were last put back.
    """
    found = [
        *_would_be(before, now),
        *_done(outcomes, first),
        *_failed(before, outcomes),
        *_reasons(before, now, outcomes),
    ]
    return tuple(dict.fromkeys(found))


def shown(levels: Levels) -> str:
    """Levels for a person."""
    parts = (
        f"SM clock {levels.sm_clock_mhz} MHz" if levels.sm_clock_mhz else "",
        f"memory clock {levels.memory_clock_mhz} MHz" if levels.memory_clock_mhz else "",
        f"power limit {levels.power_limit_milliwatts / 1000:g} W" if levels.power_limit_milliwatts else "",
    )
    return ", ".join(each for each in parts if each) or "its own choice"


def _would_be(before: Plan, now: Plan) -> list[News]:
    """What a dry run would set."""
    known = {each.uuid: each.levels for each in before.gpus}
    return [
        News("GpuWouldBeSet", f"{each.uuid}: {shown(each.levels)}", warning=False)
        for each in now.gpus
        if Reason.DRY_RUN in each.reasons and each.levels is not None and known.get(each.uuid) != each.levels
    ]


def _done(outcomes: Sequence[Outcome], first: frozenset[str]) -> list[News]:
    found = []
    for each in outcomes:
        plan = each.plan
        if each.problem is not None:
            continue
        if plan.action is Action.SET and plan.uuid in first and plan.levels is not None and plan.pod is not None:
            pod = f"{plan.pod.namespace}/{plan.pod.name}"
            found.append(News("GpuSet", f"{plan.uuid} of pod {pod}: {shown(plan.levels)}", warning=False))
        if plan.action is Action.RELEASE and plan.cause is not None:
            text = f"{plan.uuid} was put back as it was found: {plan.cause.value.replace('_', ' ')}"
            found.append(News("GpuReleased", text, warning=plan.cause not in _EXPECTED))
    return found


def _failed(before: Plan, outcomes: Sequence[Outcome]) -> list[News]:
    known = {each.uuid: each.reasons for each in before.gpus}
    return [
        News("GpuNotSet" if each.plan.action is Action.SET else "GpuNotReleased", each.message, warning=True)
        for each in outcomes
        if each.problem is not None and each.problem not in known.get(each.plan.uuid, ())
    ]


def _reasons(before: Plan, now: Plan, outcomes: Sequence[Outcome]) -> list[News]:
    told = {each.plan.uuid for each in outcomes if each.problem is not None}
    known = {each.uuid: each.reasons for each in before.gpus}
    return [
        News(reason.value, f"{each.uuid}: {_SAID[reason]}", warning=True)
        for each in now.gpus
        if each.uuid not in told
        for reason in _BAD
        if reason in each.reasons and reason in _SAID and reason not in known.get(each.uuid, ())
    ]


_SAID = {
    Reason.FOREIGN_WRITER: "somebody else sets this GPU too; Heliotrope leaves it alone for a while",
    Reason.NOT_EFFECTIVE: "the clock does not follow what was set",
    Reason.STATE_UNWRITABLE: "nothing new is set: the file of originals cannot be written",
    Reason.AMBIGUOUS: "two intents name its pod",
    Reason.NO_WATCHDOG: "nothing new is set: the watchdog is silent",
}
