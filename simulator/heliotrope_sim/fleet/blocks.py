"""Compiled: an engine's KV memory, with the semantics of `heliotrope_sim.engine.kv`.

Private blocks are only counted. Blocks with a hash are nodes in a table of the engine; those that nobody holds form a
list from the least to the most recently used.
"""

from heliotrope.compiled import compiled, inner
from heliotrope_sim.fleet.layout import (
    ADMITTED_BLOCKS,
    BLOCK_SIZE,
    CHAIN,
    FREE_BLOCKS,
    HASHED_BLOCKS,
    HOLDERS,
    KEY,
    LRU_BEFORE,
    LRU_COUNT,
    LRU_HEAD,
    LRU_NEXT,
    LRU_TAIL,
    NOBODY,
    NODE_FREE,
    PROMPT,
    ROW,
    SHARED_BLOCKS,
    Fleet,
)


@inner
def find(fleet: Fleet, e: int, key: int) -> int:
    """The node of a hash; -1: not cached."""
    nodes = fleet.nodes
    node = fleet.buckets[e, key & (fleet.buckets.shape[1] - 1)]
    while node != NOBODY and nodes[e, node, KEY] != key:
        node = nodes[e, node, CHAIN]
    return node  # type: ignore[no-any-return]


@inner
def match(fleet: Fleet, e: int, r: int, limit: int) -> int:
    """How many of the request's leading `limit` hashes are cached."""
    if len(fleet.offsets) == 1:
        return 0
    first = fleet.offsets[r]
    count = min(limit, fleet.offsets[r + 1] - first)
    for i in range(count):
        if find(fleet, e, fleet.hashes[first + i]) == NOBODY:
            return i
    return count  # type: ignore[no-any-return]


@inner
def _lru_remove(fleet: Fleet, e: int, node: int) -> None:
    engines, nodes = fleet.engines, fleet.nodes
    before, after = nodes[e, node, LRU_BEFORE], nodes[e, node, LRU_NEXT]
    if before == NOBODY:
        engines[e, LRU_HEAD] = after
    else:
        nodes[e, before, LRU_NEXT] = after
    if after == NOBODY:
        engines[e, LRU_TAIL] = before
    else:
        nodes[e, after, LRU_BEFORE] = before
    engines[e, LRU_COUNT] -= 1


@inner
def _lru_append(fleet: Fleet, e: int, node: int) -> None:
    engines, nodes = fleet.engines, fleet.nodes
    last = engines[e, LRU_TAIL]
    nodes[e, node, LRU_BEFORE] = last
    nodes[e, node, LRU_NEXT] = NOBODY
    if last == NOBODY:
        engines[e, LRU_HEAD] = node
    else:
        nodes[e, last, LRU_NEXT] = node
    engines[e, LRU_TAIL] = node
    engines[e, LRU_COUNT] += 1


@inner
def _evict(fleet: Fleet, e: int) -> None:
    """Forget the least recently used block that nobody holds."""
    engines, nodes, buckets = fleet.engines, fleet.nodes, fleet.buckets
    node = engines[e, LRU_HEAD]
    _lru_remove(fleet, e, node)
    bucket = nodes[e, node, KEY] & (buckets.shape[1] - 1)
    other = buckets[e, bucket]
    if other == node:
        buckets[e, bucket] = nodes[e, node, CHAIN]
    else:
        while nodes[e, other, CHAIN] != node:
            other = nodes[e, other, CHAIN]
        nodes[e, other, CHAIN] = nodes[e, node, CHAIN]
    nodes[e, node, CHAIN] = engines[e, NODE_FREE]
    engines[e, NODE_FREE] = node


@inner
def take(fleet: Fleet, e: int, blocks: int) -> None:
    """Take blocks that are known to be there: free ones, then evicted ones."""
    engines = fleet.engines
    from_free = min(blocks, engines[e, FREE_BLOCKS])
    engines[e, FREE_BLOCKS] -= from_free
    for _ in range(blocks - from_free):
        _evict(fleet, e)


@inner
def available(fleet: Fleet, e: int) -> int:
    """Blocks that can be taken."""
    return fleet.engines[e, FREE_BLOCKS] + fleet.engines[e, LRU_COUNT]  # type: ignore[no-any-return]


