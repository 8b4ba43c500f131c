"""What happens to an engine's cached KV blocks, as events from which its content can be rebuilt."""

from dataclasses import dataclass
from enum import StrEnum

from heliotrope_sim.engine.sequence import Request


class Medium(StrEnum):
    """Where a block is; the names of vLLM's events."""

    GPU = "GPU"
    CPU = "CPU"
    STORAGE = "STORAGE"


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks that can be found from now on."""

    hashes: tuple[int, ...]
    medium: Medium
    request: Request | None = None
    """Whose blocks they are; None where that is forgotten, as in the tiers below the accelerators' memory."""
    first_block: int = 0
    """Where in the request they begin."""


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks that can no longer be found on a medium."""

    hashes: tuple[int, ...]
    medium: Medium


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is cached any more, on any medium."""


KvEvent = BlocksStored | BlocksRemoved | AllBlocksCleared
