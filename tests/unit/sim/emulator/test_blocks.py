"""Block hashes are vLLM's: chained, and told apart by seed, salt, adapter and images."""

import hashlib
import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope_sim.emulator.blocks import Adapter, BlockChain, PromptImage
from heliotrope_sim.emulator.tokens import tokenize

NOTHING = tokenize("")
TOKENS = tokenize("x" * 4 * 16 * 3)


def test_hashes_are_chained_and_the_same_in_every_process() -> None:
    hashes = BlockChain(TOKENS, NOTHING, 16)
    # Three equal blocks in different places are different content.
    assert len(set(hashes)) == 3
    other = TOKENS.copy()
    other[0] += 1
    assert not set(BlockChain(other, NOTHING, 16)) & set(hashes)
    assert hashes[0] == 1792353908836057807
    assert all(0 <= h < 2**64 for h in hashes)


def test_a_hash_is_what_vllm_computes() -> None:
    # vllm/v1/core/kv_cache_utils.py: hash_block_tokens and init_none_hash with sha256, maybe_convert_block_hash.
    def sha256(content: object) -> bytes:
        return hashlib.sha256(pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)).digest()

    ids = [5, 900, 17, 3, 44, 2, 8, 1]
    first = sha256((sha256("vllm-none-hash"), (5, 900, 17, 3), (("cache_salt", "tenant"),)))
    second = sha256((first, (44, 2, 8, 1), None))
    expected = [int.from_bytes(h, "big") & ((1 << 64) - 1) for h in (first, second)]
    assert BlockChain(np.array(ids, dtype="<u4"), NOTHING, 4, salt="tenant") == expected


def test_seed_salt_adapter_and_images_tell_hashes_apart() -> None:
    lora = Adapter("a", 1, "/adapters/a")
    chains = [
        BlockChain(TOKENS, NOTHING, 16),
        BlockChain(TOKENS, NOTHING, 16, seed="other"),
        BlockChain(TOKENS, NOTHING, 16, salt="tenant"),
        BlockChain(TOKENS, NOTHING, 16, adapter=lora),
        BlockChain(TOKENS, NOTHING, 16, images=[PromptImage("img", 3, 4)]),
        BlockChain(TOKENS, NOTHING, 16, images=[PromptImage("img", 4, 4)]),
    ]
    for i, one in enumerate(chains):
        for other in chains[i + 1 :]:
            assert not set(one) & set(other)
    assert chains[2].extra_keys == [(("cache_salt", "tenant"),), None, None]
    assert chains[3].extra_keys == [(("lora", "a", "/adapters/a"),)] * 3


def test_an_image_marks_the_blocks_that_it_is_in_with_its_place() -> None:
    chain = BlockChain(TOKENS, NOTHING, 16, images=[PromptImage("one", 10, 10), PromptImage("two", 32, 1)])
    assert chain.extra_keys == [(("mm", "one", 10),), (("mm", "one", -6),), (("mm", "two", 0),)]
    later = BlockChain(TOKENS, NOTHING, 16, images=[PromptImage("two", 32, 1)])
    plain = BlockChain(TOKENS, NOTHING, 16)
    assert later[:2] == plain[:2]
    assert later[2] != plain[2]


@settings(deadline=None)
@given(
    shared=st.lists(st.integers(0, 2**32 - 1), max_size=60),
    a=st.lists(st.integers(0, 2**32 - 1), max_size=20),
    b=st.lists(st.integers(0, 2**32 - 1), max_size=20),
    size=st.integers(1, 8),
)
def test_equal_beginnings_have_equal_hashes_and_no_others(
    shared: list[int], a: list[int], b: list[int], size: int
) -> None:
    one, two = (BlockChain(np.array(shared, "<u4"), np.array(tail, "<u4"), size) for tail in (a, b))
    common = 0
    for x, y in zip(shared + a, shared + b, strict=False):
        if x != y:
            break
        common += 1
    assert len(one) == len(shared + a) // size
    for i, (x, y) in enumerate(zip(one, two, strict=False)):
        assert (x == y) is ((i + 1) * size <= common)
    assert one.token_ids(0, len(one)) == (shared + a)[: len(one) * size]
