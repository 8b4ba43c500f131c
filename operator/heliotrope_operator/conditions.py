"""Conditions: how a controller's findings become them, and which of their changes a person should hear of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliotrope.api.v1alpha1.common import Condition, ConditionStatus

MAX_MESSAGE = 1_000
"""Characters of a message, and so of an event's note."""


class ConditionType(StrEnum):
    """Types of conditions that the operator reports."""

    ACCEPTED = "Accepted"
    SIGNAL_FRESH = "SignalFresh"
    ENFORCED = "Enforced"
    SIGNALS_FRESH = "SignalsFresh"
    TARGET_RESOLVED = "TargetResolved"
    REGION_RESOLVED = "RegionResolved"
    CONFLICTED = "Conflicted"


@dataclass(frozen=True, slots=True)
class Finding:
    """One aspect of an object as it is now."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Transition:
    """A change that a person should hear of."""

    warning: bool
    reason: str
    message: str


_HEALTHY: dict[ConditionType, frozenset[str]] = {
    ConditionType.ACCEPTED: frozenset({"Accepted"}),
    ConditionType.SIGNAL_FRESH: frozenset({"SignalFresh"}),
    ConditionType.ENFORCED: frozenset({"Enforced", "AdviseOnly", "NotAccepted"}),
    ConditionType.SIGNALS_FRESH: frozenset({"SignalsFresh", "SignalsPending", "NoRegions"}),
    ConditionType.TARGET_RESOLVED: frozenset({"TargetResolved"}),
    ConditionType.REGION_RESOLVED: frozenset({"RegionResolved"}),
    ConditionType.CONFLICTED: frozenset({"NoConflict"}),
}
"""Reasons that ask nobody to act: a change to one of them is news, not a warning."""
_TOLD = frozenset({"Enforced", "AdviseOnly"})
"""A change from one of these to another is told."""


def settle(
    previous: Sequence[Condition], findings: Iterable[Finding], generation: int | None, now: datetime
) -> tuple[Condition, ...]:
    """The conditions that say what was found; the time of the last transition stays while the status stays."""
    known = {condition.type: condition for condition in previous}
    settled = []
    for finding in findings:
        before = known.get(finding.type.value)
        since = before.last_transition_time if before is not None and before.status is finding.status else now
        settled.append(
            Condition(
                type=finding.type.value,
                status=finding.status,
                observed_generation=generation,
                last_transition_time=since,
                reason=finding.reason,
                message=_shortened(finding.message),
            )
        )
    return tuple(settled)


def transitions(previous: Sequence[Condition], current: Sequence[Condition]) -> list[Transition]:
    """What changed between two sets of conditions: status or reason, not wording.

    A condition that appears healthy, or is healthy for another reason, is no news: that an object is in order is what
    its user expects. Only a policy that is told to act, or to advise, is news in any case.
    """
    known = {condition.type: (condition.status, condition.reason) for condition in previous}
    changes = []
    for condition in current:
        kind = ConditionType(condition.type)
        before = known.get(condition.type)
        healthy = condition.reason in _HEALTHY[kind]
        if before == (condition.status, condition.reason) or (healthy and _expected(before, condition.reason, kind)):
            continue
        changes.append(Transition(not healthy, condition.reason, condition.message))
    return changes


def _expected(before: tuple[ConditionStatus, str] | None, reason: str, kind: ConditionType) -> bool:
    """Whether a healthy reason needs no telling after what was before."""
    if before is None:
        return True
    return before[1] in _HEALTHY[kind] and not {before[1], reason} <= _TOLD


def _shortened(text: str) -> str:
    """The text, cut where a condition's message has to end."""
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"
