"""Which pod has which GPU, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from heliotrope.api.v1alpha1.nodepower import PowerIntent


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod of this node."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A GPU that the kubelet gave to a container."""

    pod: PodName
    container: str
    device_id: str
    """As the device plugin calls it: `GPU-…`, `MIG-…`, or `GPU-…::3` for a share of one."""
    resource: str = "nvidia.com/gpu"
    """The extended resource that it was asked for as; of a ResourceClaim, the driver's name."""
    dynamic: bool = False
    """Whether it came by a ResourceClaim (dynamic resource allocation)."""


ANYWHERE = ""
"""In place of a UUID: a claim that may be for any GPU of the node."""


class Standing(StrEnum):
    """Whether a GPU may be touched, and if not, why. The values are reasons in a NodePower's status."""

    ELIGIBLE = "Eligible"
    """One pod has it alone, one that an intent names, and nothing contradicts that."""
    FREE = "Free"
    """Nobody has it."""
    SHARED = "Shared"
    """Several containers have it, or shares of it were given away."""
    MIG = "Mig"
    """It is partitioned."""
    FOREIGN_OWNER = "ForeignOwner"
    """Its pod is named by no intent, or processes that are not of its pod run on it."""
    UNVERIFIED = "Unverified"
    """The two sources do not agree, or one of them does not know yet."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a GPU."""

    standing: Standing
    pod: PodName | None = None
    """None: nobody, or several."""
    pods: frozenset[PodName] = frozenset()
    """All that have it or a part of it, where it is shared or partitioned."""


class Owners(Protocol):
    """Tells who has which GPU."""

    def holders(self, intents: Sequence[PowerIntent]) -> Mapping[str, Holder]:
        """By UUID, for every GPU of the node.

        Args:
            intents: those in force, whose pods' UIDs the processes on a GPU must be of.

        Raises:
            PodsUnknownError: if the kubelet does not answer.
            DriverError: if the driver cannot tell which GPUs there are.
        """
        ...
