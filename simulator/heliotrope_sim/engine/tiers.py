"""Tiers below the accelerators' memory: where evicted KV blocks go, and what it takes to bring them back."""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass

from heliotrope_sim.engine.kv_events import BlocksRemoved, BlocksStored, KvEvent, Medium
from heliotrope_sim.engine.sequence import KvSource


@dataclass(frozen=True, slots=True)
class TierSpec:
    """One tier: its size, and what moving a block costs in either direction."""

    source: KvSource
    medium: Medium
    capacity_blocks: int
    latency_ns: int
    """Before the first block of a load or store moves."""
    ns_per_block: int
    picojoules_per_block: int


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What a load or a store of blocks takes."""

    blocks: dict[KvSource, int]
    """Blocks by the tier that they come from or go to."""
    duration_ns: int
    picojoules: int

    @property
    def count(self) -> int:
        """Blocks altogether."""
        return sum(self.blocks.values())


class OffloadTiers:
    """Host memory and disk as caches of evicted blocks, least recently used ones evicted first.

    A block that leaves the accelerators' memory goes to the first tier, what that evicts to the next, and what the
    last one evicts is lost. A block that is loaded stays in its tier as well, so that it is not written twice.
    """

    __slots__ = ("_blocks", "_record", "specs")

    def __init__(self, specs: Ordered[TierSpec], record: Callable[[KvEvent], None] | None = None) -> None:
        """Record is told of every block that comes or goes."""
        self.specs = tuple(specs)
        self._blocks: list[OrderedDict[int, None]] = [OrderedDict() for _ in specs]
        self._record = record

    def blocks(self, tier: int) -> int:
        """Blocks in a tier."""
        return len(self._blocks[tier])

    def match(self, hashes: Ordered[int], start: int, limit: int) -> int:
        """Up to which of the leading `limit` hashes all from `start` on are in some tier."""
        for i in range(start, min(limit, len(hashes))):
            if not any(hashes[i] in blocks for blocks in self._blocks):
                return i
        return max(start, min(limit, len(hashes)))

    def load(self, hashes: Ordered[int]) -> TransferPlan:
        """Use blocks that are all in some tier; returns what loading them takes."""
        counts = [0] * len(self.specs)
        # As in the accelerators' memory, the end of a prefix is worth less than its start.
        for block in reversed(hashes):
            tier = next(i for i, blocks in enumerate(self._blocks) if block in blocks)
            self._blocks[tier].move_to_end(block)
            counts[tier] += 1
        return self._plan(counts)

    def store(self, evicted: Ordered[int]) -> TransferPlan:
        """Take in blocks that the accelerators' memory evicted, oldest first; returns what was written and that takes.

        What a tier has already is used, not written again.
        """
        counts = [0] * len(self.specs)
        moving = list(evicted)
        for tier, (spec, blocks) in enumerate(zip(self.specs, self._blocks, strict=True)):
            overflow: list[int] = []
            for block in moving:
                if block in blocks:
                    blocks.move_to_end(block)
                    continue
                if not spec.capacity_blocks:
                    overflow.append(block)
                    continue
                if len(blocks) == spec.capacity_blocks:
                    oldest, _ = blocks.popitem(last=False)
                    overflow.append(oldest)
                    self._tell(BlocksRemoved((oldest,), spec.medium))
                blocks[block] = None
                counts[tier] += 1
                self._tell(BlocksStored((block,), spec.medium))
            moving = overflow
        return self._plan(counts)

    def forget(self) -> None:
        """Drop everything; tells nobody."""
        for blocks in self._blocks:
            blocks.clear()

    def content(self) -> dict[Medium, list[int]]:
        """The blocks of every tier, oldest first."""
        return {spec.medium: list(blocks) for spec, blocks in zip(self.specs, self._blocks, strict=True)}

    def _tell(self, event: KvEvent) -> None:
        if self._record is not None:
            self._record(event)

    def _plan(self, counts: list[int]) -> TransferPlan:
        moved = [(spec, count) for spec, count in zip(self.specs, counts, strict=True) if count]
        return TransferPlan(
            blocks={spec.source: count for spec, count in moved},
            duration_ns=sum(spec.latency_ns + spec.ns_per_block * count for spec, count in moved),
            picojoules=sum(spec.picojoules_per_block * count for spec, count in moved),
        )
