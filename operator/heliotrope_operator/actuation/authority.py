"""Whether replicas of a variant may be changed, and how: from its policy, its namespace and itself."""

from dataclasses import dataclass
from enum import StrEnum

from heliotrope.api.grants import GrantReason, Right, grant
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.actuation.outcome import Reason
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.namespaces import namespace_key
from heliotrope_operator.resources import Key, Kind


class Verdict(StrEnum):
    """What to do with the fields of a variant's target."""

    ACT = "Act"
    """Make them what is wanted."""
    HOLD = "Hold"
    """Leave all as it is: something is not known."""
    RETURN = "Return"
    """Give back whatever was taken."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A verdict and why."""

    verdict: Verdict
    mode: Actuation | None = None
    """How the policy wants it done; None without a policy that scales."""
    reason: Reason | None = None
    """Why nothing is changed; None where it may be, or where nobody asked for it."""
    message: str = ""

    @property
    def act(self) -> bool:
        """For `Wanted.act`."""
        return self.verdict is Verdict.ACT


UNGOVERNED = Authority(Verdict.RETURN)
"""No policy asks for it."""


def authority(cluster: Cluster, variant: Key) -> Authority:
    """Whether a variant's replicas may be changed now.

    What is unknown changes nothing, in neither direction: a policy that this version cannot read may be the one that
    holds, and a namespace whose labels are not known may be granted.
    """
    known, governing = cluster.variants.get(variant), cluster.governing(variant)
    if known is None:
        return UNGOVERNED
    if governing is None:
        unread = _unreadable_policy(cluster, variant.namespace)
        return UNGOVERNED if unread is None else unread
    policy = governing[1]
    scaling = policy.spec.autoscaling
    name = f"CarbonPolicy {policy.metadata.name}"
    if scaling is None:
        return UNGOVERNED
    mode = scaling.actuation
    if policy.spec.enforcement is not Enforcement.ENFORCE:
        return Authority(Verdict.RETURN, mode, Reason.ADVISE_ONLY, f"{name} is not enforced")
    if mode is Actuation.METRICS_ONLY:
        message = f"{name} leaves it to an autoscaler of yours that reads heliotrope_desired_replicas"
        return Authority(Verdict.RETURN, mode, Reason.METRICS_ONLY, message)
    if known.spec.max_replicas is None:
        return Authority(Verdict.RETURN, mode, Reason.NO_MAXIMUM, "the variant has no spec.maxReplicas")
    namespace = cluster.namespaces.get(namespace_key(variant.namespace))
    granted = grant(Right.SCALING, variant.namespace, None if namespace is None else dict(namespace.labels))
    if granted.allowed:
        return Authority(Verdict.ACT, mode)
    if granted.reason is GrantReason.NAMESPACE_UNKNOWN:
        return Authority(Verdict.HOLD, mode, Reason.NAMESPACE_UNKNOWN, granted.message)
    return Authority(Verdict.RETURN, mode, Reason.NOT_GRANTED, granted.message)


def _unreadable_policy(cluster: Cluster, namespace: str) -> Authority | None:
    for key in cluster.unreadable:
        if key.kind is Kind.CARBON_POLICY and key.namespace == namespace:
            return Authority(Verdict.HOLD, None, Reason.POLICY_UNREADABLE, f"{key} cannot be read by this version")
    return None
