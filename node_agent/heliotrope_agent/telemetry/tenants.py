"""Which pod's energy it is, and what serves there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliotrope.api.v1alpha1.nodepower import PowerIntent
from heliotrope_agent.pods.claims import Claim, PodName


@dataclass(frozen=True, slots=True)
class Payer:
    """Whom energy is booked on."""

    pod: PodName
    variant: str | None = None
    """Its WorkloadVariant; None: no intent names the pod."""
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A container that has a GPU, or a share of it."""

    payer: Payer
    container: str


Tenancy = Mapping[str, tuple[Tenant, ...]]
"""By UUID, who has a GPU; one that is missing has nobody. Under `ANYWHERE` those who may have any."""


def tenancy(claims: Mapping[str, Iterable[Claim]], intents: Iterable[PowerIntent]) -> Tenancy:
    """Who has which GPU.

    Args:
        claims: what the kubelet gave away, by UUID or `ANYWHERE`.
        intents: those known, which tell a pod's variant and role.
    """
    payers = {
        (name := PodName(intent.namespace, pod.name)): Payer(name, intent.variant, intent.role.value)
        for intent in intents
        for pod in intent.pods
    }
    return {
        uuid: tuple(Tenant(payers.get(claim.pod, Payer(claim.pod)), claim.container) for claim in each)
        for uuid, each in claims.items()
    }
