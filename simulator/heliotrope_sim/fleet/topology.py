"""What there is: sites with engines, schedulers, and how far they are from each other."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.series import Series
from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError

FloatMatrix = NDArray[np.float64]


class Dispatch(IntEnum):
    """Which of a site's awake engines gets a request."""

    ROUND_ROBIN = 0
    """Each in turn: over nodes first, then over the engines of a node."""
    LEAST_LOADED = 1
    """The one with the fewest requests in its queue and batch at that instant; of equals, the first."""


@dataclass(frozen=True, slots=True)
class PrefillDecode:
    """Prefill and decode on engines of their own; KV goes from one to the other over a link."""

    prefill_engines: int
    """The first so many engines of every node prefill, the others decode."""
    link_bytes_per_second: float
    link_latency_seconds: float = 0.0
    link_joules_per_byte: float = 0.0


@dataclass(frozen=True, slots=True)
class Wake:
    """What it takes to bring an engine back, by how deep it sleeps; seconds from the command to the first step."""

    idle_clock_seconds: float = 0.0
    sleep_seconds: float = 2.0
    exit_seconds: float = 30.0
    node_off_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Site:
    """One data centre: identical nodes of identical engines behind one grid.

    Seen by schedulers as one region (`heliotrope.place.regions`).
    """

    name: str
    zone: str
    """Which schedulers are near it: those with the same zone place on it directly, others forward to them."""
    model: EngineModel
    nodes: int
    engines_per_node: int
    carbon: Series | None = None
    """Of its grid, in Unix time; None, and where the series has a gap: unknown."""
    pue: float = 1.1
    host_watts_per_node: float = 300.0
    batch_capacity: int = 0
    """Most sequences in an engine's batch, for schedulers' plans and for admission; 0: the model's `max_num_seqs`."""
    dispatch: Dispatch = Dispatch.ROUND_ROBIN
    prefill_decode: PrefillDecode | None = None
    """None: every engine does both."""
    wake: Wake = Wake()

    def __post_init__(self) -> None:
        """Counts are positive and everything is finite."""
        path = f"sites[{self.name}]"
        for field, least in (("nodes", 1), ("engines_per_node", 1), ("batch_capacity", 0)):
            if getattr(self, field) < least:
                raise InvalidInputError(f"{path}.{field}", f"must be at least {least}, got {getattr(self, field)}")
        if not (np.isfinite(self.pue) and self.pue >= 1.0):
            raise InvalidInputError(f"{path}.pue", f"must be a number of 1 or more, got {self.pue}")
        if not (np.isfinite(self.host_watts_per_node) and self.host_watts_per_node >= 0.0):
            raise InvalidInputError(f"{path}.host_watts_per_node", f"must be 0 or more, got {self.host_watts_per_node}")
        split = self.prefill_decode
        if split is not None:
            if not 0 < split.prefill_engines < self.engines_per_node:
                raise InvalidInputError(
                    f"{path}.prefill_decode.prefill_engines",
                    f"must leave both kinds one of the node's {self.engines_per_node}, got {split.prefill_engines}",
                )
            if not split.link_bytes_per_second > 0.0:
                raise InvalidInputError(f"{path}.prefill_decode.link_bytes_per_second", "must be above 0")

    @property
    def engines(self) -> int:
        """How many engines it has."""
        return self.nodes * self.engines_per_node

    @property
    def capacity(self) -> int:
        """Sequences in one engine's batch."""
        return self.batch_capacity or self.model.max_num_seqs


@dataclass(frozen=True, slots=True)
class SchedulerSite:
    """A regional scheduler. Requests arrive at it; `Workload.origin` counts schedulers."""

    name: str
    zone: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Sites, schedulers and the network between them."""

    sites: tuple[Site, ...]
    schedulers: tuple[SchedulerSite, ...]
    rtt_seconds: FloatMatrix
    """Round trip from each scheduler to each site, shape (schedulers, sites); half of it is one way."""

    def __post_init__(self) -> None:
        """The matrix has its shape and no holes, every zone with sites has a scheduler."""
        if not self.sites or not self.schedulers:
            raise InvalidInputError("topology", "needs at least one site and one scheduler")
        for name, rows in (("sites", self.sites), ("schedulers", self.schedulers)):
            names = [row.name for row in rows]
            if len(set(names)) < len(names):
                raise InvalidInputError(f"topology.{name}", f"two have the same name: {sorted(names)}")
        shape = (len(self.schedulers), len(self.sites))
        if self.rtt_seconds.shape != shape:
            raise InvalidInputError("topology.rtt_seconds", f"must have shape {shape}, has {self.rtt_seconds.shape}")
        for (s, d), rtt in np.ndenumerate(self.rtt_seconds):
            if not (np.isfinite(rtt) and rtt >= 0.0):
                pair = f"{self.schedulers[s].name} to {self.sites[d].name}"
                raise InvalidInputError("topology.rtt_seconds", f"missing from {pair}: {rtt}")
        zones = {scheduler.zone for scheduler in self.schedulers}
        for site in self.sites:
            if site.zone not in zones:
                raise InvalidInputError(f"sites[{site.name}].zone", f"no scheduler is in zone {site.zone!r}")

    @property
    def engines(self) -> int:
        """Engines of all sites."""
        return sum(site.engines for site in self.sites)
