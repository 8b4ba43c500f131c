"""The search of `heliotrope.cache.plans` in one loop over endpoints and owners.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown; every comparison with it is false, so
that nothing unknown makes a plan.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.units import BITS_PER_BYTE

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]

# Rows of the pool's columns.
KIND, ENGINE, REGION, PULLS = 0, 1, 2, 3
KV_BITS, PREFILL_SECONDS, PREFILL_SECONDS_SQUARED, PREFILL_JOULES, PREFILL_JOULES_SQUARED = 4, 5, 6, 7, 8
TIER_BYTES_PER_SECOND, TIER_LATENCY_SECONDS, TIER_JOULES_PER_BIT = 9, 10, 11
COLUMNS = 12
# Planes of the links.
BYTES_PER_SECOND, LATENCY_SECONDS, JOULES_PER_BIT, SIDE = 0, 1, 2, 3
# Rows of the result.
SAVED, SOURCE, TOKENS, SECONDS, JOULES = 0, 1, 2, 3, 4
RESULTS = 5

_NO_SOURCE = -1


@compiled
def _saving(pool: Matrix, i: int, first: float, last: float, seconds: float, joules: float) -> float:
    """Joules by which recomputing from `first` to `last` is dearer; 0 where equation 8 or its time condition fails."""
    tokens, squares = last - first, last * last - first * first
    saved = pool[PREFILL_JOULES, i] * tokens + pool[PREFILL_JOULES_SQUARED, i] * squares - joules
    if saved > 0.0 and seconds < pool[PREFILL_SECONDS, i] * tokens + pool[PREFILL_SECONDS_SQUARED, i] * squares:
        return float(saved)
    return 0.0


@compiled
def owners_of(cached: Row, pool: Matrix, least_tokens: float, owners: NDArray[np.intp]) -> int:
    """Fill `owners` with the endpoints that blocks can be pulled from, those that cache most first; how many."""
    count = 0
    for j in range(len(cached)):
        if pool[PULLS, j] == 0.0 or not cached[j] >= least_tokens:
            continue
        at = count
        while at > 0 and cached[j] > cached[owners[at - 1]]:
            at -= 1
        if at == len(owners):
            continue
        count = min(count + 1, len(owners))
        for k in range(count - 1, at, -1):
            owners[k] = owners[k - 1]
        owners[at] = j
    return count


@compiled
def best_plans(
    cached: Row,
    offloaded: Row,
    running: Row,
    waiting: Row,
    waiting_tokens: Row,
    kv_tokens: Row,
    kv_capacity_tokens: Row,
    pool: Matrix,
    links: Matrix,
    into: Matrix,
    out: Matrix,
    owners: NDArray[np.intp],
    prompt_tokens: float,
    pressure_joules: float,
    least_tokens: float,
    reloads: bool,
    result: Matrix,
) -> int:
    """The best way of each endpoint into a column of `result`, SAVED at 0 where there is none; how many there are.

    `into` and `out` are those of `heliotrope.cache.crowd.Crowd`.
    """
    found = 0
    for i in range(len(cached)):
        result[SAVED, i] = 0.0
        charged = 0.0
        if pressure_joules > 0.0:
            share = (kv_tokens[i] + prompt_tokens) / kv_capacity_tokens[i]
            charged = pressure_joules * (1.0 if share > 1.0 else share)
        for k in range(len(owners) + 1):
            if k < len(owners):
                j = owners[k]
                if j == i or pool[PULLS, i] == 0.0 or pool[KIND, i] != pool[KIND, j]:
                    continue
                if (
                    pool[ENGINE, i] == pool[ENGINE, j]
                    and pool[REGION, i] == pool[REGION, j]
                    and running[j] <= running[i]
                    and waiting[j] <= waiting[i]
                    and waiting_tokens[j] <= waiting_tokens[i]
                    and kv_tokens[j] <= kv_tokens[i]
                ):
                    continue
                held, rate, side = cached[j], links[BYTES_PER_SECOND, i, j], links[SIDE, i, j]
                if side == side:  # NaN: no link
                    on_their_way = max(into[int(side), i], out[int(side), j])
                    rate /= 1.0 + on_their_way
                latency, per_bit = links[LATENCY_SECONDS, i, j], links[JOULES_PER_BIT, i, j]
            else:
                if not reloads:
                    continue
                j, held, rate = _NO_SOURCE, offloaded[i], pool[TIER_BYTES_PER_SECOND, i]
                latency, per_bit = pool[TIER_LATENCY_SECONDS, i], pool[TIER_JOULES_PER_BIT, i]
            moved = held - cached[i]
            if not moved >= least_tokens:
                continue
            bits = moved * pool[KV_BITS, i]
            seconds, joules = latency + bits / (BITS_PER_BYTE * rate), bits * per_bit
            saved = _saving(pool, i, cached[i], held, seconds, joules + charged)
            if saved > result[SAVED, i]:
                result[SAVED, i], result[SOURCE, i], result[TOKENS, i] = saved, j, held
                result[SECONDS, i], result[JOULES, i] = seconds, joules
        if result[SAVED, i] > 0.0:
            found += 1
    return found
