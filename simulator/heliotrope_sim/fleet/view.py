"""What controllers and the endpoint tier see of engines: read-only columns over engines at one instant."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.fleet.topology import Site, Topology

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SiteEngines:
    """The engines of one site, position e is engine e, node by node."""

    site: Site
    running: Int64
    """Sequences in the batch."""
    waiting: Int64
    queued_tokens: Int64
    """Prompt tokens that waiting and admitted sequences still have to prefill."""
    kv_tokens: Int64
    """Tokens of the batch whose KV is in memory."""
    used_blocks: Int64
    """KV blocks that sequences hold."""
    takes_requests: NDArray[np.bool_]
    """Not told to sleep, and no decode engine of a site with prefill apart."""
    ready: NDArray[np.bool_]
    """Not still waking."""
    depth: Int64
    """`settings.Depth` that it is at, or on its way to."""
    clock_mhz: Int64
    oldest_waiting_seconds: Float64
    """How long the first of the queue has waited; 0 where nobody waits."""
    prefill_seconds: Float64
    """Time spent in prefill steps since the start."""
    cached_tokens: Callable[[int], Float64]
    """Prompt tokens of a request (its index in the workload) that each engine has cached."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """All engines."""

    topology: Topology
    sites: tuple[SiteEngines, ...]
    arrived_since: Int64
    """Requests sent to each site since the controller was last called."""
    first_token_ns: Callable[[int, int], Int64]
    """When the requests of the workload from one index to before another had their first token; -1: not yet."""
