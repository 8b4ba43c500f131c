"""KV events on the wire, read by the structs of vLLM 0.32 and, as arrays, by those of earlier versions."""

from typing import Any

import msgspec
import numpy as np
import pytest

from heliotrope_sim.emulator.blocks import Adapter, BlockChain, PromptImage
from heliotrope_sim.emulator.kv_event_wire import BatchEncoder
from heliotrope_sim.engine import AllBlocksCleared, BlocksRemoved, BlocksStored, KvEvent, Medium, Request

TOKENS = np.arange(12, dtype="<u4")
NOTHING = TOKENS[:0]


class VllmBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """`EventBatch` of vllm/distributed/kv_events.py."""

    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class BlockStored(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class Cleared(msgspec.Struct, omit_defaults=True, gc=False, tag="AllBlocksCleared"):
    pass


class VllmKvBatch(VllmBatch):
    events: list[BlockStored | BlockRemoved | Cleared]


def request(chain: BlockChain) -> Request:
    return Request("r", len(chain.tokens), 1, chain)


def read(*events: KvEvent) -> list[BlockStored | BlockRemoved | Cleared]:
    payload = BatchEncoder(arrays=False, data_parallel_rank=3).payload(events, 12.5)
    batch = msgspec.msgpack.decode(payload, type=VllmKvBatch)
    assert (batch.ts, batch.data_parallel_rank) == (12.5, 3)
    # What vLLM would write of what it read is what came.
    assert msgspec.msgpack.encode(batch) == payload
    return batch.events


def test_stored_blocks_come_with_their_parent_and_tokens() -> None:
    chain = BlockChain(TOKENS, NOTHING, 4)
    first, rest = read(
        BlocksStored(tuple(chain[:1]), Medium.GPU, request(chain), 0),
        BlocksStored(tuple(chain[1:]), Medium.GPU, request(chain), 1),
    )
    assert first == BlockStored([chain[0]], None, [0, 1, 2, 3], 4, None, "GPU", None, [None], 0, "full_attention")
    assert rest == BlockStored(
        chain[1:], chain[0], [4, 5, 6, 7, 8, 9, 10, 11], 4, None, "GPU", None, [None, None], 0, "full_attention"
    )


def test_extra_keys_are_untagged_and_images_have_their_place() -> None:
    chain = BlockChain(
        TOKENS,
        NOTHING,
        4,
        salt="tenant",
        images=[PromptImage("img", 3, 3)],
        adapter=Adapter("lora-a", 7, "/adapters/a"),
    )
    (stored,) = read(BlocksStored(tuple(chain), Medium.GPU, request(chain), 0))
    assert isinstance(stored, BlockStored)
    assert (stored.lora_id, stored.lora_name) == (7, "lora-a")
    assert stored.extra_keys == [("lora-a", ["img", 3], "tenant"), ("lora-a", ["img", -1]), ("lora-a",)]


@pytest.mark.parametrize("medium", [Medium.CPU, Medium.STORAGE])
def test_tiers_tell_hashes_alone(medium: Medium) -> None:
    assert read(BlocksStored((5,), medium), BlocksRemoved((6,), medium)) == [
        BlockStored([5], None, [], 0, None, medium.value, None, None, 0),
        BlockRemoved([6], medium.value, 0),
    ]


def test_maps_are_tagged_with_their_type() -> None:
    payload = BatchEncoder(arrays=False, data_parallel_rank=0).payload(
        [BlocksRemoved((2**64 - 1,), Medium.GPU), AllBlocksCleared()], 1.0
    )
    assert msgspec.msgpack.decode(payload) == [
        1.0,
        [
            {"type": "BlockRemoved", "block_hashes": [2**64 - 1], "medium": "GPU", "group_idx": 0},
            {"type": "AllBlocksCleared"},
        ],
        0,
    ]


def test_arrays_begin_with_their_type() -> None:
    chain = BlockChain(TOKENS, NOTHING, 4, salt="s")
    payload = BatchEncoder(arrays=True, data_parallel_rank=0).payload(
        [
            BlocksStored(tuple(chain[:2]), Medium.GPU, request(chain), 0),
            BlocksRemoved((6,), Medium.CPU),
            AllBlocksCleared(),
        ],
        1.0,
    )
    assert msgspec.msgpack.decode(payload)[1] == [
        [
            "BlockStored",
            chain[:2],
            None,
            [0, 1, 2, 3, 4, 5, 6, 7],
            4,
            None,
            "GPU",
            None,
            [["s"], None],
            0,
            "full_attention",
        ],
        ["BlockRemoved", [6], "CPU", 0],
        ["AllBlocksCleared"],
    ]
