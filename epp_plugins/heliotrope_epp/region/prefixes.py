"""What each region is believed to cache of a prompt: the blocks of prompts that this scheduler sent there.

A region has many engines, and its own picker sends a prompt to one that has its beginning; so what any of them was sent
counts for the region. Beliefs end after half an hour without use (T_TTL of context-is-not-free §4.1), when a region has
more blocks than are remembered, and when nobody listens there any more.
"""

from collections.abc import Sequence

from heliotrope_epp.plugins.producers.block_hashes import block_hashes, chain_seed
from heliotrope_epp.plugins.producers.prefix_index import PrefixIndex

BLOCK_BYTES = 1024
"""About 256 tokens: coarse, as regions are."""
MAX_BLOCKS = 512
"""Of one prompt; what is longer counts as not cached."""
BLOCKS_PER_REGION = 65_536
BELIEVED_S = 1800.0


class RegionPrefixes:
    """Owned by the loop's thread; bounded by regions × `BLOCKS_PER_REGION`. It holds hashes alone."""

    def __init__(self) -> None:
        self._index = PrefixIndex()

    def chain(self, model: str, cache_salt: str, prompt: bytes) -> tuple[int, ...]:
        """The whole blocks of a prompt; its last, shorter one changes with every turn."""
        whole = len(prompt) // BLOCK_BYTES * BLOCK_BYTES
        return tuple(block_hashes(prompt[:whole], BLOCK_BYTES, MAX_BLOCKS, chain_seed(model, cache_salt)))

    def cached_shares(
        self, chain: Sequence[int], prompt_bytes: int, names: Sequence[str], now_s: float
    ) -> Sequence[float]:
        """Share of the prompt's bytes that each region caches, in [0, 1)."""
        if not chain:
            return [0.0] * len(names)
        runs = self._index.leading_runs(chain, names)
        used = self._index.last_used_s(chain, runs, names)
        return [
            run * BLOCK_BYTES / prompt_bytes if run and now_s - at_s <= BELIEVED_S else 0.0
            for run, at_s in zip(runs, used, strict=True)
        ]

    def sent(self, chain: Sequence[int], region: str, now_s: float) -> None:
        """A region is about to compute this prompt."""
        if chain:
            self._index.add(chain, region, BLOCKS_PER_REGION, now_s)

    def forget(self, region: str) -> None:
        """Its engines are gone."""
        self._index.forget(region)

    @property
    def blocks(self) -> int:
        """Remembered in all regions."""
        return sum(self._index.stats().blocks.values())
