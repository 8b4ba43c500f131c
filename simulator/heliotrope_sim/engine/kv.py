"""Paged KV memory with a prefix cache: reference-counted blocks, least recently used ones evicted first."""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Ordered

from heliotrope_sim.engine.kv_events import AllBlocksCleared, BlocksRemoved, BlocksStored, KvEvent, Medium
from heliotrope_sim.engine.sequence import Sequence


class KvMemory:
    """The KV blocks of one engine.

    A block is free, private to a sequence, or cached under the hash of its content and everything before it. A
    cached block that nobody references keeps its content until its memory is needed. Where two sequences compute
    the same block at the same time, the second keeps a private copy.
    """

    __slots__ = ("_evicted", "_free", "_idle", "_record", "_references", "block_size", "capacity_blocks")

    def __init__(
        self,
        capacity_blocks: int,
        block_size: int,
        *,
        record: Callable[[KvEvent], None] | None = None,
        evicted: list[int] | None = None,
    ) -> None:
        """Record is told of every block that is cached or no longer is; evicted blocks are appended to `evicted`."""
        self.capacity_blocks = capacity_blocks
        self.block_size = block_size
        self._free = capacity_blocks
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._record = record
        self._evicted = evicted

    @property
    def used_blocks(self) -> int:
        """Blocks that a sequence holds."""
        return self.capacity_blocks - self._free - len(self._idle)

    @property
    def cached_blocks(self) -> int:
        """Blocks that the prefix cache can serve, referenced or not."""
        return len(self._references) + len(self._idle)

    def content(self) -> set[int]:
        """The hashes of the cached blocks."""
        return self._references.keys() | self._idle.keys()

    def match(self, hashes: Ordered[int], limit: int) -> int:
        """How many of the leading `limit` hashes are cached."""
        references, idle = self._references, self._idle
        for i in range(min(limit, len(hashes))):
            if hashes[i] not in references and hashes[i] not in idle:
                return i
        return min(limit, len(hashes))

    def admit(self, sequence: Sequence, matched: int, blocks: int) -> bool:
        """Give a sequence that holds nothing `blocks` blocks, the first `matched` of them from the cache.

        Returns:
            Whether they fit; if not, nothing changed.
        """
        hashes = sequence.request.block_hashes
        revived = sum(1 for i in range(matched) if hashes[i] in self._idle)
        if blocks - matched > self._free + len(self._idle) - revived:
            return False
        for i in range(matched):
            self._reference(hashes[i])
        sequence.shared_blocks = list(hashes[:matched])
        sequence.hashed_blocks = matched
        self._take(blocks - matched)
        sequence.private_blocks = blocks - matched
        return True

    def grow(self, sequence: Sequence) -> bool:
        """Give a sequence one more private block, if there is one to give."""
        if not self._free and not self._idle:
            return False
        self._take(1)
        sequence.private_blocks += 1
        return True

    def publish(self, sequence: Sequence) -> None:
        """Offer the sequence's newly filled blocks to the prefix cache."""
        hashes = sequence.request.block_hashes
        full = min(sequence.computed // self.block_size, len(hashes))
        for i in range(sequence.hashed_blocks, full):
            block = hashes[i]
            if block not in self._references and block not in self._idle:
                self._references[block] = 1
                sequence.shared_blocks.append(block)
                sequence.private_blocks -= 1
        if self._record is not None and full > sequence.hashed_blocks:
            # As in vLLM, what another has cached meanwhile is told again.
            stored = tuple(hashes[sequence.hashed_blocks : full])
            self._record(BlocksStored(stored, Medium.GPU, sequence.request, sequence.hashed_blocks))
        sequence.hashed_blocks = max(full, sequence.hashed_blocks)

    def release(self, sequence: Sequence) -> None:
        """Take everything from a sequence; what it cached stays until its memory is needed."""
        # The end of a prefix is worth less than its start, so it goes first into the queue of eviction.
        for block in reversed(sequence.shared_blocks):
            count = self._references[block] - 1
            if count:
                self._references[block] = count
            else:
                del self._references[block]
                self._idle[block] = None
        self._free += sequence.private_blocks
        sequence.shared_blocks = []
        sequence.private_blocks = 0
        sequence.hashed_blocks = 0

    def forget(self) -> None:
        """Drop every cached block that nobody references."""
        if self._record is not None:
            if self._references:
                for block in self._idle:
                    self._record(BlocksRemoved((block,), Medium.GPU))
            else:
                self._record(AllBlocksCleared())
        self._free += len(self._idle)
        self._idle.clear()

    def _reference(self, block: int) -> None:
        count = self._references.get(block, 0)
        if not count:
            del self._idle[block]
        self._references[block] = count + 1

    def _take(self, blocks: int) -> None:
        from_free = min(blocks, self._free)
        self._free -= from_free
        for _ in range(blocks - from_free):
            block, _ = self._idle.popitem(last=False)
            if self._record is not None:
                self._record(BlocksRemoved((block,), Medium.GPU))
            if self._evicted is not None:
                self._evicted.append(block)
