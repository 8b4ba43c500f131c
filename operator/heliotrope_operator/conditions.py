"""Conditions: how a controller's findings become them, and which of their changes a person should hear of."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliotrope.api.v1alpha1.common import Condition, ConditionStatus

MAX_MESSAGE = 1_000
"""Characters of a message, and so of an event's note."""


class ConditionType(StrEnum):
    """Types of conditions that the operator reports."""

    ACCEPTED = "Accepted"
    CREDENTIALS_ACCEPTED = "CredentialsAccepted"
    SIGNAL_FRESH = "SignalFresh"
    ENFORCED = "Enforced"
    SIGNALS_FRESH = "SignalsFresh"
    TARGET_RESOLVED = "TargetResolved"
    REGION_RESOLVED = "RegionResolved"
    CONFLICTED = "Conflicted"
    SCALED = "Scaled"
    POWER_MANAGED = "PowerManaged"
    DEMAND_ANSWERED = "DemandAnswered"
    DEMAND_KNOWN = "DemandKnown"
    ACTIVATED = "Activated"
    CEILING_HOLDS = "CeilingHolds"


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
    ConditionType.CREDENTIALS_ACCEPTED: frozenset({"CredentialsAccepted", "CredentialsUntested"}),
    ConditionType.SIGNAL_FRESH: frozenset({"SignalFresh"}),
    ConditionType.ENFORCED: frozenset({"Enforced", "AdviseOnly", "NotAccepted"}),
    ConditionType.SIGNALS_FRESH: frozenset({"SignalsFresh", "SignalsPending", "NoRegions"}),
    ConditionType.TARGET_RESOLVED: frozenset({"TargetResolved"}),
    ConditionType.REGION_RESOLVED: frozenset({"RegionResolved"}),
    ConditionType.CONFLICTED: frozenset({"NoConflict"}),
    ConditionType.SCALED: frozenset(
        {"Scaled", "CeilingSet", "Pending", "MetricsOnly", "AdviseOnly", "NamespaceUnknown", "Conflicted"}
    ),
    ConditionType.POWER_MANAGED: frozenset({"PowerManaged", "AdviseOnly", "NotAccepted", "NoEngines", "NothingSet"}),
    ConditionType.CEILING_HOLDS: frozenset({"CeilingHolds"}),
    ConditionType.ACTIVATED: frozenset({"Activated", "AdviseOnly", "NotAccepted", "NoEngines", "NamespaceUnknown"}),
    ConditionType.DEMAND_KNOWN: frozenset({"DemandKnown", "DemandPending"}),
    ConditionType.DEMAND_ANSWERED: frozenset({"NoEvent", "EventAnswered", "PowerReturns", "SourcePending"}),
}
"""Reasons that ask nobody to act: a change to one of them is news, not a warning."""
_TOLD = frozenset({"Enforced", "AdviseOnly", "NoEvent", "EventAnswered", "PowerReturns"})
"""A change from one of these to another is told."""


def settle(
    previous: Sequence[Condition],
    findings: Iterable[Finding],
    generation: int | None,
    now: datetime,
    *,
    own: Collection[ConditionType] | None = None,
) -> tuple[Condition, ...]:
    """The conditions that say what was found; the time of the last transition stays while the status stays.

    So does their order: several controllers speak of one object, and a list in another order is another list to the API
    server, which each of them would write again and again.

    Args:
        previous: as they are.
        findings: what was found; a condition of the caller's that nothing was found for goes.
        generation: of the object that was looked at.
        now: for conditions whose status has changed.
        own: the types that the caller speaks for; those of others stay as they are. None: it speaks for all.
    """
    known = {condition.type: condition for condition in previous}
    settled: dict[str, Condition] = {}
    for finding in findings:
        before = known.get(finding.type.value)
        since = before.last_transition_time if before is not None and before.status is finding.status else now
        settled[finding.type.value] = Condition(
            type=finding.type.value,
            status=finding.status,
            observed_generation=generation,
            last_transition_time=since,
            reason=finding.reason,
            message=_shortened(finding.message),
        )
    others = {} if own is None else {name: each for name, each in known.items() if name not in own}
    kept = others | settled
    return (*(kept.pop(name) for name in known if name in kept), *kept.values())


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
