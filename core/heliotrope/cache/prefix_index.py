"""Which blocks engines say they cache, by endpoint and tier.

An engine names its blocks by hashes that mean nothing outside it; what they hold is told once, when a block is stored.
So every block has two names here: the engine's, by which it is removed, and the content's, a hash of its tokens behind
those of the blocks before it, by which prompts are matched. Salts are part of the first block's content.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heliotrope.cache.links import Tier

BYTES_PER_BLOCK = 250
"""Of this index for one block, both names and their tables."""
DEFAULT_MAX_BYTES = 256 * 1024 * 1024

_BITS = {Tier.ACCELERATOR: 1, Tier.CPU: 2, Tier.DISK: 4}
_OWN = _BITS[Tier.ACCELERATOR]


@dataclass(frozen=True, slots=True)
class EngineIndexStats:
    """Counts, without hashes."""

    blocks: dict[str, int]
    """By endpoint, in any tier."""
    dropped_total: int
    """Blocks forgotten because the index was full; their endpoints are believed to cache less than they do."""
    orphans_total: int
    """Blocks whose beginning, or whose content, nobody had told of."""


class _Endpoint:
    __slots__ = ("by_content", "by_engine")

    def __init__(self) -> None:
        self.by_engine: OrderedDict[int, int] = OrderedDict()
        self.by_content: dict[int, int] = {}
        """Tiers that hold it, as bits."""


class EngineIndex:
    """Blocks by endpoint. Memory is bounded by `max_bytes`; whoever holds most loses what it told of longest ago."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_blocks = max(max_bytes // BYTES_PER_BLOCK, 1)
        self._endpoints: dict[str, _Endpoint] = {}
        self._blocks = 0
        self._dropped = 0
        self._orphans = 0

    def content_of(self, endpoint: str, engine_hash: int) -> int | None:
        """The content's name of a block that is known there."""
        held = self._endpoints.get(endpoint)
        return None if held is None else held.by_engine.get(engine_hash)

    def stored(self, endpoint: str, engine_hashes: Sequence[int], contents: Sequence[int], tier: Tier) -> None:
        """An endpoint holds these blocks now; arguments in one order."""
        held = self._endpoints.get(endpoint)
        if held is None:
            held = self._endpoints[endpoint] = _Endpoint()
        bit = _BITS[tier]
        for engine_hash, content in zip(engine_hashes, contents, strict=True):
            if engine_hash not in held.by_engine:
                self._blocks += 1
            held.by_engine[engine_hash] = content
            held.by_engine.move_to_end(engine_hash)
            held.by_content[content] = held.by_content.get(content, 0) | bit
        while self._blocks > self._max_blocks:
            self._drop()

    def moved(self, endpoint: str, engine_hashes: Sequence[int], tier: Tier) -> None:
        """Blocks that were told of before are in another tier too; those that were not are counted as orphans."""
        held = self._endpoints.get(endpoint)
        for engine_hash in engine_hashes:
            content = None if held is None else held.by_engine.get(engine_hash)
            if held is None or content is None:
                self._orphans += 1
            else:
                held.by_content[content] = held.by_content.get(content, 0) | _BITS[tier]

    def orphaned(self, blocks: int) -> None:
        """Blocks that cannot be placed, as the block before them is not known."""
        self._orphans += blocks

    def removed(self, endpoint: str, engine_hashes: Sequence[int], tier: Tier) -> None:
        """An endpoint has dropped these blocks from a tier; unknown ones are let through."""
        held = self._endpoints.get(endpoint)
        if held is None:
            return
        for engine_hash in engine_hashes:
            content = held.by_engine.get(engine_hash)
            if content is None:
                continue
            left = held.by_content.get(content, 0) & ~_BITS[tier]
            if left:
                held.by_content[content] = left
            else:
                held.by_content.pop(content, None)
                del held.by_engine[engine_hash]
                self._blocks -= 1

    def cleared(self, endpoint: str) -> None:
        """Nothing is cached there any more, or nobody knows what is."""
        held = self._endpoints.pop(endpoint, None)
        if held is not None:
            self._blocks -= len(held.by_engine)

    def leading_runs(self, chain: Sequence[int], endpoints: Iterable[str]) -> tuple[list[int], list[int]]:
        """How many leading blocks of a chain of contents each endpoint holds: in its own memory, and in any tier.

        Found by bisection: engines drop the ends of prompts before their beginnings.
        """
        own, lower = [], []
        for key in endpoints:
            held = self._endpoints.get(key)
            blocks = {} if held is None else held.by_content
            own.append(_run(blocks, chain, _OWN))
            lower.append(_run(blocks, chain, ~0))
        return own, lower

    def stats(self) -> EngineIndexStats:
        """Sizes now."""
        blocks = {key: len(held.by_engine) for key, held in self._endpoints.items()}
        return EngineIndexStats(blocks, self._dropped, self._orphans)

    def _drop(self) -> None:
        largest = max(self._endpoints.values(), key=lambda held: len(held.by_engine))
        # One sixteenth at once makes the search for the largest cheap per block.
        for _ in range(max(len(largest.by_engine) // 16, 1)):
            _, content = largest.by_engine.popitem(last=False)
            largest.by_content.pop(content, None)
            self._blocks -= 1
            self._dropped += 1


def _run(blocks: dict[int, int], chain: Sequence[int], bits: int) -> int:
    if not chain or not blocks.get(chain[0], 0) & bits:
        return 0
    low, high = 1, len(chain)
    while low < high:
        middle = (low + high + 1) // 2
        if blocks.get(chain[middle - 1], 0) & bits:
            low = middle
        else:
            high = middle - 1
    return low
