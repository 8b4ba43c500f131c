"""Compiled: how sequences join and leave an engine's batch, and what they are charged meanwhile."""

import numpy as np

from heliotrope.compiled import compiled, inner
from heliotrope_sim.fleet.blocks import release
from heliotrope_sim.fleet.layout import (
    BATCH,
    BLOCK_SIZE,
    COMPUTED,
    DECODE_HEAD,
    DECODE_PER_CACHED,
    DECODE_TAIL,
    DECODES,
    DRAWN,
    FINISHED,
    FINISHING,
    FIRST_TOKEN,
    GENERATED,
    HELD_UNTIL,
    HOLD_HEAD,
    HOLD_NS,
    JOINED_AT,
    JOINED_SHARES,
    JOINS,
    KV_TOKENS,
    NEWCOMERS,
    NEXT,
    NOBODY,
    OUTPUT,
    OUTPUTS_SHARED,
    PREEMPTIONS,
    PROMPT,
    ROW,
    SETTLED,
    SHARES,
    WAIT_COUNT,
    WAIT_TOKENS,
    Fleet,
)
from heliotrope_sim.fleet.queues import (
    JOIN_BITS,
    JOIN_MASK,
    append_decode,
    drop_finish,
    enqueue_first,
    hold,
    pop_finish,
    push_finish,
    unlink,
)


@compiled
def settle_member(fleet: Fleet, e: int, r: int) -> None:
    """Write into a sequence of the batch what it has generated and drawn up to the last decode step."""
    engines, requests = fleet.engines, fleet.requests
    steps = engines[e, DECODES] - requests[r, JOINED_AT]
    computed = requests[r, COMPUTED]
    per_cached = fleet.charges[engines[e, ROW], DECODE_PER_CACHED]
    requests[r, DRAWN] += (
        engines[e, SHARES] - requests[r, JOINED_SHARES] + per_cached * (steps * computed + steps * (steps - 1) // 2)
    )
    requests[r, COMPUTED] = computed + steps
    requests[r, GENERATED] += steps
    requests[r, JOINED_AT] = engines[e, DECODES]
    requests[r, JOINED_SHARES] = engines[e, SHARES]


@inner
def residue(fleet: Fleet, e: int, r: int) -> int:
    """What `DECODES` leaves, divided by the block size, when the sequence starts a block."""
    block_size = fleet.charges[fleet.engines[e, ROW], BLOCK_SIZE]
    return (fleet.requests[r, JOINED_AT] - fleet.requests[r, COMPUTED]) % block_size  # type: ignore[no-any-return]


@inner
def shares_output(fleet: Fleet, e: int, r: int) -> bool:
    """Whether decoding fills blocks that have a hash."""
    if len(fleet.offsets) == 1:
        return False
    block_size = fleet.charges[fleet.engines[e, ROW], BLOCK_SIZE]
    return fleet.offsets[r + 1] - fleet.offsets[r] > fleet.requests[r, PROMPT] // block_size  # type: ignore[no-any-return]


@inner
def join(fleet: Fleet, e: int, r: int) -> None:
    """Let a sequence decode; `COMPUTED` and `GENERATED` are up to date."""
    engines, requests = fleet.engines, fleet.requests
    decodes = engines[e, DECODES]
    requests[r, JOINED_AT] = decodes
    requests[r, JOINED_SHARES] = engines[e, SHARES]
    append_decode(fleet, e, r)
    engines[e, BATCH] += 1
    engines[e, KV_TOKENS] += requests[r, COMPUTED]
    fleet.residues[e, residue(fleet, e, r)] += 1
    engines[e, OUTPUTS_SHARED] += shares_output(fleet, e, r)
    order = engines[e, JOINS] & JOIN_MASK
    engines[e, JOINS] += 1
    last = decodes + requests[r, OUTPUT] - requests[r, GENERATED]
    push_finish(fleet, e, (last << JOIN_BITS) | order, r)


@inner
def leave(fleet: Fleet, e: int, r: int) -> None:
    """Take a sequence out of the batch, but not out of the heap."""
    engines = fleet.engines
    settle_member(fleet, e, r)
    unlink(fleet, e, r, DECODE_HEAD, DECODE_TAIL)
    engines[e, BATCH] -= 1
    engines[e, KV_TOKENS] -= fleet.requests[r, COMPUTED]
    fleet.residues[e, residue(fleet, e, r)] -= 1
    engines[e, OUTPUTS_SHARED] -= shares_output(fleet, e, r)


@inner
def retire(fleet: Fleet, e: int, ended: np.ndarray, endings: int) -> int:
    """Let go of what the last step finished; appends to `ended` what goes on elsewhere, returns its new length."""
    engines, requests = fleet.engines, fleet.requests
    while engines[e, FINISHING] and fleet.heap[e, 0, 0] >> JOIN_BITS <= engines[e, DECODES]:
        r = pop_finish(fleet, e)
        leave(fleet, e, r)
        requests[r, FINISHED] = engines[e, SETTLED]
        if requests[r, HOLD_NS] < 0:
            release(fleet, e, r, requests[r, COMPUTED])
        else:
            requests[r, HELD_UNTIL] = engines[e, SETTLED] + requests[r, HOLD_NS]
            hold(fleet, e, r)
            ended[endings] = r
            endings += 1
    return endings


@inner
def expire_holds(fleet: Fleet, e: int, now: int) -> None:
    """Let go of blocks that others have read."""
    engines, requests = fleet.engines, fleet.requests
    r = engines[e, HOLD_HEAD]
    while r != NOBODY and requests[r, HELD_UNTIL] <= now:
        engines[e, HOLD_HEAD] = requests[r, NEXT]
        release(fleet, e, r, requests[r, COMPUTED])
        r = engines[e, HOLD_HEAD]


@inner
def preempt_newest(fleet: Fleet, e: int) -> int:
    """Send the newest sequence of the batch back to the front of the queue; returns it."""
    engines, requests = fleet.engines, fleet.requests
    r = engines[e, DECODE_TAIL]
    drop_finish(fleet, e, r)
    leave(fleet, e, r)
    release(fleet, e, r, requests[r, COMPUTED])
    if requests[r, FIRST_TOKEN] < 0:
        engines[e, NEWCOMERS] -= 1
    requests[r, COMPUTED] = 0
    requests[r, PREEMPTIONS] += 1
    enqueue_first(fleet, e, r)
    engines[e, WAIT_COUNT] += 1
    engines[e, WAIT_TOKENS] += requests[r, PROMPT] + requests[r, GENERATED]
    return r  # type: ignore[no-any-return]
