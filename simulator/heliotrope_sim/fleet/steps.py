"""Compiled: the steps of one engine, with the semantics of `heliotrope_sim.engine.loop`.

A step costs the same however many sequences it holds: the batch is sums, what a sequence was charged is a difference of
sums, and who ends or starts a block is known beforehand. Only what ends, joins or is preempted is touched.
"""

import numpy as np

from heliotrope.compiled import inner
from heliotrope.units import NANOSECONDS_PER_SECOND
from heliotrope_sim.fleet.blocks import admit_blocks, available, blocks_held, match, publish, take
from heliotrope_sim.fleet.layout import (
    ABOVE,
    ADMITTED_BLOCKS,
    AHEAD,
    ALPHA,
    AWAKE_NS,
    BASE,
    BATCH,
    BEFORE,
    BELOW,
    BETA,
    BLOCK_SIZE,
    BUSY_NS,
    CACHED,
    COMPUTED,
    DECODE_BASE,
    DECODE_HEAD,
    DECODE_IS_NEXT,
    DECODE_PER_CACHED,
    DECODE_PER_REQUEST,
    DECODE_PICOJOULES,
    DECODE_STEP,
    DECODE_TAIL,
    DECODES,
    DRAWN,
    FIRST_TOKEN,
    GENERATED,
    JOINED_AT,
    KNEE,
    KV_TOKENS,
    LOADED,
    MAX_SEQUENCES,
    MAX_TOKENS,
    NEWCOMERS,
    NEXT,
    NOBODY,
    OUTPUTS_SHARED,
    PER_REQUEST,
    PER_SQUARE,
    PREFILL_BASE,
    PREFILL_COUNT,
    PREFILL_DONE,
    PREFILL_HEAD,
    PREFILL_LEFT,
    PREFILL_NS,
    PREFILL_PER_SQUARE,
    PREFILL_PER_TOKEN,
    PREFILL_PICOJOULES,
    PREFILL_STEP,
    PREFILL_TAIL,
    PROMPT,
    QUEUED,
    ROW,
    SCHEDULED,
    SETTLED,
    SHARES,
    STEP_KIND,
    STEP_NS,
    STEP_PICOJOULES,
    TARGET,
    WAIT_COUNT,
    WAIT_HEAD,
    WAIT_TOKENS,
    Fleet,
)
from heliotrope_sim.fleet.members import join, preempt_newest
from heliotrope_sim.fleet.queues import append_prefill, dequeue, unlink


