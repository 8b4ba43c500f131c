"""Prompts as chains of block hashes: equal hashes at position i mean equal prompts up to the end of block i."""

from xxhash import xxh64_intdigest


def chain_seed(model: str, cache_salt: str) -> int:
    """Where a chain begins: prompts of different models or salts share no hash."""
    return xxh64_intdigest(_encoded(cache_salt), xxh64_intdigest(_encoded(model)))


def block_hashes(prompt: bytes, block_bytes: int, max_blocks: int | None, seed: int) -> list[int]:
    """The xxhash64 of each block, seeded with the hash of the block before it.

    Args:
        prompt: hashed in blocks of `block_bytes`; the last block may be shorter.
        block_bytes: length of a block.
        max_blocks: what is longer is left out; None: nothing is.
        seed: of the first block.
    """
    end = len(prompt) if max_blocks is None else min(len(prompt), max_blocks * block_bytes)
    hashes: list[int] = []
    previous = seed
    for start in range(0, end, block_bytes):
        previous = xxh64_intdigest(prompt[start : start + block_bytes], previous)
        hashes.append(previous)
    return hashes


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
