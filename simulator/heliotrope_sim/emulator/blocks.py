"""The KV blocks of a sequence and their hashes, chained and computed as vLLM 0.32 does by default (`sha256`).

A block's hash is SHA-256 over the pickled (hash of the block before, tokens, extra keys); the first block follows the
hash of a seed. Equal hashes mean equal blocks behind equal beginnings, in every engine of one seed and block size.
Outside the engine a hash is known by its last 64 bits.
"""

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliotrope_sim.emulator.tokens import Tokens

DEFAULT_HASH_SEED = "vllm-none-hash"
"""vLLM's, where PYTHONHASHSEED is not set."""
PICKLE_PROTOCOL = 5
EXTERNAL_BYTES = 8

ExtraKeys = tuple[tuple[str | int, ...], ...]


@dataclass(frozen=True, slots=True)
class PromptImage:
    """Where an image stands in a prompt."""

    identifier: str
    """What equal images have in common."""
    start: int
    """Its first token."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter."""

    name: str
    adapter_id: int
    path: str


class BlockChain(list[int]):
    """The hashes of a sequence's full blocks, as the engine sees them, with what they were made of."""

    __slots__ = ("adapter", "block_size", "extra_keys", "tokens")

    def __init__(
        self,
        prompt: Tokens,
        output: Tokens,
        block_size: int,
        *,
        seed: str = DEFAULT_HASH_SEED,
        salt: str | None = None,
        images: Sequence[PromptImage] = (),
        adapter: Adapter | None = None,
    ) -> None:
        """Hash a sequence.

        Args:
            prompt: its first tokens.
            output: those that follow.
            block_size: tokens per block.
            seed: engines of another seed share no hashes.
            salt: the request's `cache_salt`; sequences of different salts share nothing.
            images: the prompt's images in their order.
            adapter: the one that the request is for.
        """
        self.tokens = np.concatenate([prompt, output])
        self.block_size = block_size
        self.adapter = adapter
        blocks = len(self.tokens) // block_size
        self.extra_keys: list[ExtraKeys | None] = [None] * blocks
        # Most prompts have none, and many blocks.
        if salt or images or adapter is not None:
            self.extra_keys = [
                _extra_keys(i * block_size, (i + 1) * block_size, salt, images, adapter) for i in range(blocks)
            ]
        super().__init__(self._hashes(seed))

    def token_ids(self, first_block: int, blocks: int) -> list[int]:
        """The tokens of some of its blocks."""
        ids: list[int] = self.tokens[first_block * self.block_size : (first_block + blocks) * self.block_size].tolist()
        return ids

    def _hashes(self, seed: str) -> list[int]:
        ids, size = self.tokens.tolist(), self.block_size
        digest = _digest(seed)
        hashes = []
        for i, keys in enumerate(self.extra_keys):
            digest = _digest((digest, tuple(ids[i * size : (i + 1) * size]), keys))
            hashes.append(int.from_bytes(digest[-EXTERNAL_BYTES:], "big"))
        return hashes


def _digest(content: object) -> bytes:
    return hashlib.sha256(pickle.dumps(content, protocol=PICKLE_PROTOCOL)).digest()


def _extra_keys(
    start: int, stop: int, salt: str | None, images: Sequence[PromptImage], adapter: Adapter | None
) -> ExtraKeys | None:
    """What tells a block from another of the same tokens; None if nothing does."""
    keys: list[tuple[str | int, ...]] = []
    if adapter is not None:
        keys.append(("lora", adapter.name, adapter.path))
    keys += [
        ("mm", image.identifier, image.start - start)
        for image in images
        if image.start < stop and image.start + image.tokens > start
    ]
    if start == 0 and salt:
        keys.append(("cache_salt", salt))
    return tuple(keys) if keys else None
