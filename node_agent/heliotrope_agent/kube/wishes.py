"""What is known of the operator's wishes, as one frozen value that the control loop reads."""

import math
from dataclasses import dataclass
from typing import Protocol

from heliotrope.api.v1alpha1.nodepower import NodePower, NodePowerStatus


@dataclass(frozen=True, slots=True)
class Wishes:
    """The newest that the API server has said; while it is silent, the same as before."""

    node_power: NodePower | None = None
    """The node's NodePower; None: there is none, or nothing is known yet (`known`)."""
    known: bool = False
    """Whether the API server has ever answered in this process."""
    lease_until_s: float = -math.inf
    """Until when wishes hold, on the agent's own monotonic clock: the moment at which a renewal was *seen*, plus the
    Lease's duration. So clocks of nodes need not agree, and an old renewal seen again extends nothing."""


class Cluster(Protocol):
    """The cluster as the control loop needs it. No call blocks: a thread of its own talks to the API server."""

    def wishes(self) -> Wishes:
        """What is known now."""
        ...

    def report(self, status: NodePowerStatus) -> None:
        """Have this status written; a later one takes the place of one that could not be written yet."""
        ...

    def event(self, reason: str, message: str, *, warning: bool) -> None:
        """Have an event recorded on the NodePower, else on the Node; bounded, the oldest go first and are counted."""
        ...
