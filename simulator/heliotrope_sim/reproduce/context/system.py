"""What a replay is set to: the paper's defaults, its sensitivity grids, and what it leaves out."""

from dataclasses import dataclass, field

from heliotrope.cache.ccar import TokenRatios
from heliotrope.cache.links import DEFAULT_LINKS, Link, LinkClass


@dataclass(frozen=True, slots=True)
class Transfers:
    """KV blocks of a session may be pulled to another deployment of the same model."""

    wan: Link = DEFAULT_LINKS[LinkClass.WAN]
    region: Link = DEFAULT_LINKS[LinkClass.REGION]
    """Between two GPU types of one region."""


@dataclass(frozen=True, slots=True)
class System:
    """Constants of a replay; the defaults are §4.1's."""

    ratios: TokenRatios = field(default_factory=TokenRatios)
    quality_share: float = 0.85
    """β_Q: of the best model's quality, which a turn requires."""
    ttft_bound_seconds: float = 5.0
    ttl_seconds: float = 1_800.0
    capacity: float = 0.5
    """c: sessions that a region holds, over the peak of active ones."""
    sessions_per_replica: float | None = None
    """None: turns never wait. Else a deployment has a replica per so many sessions of its pool, each prefills one turn
    after the other, and the wait counts in TTFT."""
    transfers: Transfers | None = None
    """None: a history is cached or recomputed, there is no third way."""