@inner
def _admit(fleet: Fleet, e: int, now: int) -> None:
    """First come, first served: the head of the queue is never overtaken."""
    engines, requests = fleet.engines, fleet.requests
    row = engines[e, ROW]
    block_size, limit = fleet.charges[row, BLOCK_SIZE], fleet.charges[row, MAX_SEQUENCES]
    while engines[e, WAIT_COUNT] and engines[e, BATCH] + engines[e, PREFILL_COUNT] < limit:
        r = engines[e, WAIT_HEAD]
        if requests[r, QUEUED] > now:
            return
        target = requests[r, PROMPT] + requests[r, GENERATED]
        # The last token is always computed: its output is the next token.
        matched = match(fleet, e, r, (target - 1) // block_size)
        if not admit_blocks(fleet, e, r, matched, -(-target // block_size)):
            return
        dequeue(fleet, e)
        engines[e, WAIT_COUNT] -= 1
        engines[e, WAIT_TOKENS] -= target
        computed = matched * block_size
        joins = False
        if requests[r, SCHEDULED] < 0:
            requests[r, SCHEDULED] = now
            loaded = min(requests[r, LOADED], target - 1)
            if loaded > computed:
                computed = loaded
                publish(fleet, e, r, computed)
                joins = computed == target - 1
            requests[r, CACHED] += computed
        requests[r, COMPUTED] = computed
        if joins:
            engines[e, NEWCOMERS] += 1
            engines[e, AHEAD] += computed % block_size == 0
            join(fleet, e, r)
        else:
            requests[r, TARGET] = target
            engines[e, PREFILL_COUNT] += 1
            engines[e, PREFILL_LEFT] += target - computed
            engines[e, PREFILL_DONE] += computed
            append_prefill(fleet, e, r)


@inner
def _prefill(fleet: Fleet, e: int) -> None:
    engines, requests, rates, charges = fleet.engines, fleet.requests, fleet.rates, fleet.charges
    row = engines[e, ROW]
    budget = charges[row, MAX_TOKENS]
    tokens, squares, count = 0, 0, 0
    r = engines[e, PREFILL_HEAD]
    while r != NOBODY:
        before = requests[r, COMPUTED]
        chunk = min(requests[r, TARGET] - before, budget - tokens)
        if chunk == 0:
            break
        # Attention of a chunk reads what is computed already, so that the chunks' squares add up to n².
        squares += (before + chunk) ** 2 - before**2
        tokens += chunk
        count += 1
        r = requests[r, NEXT]
    below = min(float(tokens), rates[row, KNEE])
    duration = int(
        np.rint(
            (
                rates[row, BELOW] * below
                + rates[row, ABOVE] * (tokens - below)
                + rates[row, BASE]
                + rates[row, PER_REQUEST] * count
                + rates[row, PER_SQUARE] * squares
            )
            * NANOSECONDS_PER_SECOND
        )
    )
    base, per_token = charges[row, PREFILL_BASE], charges[row, PREFILL_PER_TOKEN]
    per_square = charges[row, PREFILL_PER_SQUARE]
    share = base // count
    end = engines[e, SETTLED] + duration
    left = tokens
    r = engines[e, PREFILL_HEAD]
    requests[r, DRAWN] += base - share * count
    for _ in range(count):
        after = requests[r, NEXT]
        before = requests[r, COMPUTED]
        chunk = min(requests[r, TARGET] - before, left)
        left -= chunk
        computed = before + chunk
        requests[r, DRAWN] += share + per_token * chunk + per_square * (computed**2 - before**2)
        requests[r, COMPUTED] = computed
        publish(fleet, e, r, computed)
        if computed == requests[r, TARGET]:
            unlink(fleet, e, r, PREFILL_HEAD, PREFILL_TAIL)
            engines[e, PREFILL_COUNT] -= 1
            engines[e, PREFILL_DONE] -= before
            requests[r, GENERATED] += 1
            if requests[r, FIRST_TOKEN] < 0:
                requests[r, FIRST_TOKEN] = end
            join(fleet, e, r)
        else:
            engines[e, PREFILL_DONE] += chunk
        r = after
    engines[e, PREFILL_LEFT] -= tokens
    engines[e, DECODE_IS_NEXT] = engines[e, PREFILL_COUNT] == 0
    engines[e, PREFILL_NS] += duration
    picojoules = base + per_token * tokens + per_square * squares
    engines[e, PREFILL_PICOJOULES] += picojoules
    engines[e, STEP_KIND] = PREFILL_STEP
    engines[e, STEP_PICOJOULES] = picojoules
    engines[e, STEP_NS] = duration
    engines[e, BUSY_NS] += duration
    engines[e, AWAKE_NS] += duration
    engines[e, SETTLED] += duration


@inner
def _decode(fleet: Fleet, e: int) -> None:
    engines, requests, rates, charges = fleet.engines, fleet.requests, fleet.rates, fleet.charges
    row, batch, kv_tokens = engines[e, ROW], engines[e, BATCH], engines[e, KV_TOKENS]
    base, per_request = charges[row, DECODE_BASE], charges[row, DECODE_PER_REQUEST]
    share = base // batch
    requests[engines[e, DECODE_HEAD], DRAWN] += base - share * batch
    engines[e, SHARES] += share + per_request
    length = kv_tokens / batch
    duration = int(
        np.rint(
            (
                rates[row, ALPHA]
                + rates[row, BETA] * length
                + (rates[row, ALPHA + 1] + rates[row, BETA + 1] * length) * batch
                + (rates[row, ALPHA + 2] + rates[row, BETA + 2] * length) * batch * batch
            )
            * NANOSECONDS_PER_SECOND
        )
    )
    engines[e, DECODES] += 1
    engines[e, KV_TOKENS] += batch
    engines[e, DECODE_IS_NEXT] = 0
    engines[e, AHEAD] = 0
    if engines[e, NEWCOMERS]:
        end = engines[e, SETTLED] + duration
        r = engines[e, DECODE_TAIL]
        while engines[e, NEWCOMERS]:
            if requests[r, FIRST_TOKEN] < 0:
                requests[r, FIRST_TOKEN] = end
                engines[e, NEWCOMERS] -= 1
            r = requests[r, BEFORE]
    if engines[e, OUTPUTS_SHARED]:
        block_size = charges[row, BLOCK_SIZE]
        r = engines[e, DECODE_HEAD]
        while r != NOBODY:
            computed = requests[r, COMPUTED] + engines[e, DECODES] - requests[r, JOINED_AT]
            if computed % block_size == 0:
                publish(fleet, e, r, computed)
            r = requests[r, NEXT]
    picojoules = base + per_request * batch + charges[row, DECODE_PER_CACHED] * kv_tokens
    engines[e, DECODE_PICOJOULES] += picojoules
    engines[e, STEP_KIND] = DECODE_STEP
    engines[e, STEP_PICOJOULES] = picojoules
    engines[e, STEP_NS] = duration
    engines[e, BUSY_NS] += duration
    engines[e, AWAKE_NS] += duration
    engines[e, SETTLED] += duration


@inner
def _make_room(fleet: Fleet, e: int) -> None:
    """Give every sequence that starts a block one more; preempt the newest until that works."""
    engines, requests = fleet.engines, fleet.requests
    block_size = fleet.charges[engines[e, ROW], BLOCK_SIZE]
    starting = fleet.residues[e, engines[e, DECODES] % block_size] - engines[e, AHEAD]
    if starting <= available(fleet, e):
        take(fleet, e, starting)
        return
    r = engines[e, DECODE_HEAD]
    while r != NOBODY:
        computed = requests[r, COMPUTED] + engines[e, DECODES] - requests[r, JOINED_AT]
        if computed % block_size == 0 and computed == blocks_held(fleet, e, r, computed) * block_size:
            while available(fleet, e) == 0:
                if preempt_newest(fleet, e) == r:
                    r = NOBODY
                    break
            if r == NOBODY:
                break
            take(fleet, e, 1)
            # Counts as held before the step that fills it, for the case that it is preempted for a later one.
            requests[r, ADMITTED_BLOCKS] = max(requests[r, ADMITTED_BLOCKS], computed // block_size + 1)
        r = requests[r, NEXT]


@inner
def step(fleet: Fleet, e: int) -> bool:
    """Compute the step that starts at `SETTLED`; False: there is nothing to do."""
    engines = fleet.engines
    while True:
        if not engines[e, PREFILL_COUNT] and not (engines[e, DECODE_IS_NEXT] and engines[e, BATCH]):
            _admit(fleet, e, engines[e, SETTLED])
        if engines[e, PREFILL_COUNT]:
            _prefill(fleet, e)
            return True
        if not engines[e, BATCH]:
            return False
        _make_room(fleet, e)
        if engines[e, BATCH]:
            _decode(fleet, e)
            return True
        engines[e, AHEAD] = 0
        engines[e, DECODE_IS_NEXT] = 0
