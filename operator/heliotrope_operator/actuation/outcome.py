"""What became of a decision about replicas, as the variant's status tells it."""

from dataclasses import dataclass
from enum import StrEnum

from heliotrope.api.v1alpha1.common import ConditionStatus


class Reason(StrEnum):
    """Reasons of the condition `Scaled`."""

    SCALED = "Scaled"
    CEILING_SET = "CeilingSet"
    PENDING = "Pending"
    METRICS_ONLY = "MetricsOnly"
    ADVISE_ONLY = "AdviseOnly"
    NO_MAXIMUM = "NoMaximum"
    NOT_GRANTED = "NotGranted"
    NAMESPACE_UNKNOWN = "NamespaceUnknown"
    POLICY_UNREADABLE = "PolicyUnreadable"
    CONFLICTED = "Conflicted"
    NO_AUTOSCALER = "NoAutoscaler"
    AUTOSCALER_PAUSED = "AutoscalerPaused"
    TARGET_NOT_FOUND = "TargetNotFound"
    NOT_PERMITTED = "NotPermitted"
    REFUSED = "Refused"


class ConflictReason(StrEnum):
    """Reasons of the condition `Conflicted` that say who else scales."""

    HPA = "HorizontalPodAutoscaler"
    SCALED_OBJECT = "ScaledObject"
    LLMD_AUTOSCALER = "LlmdAutoscaler"
    SEVERAL_AUTOSCALERS = "SeveralAutoscalers"
    VALUE_REVERTED = "ValueReverted"
    OTHER_INSTALLATION = "OtherInstallation"


_IN_EFFECT = frozenset({Reason.SCALED, Reason.CEILING_SET})
_UNKNOWN = frozenset({Reason.PENDING, Reason.NAMESPACE_UNKNOWN, Reason.POLICY_UNREADABLE})


@dataclass(frozen=True, slots=True)
class Conflict:
    """Who else decides on the field."""

    reason: ConflictReason
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the newest decision about one variant."""

    reason: Reason
    message: str
    desired: int | None = None
    """Replicas that are wanted; None: no opinion."""
    conflict: Conflict | None = None

    @property
    def status(self) -> ConditionStatus:
        """Whether what is wanted is what there is; unknown while nothing was decided."""
        if self.reason in _IN_EFFECT:
            return ConditionStatus.TRUE
        return ConditionStatus.UNKNOWN if self.reason in _UNKNOWN else ConditionStatus.FALSE
