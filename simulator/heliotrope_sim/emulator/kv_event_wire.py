"""KV events in the encoding of vLLM 0.32 (`vllm/distributed/kv_events.py`): msgpack of tagged structs.

A batch is an array of time, events and rank. An event is a map with the key `type`, or, as earlier versions wrote it,
an array that begins with the type; trailing fields without a value are left out.
"""

from collections.abc import Callable, Iterable

import msgspec

from heliotrope_sim.emulator.blocks import BlockChain
from heliotrope_sim.engine import AllBlocksCleared, BlocksRemoved, BlocksStored, KvEvent

GROUP = 0
SPEC_KIND = "full_attention"
"""The one KV cache group of a model with full attention everywhere."""


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one message holds."""

    ts: float
    """Seconds since the epoch."""
    events: list[msgspec.Struct]
    data_parallel_rank: int | None = None


class StoredMap(msgspec.Struct, omit_defaults=True, gc=False, tag="BlockStored"):
    """Blocks that can be found from now on."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str | tuple[str | int, ...], ...] | None] | None = None
    """By block, without the names of their kinds."""
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class RemovedMap(msgspec.Struct, omit_defaults=True, gc=False, tag="BlockRemoved"):
    """Blocks that can no longer be found on a medium."""

    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class ClearedMap(msgspec.Struct, omit_defaults=True, gc=False, tag="AllBlocksCleared"):
    """Nothing is cached any more."""


class StoredArray(StoredMap, array_like=True, omit_defaults=True, gc=False, tag="BlockStored"):
    """The same as an array."""


class RemovedArray(RemovedMap, array_like=True, omit_defaults=True, gc=False, tag="BlockRemoved"):
    """The same as an array."""


class ClearedArray(ClearedMap, array_like=True, omit_defaults=True, gc=False, tag="AllBlocksCleared"):
    """The same as an array."""


class BatchEncoder:
    """Turns an engine's events into the payload of a message."""

    __slots__ = ("_cleared", "_encode", "_rank", "_removed", "_stored")

    def __init__(self, *, arrays: bool, data_parallel_rank: int) -> None:
        self._stored: Callable[..., StoredMap] = StoredArray if arrays else StoredMap
        self._removed: Callable[..., RemovedMap] = RemovedArray if arrays else RemovedMap
        self._cleared: Callable[[], ClearedMap] = ClearedArray if arrays else ClearedMap
        self._rank = data_parallel_rank
        self._encode = msgspec.msgpack.Encoder().encode

    def payload(self, events: Iterable[KvEvent], time_seconds: float) -> bytes:
        """One batch at a time since the epoch."""
        return self._encode(EventBatch(time_seconds, [self._struct(event) for event in events], self._rank))

    def _struct(self, event: KvEvent) -> msgspec.Struct:
        if isinstance(event, BlocksStored):
            return self._stored_blocks(event)
        if isinstance(event, BlocksRemoved):
            return self._removed(list(event.hashes), event.medium.value, GROUP)
        assert isinstance(event, AllBlocksCleared)
        return self._cleared()

    def _stored_blocks(self, event: BlocksStored) -> StoredMap:
        chain = None if event.request is None else event.request.block_hashes
        first, count = event.first_block, len(event.hashes)
        if not isinstance(chain, BlockChain):
            # Below the accelerators' memory the tokens are forgotten, as in vLLM's offloading connector.
            return self._stored(list(event.hashes), None, [], 0, None, event.medium.value, None, None, GROUP)
        adapter = chain.adapter
        return self._stored(
            block_hashes=list(event.hashes),
            parent_block_hash=chain[first - 1] if first else None,
            token_ids=chain.token_ids(first, count),
            block_size=chain.block_size,
            lora_id=None if adapter is None else adapter.adapter_id,
            medium=event.medium.value,
            lora_name=None if adapter is None else adapter.name,
            extra_keys=[
                None if keys is None else tuple(key[1:] if key[0] == "mm" else str(key[1]) for key in keys)
                for keys in chain.extra_keys[first : first + count]
            ],
            group_idx=GROUP,
            kv_cache_spec_kind=SPEC_KIND,
        )
