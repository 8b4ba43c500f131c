"""What to tell a person when the API server does not let a field be changed."""

from heliotrope_operator.actuation.fields import Field
from heliotrope_operator.actuation.outcome import Outcome, Reason
from heliotrope_operator.errors import ApiError

AGGREGATION_LABEL = "heliotrope.io/aggregate-to-operator"
"""Label `"true"` of a ClusterRole whose rules the operator gets."""


def forbidden(field: Field, error: ApiError, desired: int | None) -> Outcome:
    """Which rights are missing, as a command that gives them."""
    resource = field.resource
    object_name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    resources = f"{object_name},{object_name}/scale" if field.scaled else object_name
    name = f"heliotrope-scale-{resource.plural}"
    message = (
        f"the operator may not change {field} ({error}); an administrator allows it with "
        f"`kubectl create clusterrole {name} --verb=get,patch --resource={resources}` and "
        f"`kubectl label clusterrole {name} {AGGREGATION_LABEL}=true`"
    )
    return Outcome(Reason.NOT_PERMITTED, message, desired)


def refused(field: Field, error: ApiError, desired: int | None) -> Outcome:
    """Somebody, a quota, a webhook or a rule of the kind itself, does not want the value."""
    return Outcome(Reason.REFUSED, f"the API server refuses to change {field}: {error}", desired)
