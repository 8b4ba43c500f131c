"""The ways between KV caches: links between endpoints, tiers below an endpoint's own memory.

The defaults are orders of magnitude from data sheets (docs/kv-actions.md says which); whoever has measured replaces
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from heliotrope.errors import InvalidInputError


class LinkClass(StrEnum):
    """How near two endpoints are to each other, nearest first."""

    NODE = "node"
    """The same host: NVLink or a comparable link of accelerators."""
    RACK = "rack"
    """The same rack: RDMA through one switch."""
    REGION = "region"
    """The same region: TCP through the data centre's network."""
    WAN = "wan"
    """Two regions: TCP over long distances."""


class Tier(StrEnum):
    """Where an endpoint keeps KV blocks."""

    ACCELERATOR = "gpu"
    CPU = "cpu"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Link:
    """A way that KV blocks take; rates are what one transfer gets, not what a data sheet promises."""

    bytes_per_second: float
    latency_seconds: float
    """From the decision to pull until bytes flow, handshake included."""
    network_joules_per_bit: float
    """Of everything between the two ends."""
    sender_joules_per_bit: float
    """Of reading the blocks and sending them: memory, bus, network card, copies by the CPU."""
    receiver_joules_per_bit: float
    """Of receiving them and writing them where the engine computes."""

    def __post_init__(self) -> None:
        """Refuse what no link can be."""
        if not self.bytes_per_second > 0.0:
            raise InvalidInputError("bytes_per_second", f"must be above 0, not {self.bytes_per_second!r}")
        for name in (
            "latency_seconds",
            "network_joules_per_bit",
            "sender_joules_per_bit",
            "receiver_joules_per_bit",
        ):
            value = getattr(self, name)
            if not 0.0 <= value < float("inf"):
                raise InvalidInputError(name, f"must be finite and not negative, not {value!r}")


DEFAULT_LINKS: Mapping[LinkClass, Link] = {
    LinkClass.NODE: Link(200e9, 0.5e-3, 1e-11, 5e-12, 5e-12),
    LinkClass.RACK: Link(40e9, 1e-3, 7e-11, 7e-11, 7e-11),
    LinkClass.REGION: Link(5e9, 5e-3, 3.5e-10, 3e-10, 3e-10),
    LinkClass.WAN: Link(1.25e9, 0.15, 5e-8, 3e-10, 3e-10),
}

DEFAULT_TIERS: Mapping[Tier, Link] = {
    Tier.CPU: Link(25e9, 1e-3, 3.5e-11, 2e-11, 5e-12),
    Tier.DISK: Link(6e9, 5e-3, 3.5e-11, 2.3e-10, 2.5e-11),
}
"""The sender is the tier, the network the bus."""


@dataclass(frozen=True, slots=True)
class Links:
    """Every way there is. A class that is left out is not used."""

    between: Mapping[LinkClass, Link] = field(default_factory=lambda: dict(DEFAULT_LINKS))
    tiers: Mapping[Tier, Link] = field(default_factory=lambda: dict(DEFAULT_TIERS))


@dataclass(frozen=True, slots=True)
class Place:
    """Where an endpoint runs; None: unknown, which is never equal to another unknown."""

    node: str | None = None
    rack: str | None = None
    region: str | None = None


def link_class(a: Place, b: Place) -> LinkClass | None:
    """The nearest class that the places are known to share; None where nobody knows the region of one of them."""
    if a.node is not None and a.node == b.node:
        return LinkClass.NODE
    if a.region is None or b.region is None:
        return None
    if a.region != b.region:
        return LinkClass.WAN
    if a.rack is not None and a.rack == b.rack:
        return LinkClass.RACK
    return LinkClass.REGION
