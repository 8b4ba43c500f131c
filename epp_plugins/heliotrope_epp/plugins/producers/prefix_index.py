"""Which blocks of prompts each endpoint is believed to cache, forgotten least recently used first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

EVICTION_SHARE = 16
"""One sixteenth of a full endpoint's blocks goes at once, which makes eviction cheap per block."""


class EndpointBlocks:
    """The blocks of one endpoint.

    A chain is touched from its end, so that a block is always newer than the blocks that follow it. Eviction thus
    takes ends of prompts first, as engines do, and whoever holds a block holds all blocks before it: the leading run
    of a chain can be found by bisection.
    """

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, float] = {}
        """When each was last used."""

    def __len__(self) -> int:
        return len(self.blocks)

    def leading_run(self, chain: Sequence[int], guess: int = 0) -> int:
        """How many blocks from the start of the chain are here; a right guess is confirmed by two looks."""
        blocks = self.blocks
        if not chain or chain[0] not in blocks:
            return 0
        low, high = 1, len(chain)
        if guess:
            if chain[guess - 1] in blocks:
                if guess == high or chain[guess] not in blocks:
                    return guess
                low = guess
            else:
                high = guess - 1
        while low < high:
            middle = (low + high + 1) // 2
            if chain[middle - 1] in blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def used_s(self, block: int) -> float:
        """When a block that is here was last used."""
        return self.blocks[block]

    def touch(self, chain: Sequence[int], capacity: int, now_s: float = 0.0) -> int:
        """Make the chain the newest, of which at most `capacity` blocks are kept.

        Returns:
            How many blocks were evicted.
        """
        blocks = self.blocks
        for block in reversed(chain[:capacity]):
            blocks.pop(block, None)
            blocks[block] = now_s
        if len(blocks) <= capacity:
            return 0
        surplus = len(blocks) - capacity + capacity // EVICTION_SHARE
        for block in list(islice(blocks, surplus)):
            del blocks[block]
        return surplus


@dataclass(frozen=True, slots=True)
class PrefixIndexStats:
    """The state of an index, without hashes."""

    blocks: dict[str, int]
    """By endpoint."""
    evicted_total: int
    """Blocks dropped because an endpoint was full."""
    lower_blocks: int = 0
    """In all tiers below the engines' own memory."""


class PrefixIndex:
    """Blocks by endpoint. Memory is bounded by the number of endpoints times their capacity."""

    def __init__(self) -> None:
        self._endpoints: dict[str, EndpointBlocks] = {}
        self._evicted_total = 0

    def __len__(self) -> int:
        """Endpoints that something is known of."""
        return len(self._endpoints)

    def leading_runs(self, chain: Sequence[int], endpoints: Iterable[str]) -> list[int]:
        """How many leading blocks of the chain each endpoint holds: O(log blocks) each, O(1) where it holds none."""
        known = self._endpoints
        first = chain[0] if chain else None
        runs, guess = [], 0
        for key in endpoints:
            held = known.get(key)
            if held is None or first not in held.blocks:
                runs.append(0)
                continue
            # Prompts with a common beginning leave off at the same block, wherever they were sent.
            guess = held.leading_run(chain, guess)
            runs.append(guess)
        return runs

    def last_used_s(self, chain: Sequence[int], runs: Sequence[int], endpoints: Iterable[str]) -> list[float]:
        """When the last block of each leading run was used there, 0 where there is no run.

        The blocks before it were used then or later.
        """
        known = self._endpoints
        return [known[key].used_s(chain[run - 1]) if run else 0.0 for key, run in zip(endpoints, runs, strict=True)]

    def add(self, chain: Sequence[int], endpoint: str, capacity: int, now_s: float = 0.0) -> None:
        """The endpoint now caches this chain; it holds at most `capacity` blocks."""
        held = self._endpoints.get(endpoint)
        if held is None:
            held = self._endpoints[endpoint] = EndpointBlocks()
        self._evicted_total += held.touch(chain, capacity, now_s)

    def forget(self, endpoint: str) -> None:
        """The endpoint is gone, or its cache is."""
        self._endpoints.pop(endpoint, None)

    def stats(self) -> PrefixIndexStats:
        """Sizes now."""
        return PrefixIndexStats({key: len(held) for key, held in self._endpoints.items()}, self._evicted_total)