@inner
def admit_blocks(fleet: Fleet, e: int, r: int, matched: int, blocks: int) -> bool:
    """Give a request that holds nothing `blocks` blocks, the first `matched` from the cache; False: no room."""
    nodes, requests, hashes, held = fleet.nodes, fleet.requests, fleet.hashes, fleet.held
    revived = 0
    first = fleet.offsets[r] if matched else 0
    for i in range(matched):
        revived += nodes[e, find(fleet, e, hashes[first + i]), HOLDERS] == 0
    if blocks - matched > available(fleet, e) - revived:
        return False
    for i in range(matched):
        node = find(fleet, e, hashes[first + i])
        if nodes[e, node, HOLDERS] == 0:
            _lru_remove(fleet, e, node)
        nodes[e, node, HOLDERS] += 1
        held[first + i] = node
    requests[r, HASHED_BLOCKS] = matched
    requests[r, SHARED_BLOCKS] = matched
    requests[r, ADMITTED_BLOCKS] = blocks
    take(fleet, e, blocks - matched)
    return True


@inner
def publish(fleet: Fleet, e: int, r: int, computed: int) -> None:
    """Offer the request's newly filled blocks to the prefix cache; it has `computed` tokens in memory."""
    if len(fleet.offsets) == 1:
        return
    engines, nodes, buckets, requests = fleet.engines, fleet.nodes, fleet.buckets, fleet.requests
    first = fleet.offsets[r]
    block_size = fleet.charges[engines[e, ROW], BLOCK_SIZE]
    full = min(computed // block_size, fleet.offsets[r + 1] - first)
    for i in range(requests[r, HASHED_BLOCKS], full):
        key = fleet.hashes[first + i]
        if find(fleet, e, key) != NOBODY:
            # Another has computed the same block meanwhile: this copy stays private.
            continue
        node = engines[e, NODE_FREE]
        engines[e, NODE_FREE] = nodes[e, node, CHAIN]
        bucket = key & (buckets.shape[1] - 1)
        nodes[e, node, KEY] = key
        nodes[e, node, HOLDERS] = 1
        nodes[e, node, CHAIN] = buckets[e, bucket]
        buckets[e, bucket] = node
        fleet.held[first + i] = node
        requests[r, SHARED_BLOCKS] += 1
    requests[r, HASHED_BLOCKS] = max(full, requests[r, HASHED_BLOCKS])


@inner
def blocks_held(fleet: Fleet, e: int, r: int, computed: int) -> int:
    """Blocks of a request between two steps, when it has `computed` tokens in memory."""
    block_size = fleet.charges[fleet.engines[e, ROW], BLOCK_SIZE]
    return max(fleet.requests[r, ADMITTED_BLOCKS], -(-computed // block_size))  # type: ignore[no-any-return]


@inner
def release(fleet: Fleet, e: int, r: int, computed: int) -> None:
    """Take everything from a request; what it cached stays until its memory is needed."""
    engines, nodes, requests, held = fleet.engines, fleet.nodes, fleet.requests, fleet.held
    shared = requests[r, SHARED_BLOCKS]
    engines[e, FREE_BLOCKS] += blocks_held(fleet, e, r, computed) - shared
    if shared:
        first = fleet.offsets[r]
        # The end of a prefix is worth less than its start, so it goes first into the queue of eviction.
        for i in range(requests[r, HASHED_BLOCKS] - 1, -1, -1):
            node = held[first + i]
            if node == NOBODY:
                continue
            held[first + i] = NOBODY
            nodes[e, node, HOLDERS] -= 1
            if nodes[e, node, HOLDERS] == 0:
                _lru_append(fleet, e, node)
    requests[r, SHARED_BLOCKS] = 0
    requests[r, HASHED_BLOCKS] = 0
    requests[r, ADMITTED_BLOCKS] = 0


@inner
def forget(fleet: Fleet, e: int) -> None:
    """Drop every cached block that nobody holds."""
    count = fleet.engines[e, LRU_COUNT]
    for _ in range(count):
        _evict(fleet, e)
    fleet.engines[e, FREE_BLOCKS] += count


@compiled
def cached_tokens(fleet: Fleet, e: int, r: int) -> int:
    """Prompt tokens of a request that an engine need not prefill."""
    block_size = fleet.charges[fleet.engines[e, ROW], BLOCK_SIZE]
    return match(fleet, e, r, (fleet.requests[r, PROMPT] - 1) // block_size) * block_size  # type: ignore[no-any-return]
