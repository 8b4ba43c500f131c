"""What an administrator lets the policies of a namespace do, as labels of the Namespace say.

Without a grant a policy computes and reports all the same; it changes nothing. Deferral needs none: it moves only Jobs
that their own creators handed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

GRANTED = "true"
"""The one value of a label that grants."""


class Right(StrEnum):
    """What a namespace can be granted; the value is the label."""

    SCALING = "heliotrope.io/allow-scaling"
    POWER = "heliotrope.io/allow-power"
    DOWNGRADES = "heliotrope.io/allow-downgrades"


_WHAT = {
    Right.SCALING: "to change replicas",
    Right.POWER: "to set clocks and watts",
    Right.DOWNGRADES: "to answer with a model of lower quality",
}


class GrantReason(StrEnum):
    """Reasons for conditions."""

    GRANTED = "Granted"
    NOT_GRANTED = "NotGranted"
    NAMESPACE_UNKNOWN = "NamespaceUnknown"


@dataclass(frozen=True, slots=True)
class Grant:
    """Whether a namespace has a right, and why."""

    allowed: bool
    reason: GrantReason
    message: str


def grant(right: Right, namespace: str, labels: Mapping[str, str] | None) -> Grant:
    """Whether the policies of a namespace may use a right.

    Args:
        right: what they want to do.
        namespace: its name, for the message.
        labels: of the Namespace; None if it is not known (not listed yet, or reading namespaces is not permitted).
            What is not known is not granted.
    """
    if labels is None:
        message = f"the labels of namespace {namespace} are not known, so nothing there is granted"
        return Grant(False, GrantReason.NAMESPACE_UNKNOWN, message)
    value = labels.get(right.value)
    if value == GRANTED:
        return Grant(True, GrantReason.GRANTED, f"namespace {namespace} carries {right.value}={GRANTED}")
    found = "has no such label" if value is None else f"has it with the value {value!r}"
    message = (
        f"policies of namespace {namespace} may not act: {_WHAT[right]}, it needs the label {right.value}={GRANTED} "
        f"and {found}; an administrator grants it with `kubectl label namespace {namespace} {right.value}={GRANTED}`"
    )
    return Grant(False, GrantReason.NOT_GRANTED, message)
