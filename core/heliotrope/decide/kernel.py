"""The analytic estimate of every plan in one loop; `heliotrope.decide.estimate` says what it means.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown and passes through.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.load import LONGEST_DUTY
from heliotrope.decide.steps import (
    arrival,
    behind_ttft,
    decode_joules,
    decode_seconds,
    lower,
    prefill_joules,
    prefill_seconds,
    upper,
)
from heliotrope.engine.coefficients import Coefficient

_DECODE_ERROR = int(Coefficient.DECODE_ERROR)
_JOULES_ERROR = int(Coefficient.STEP_JOULES_ERROR)
_IDLE_WATTS = int(Coefficient.IDLE_WATTS)
_KV_CAPACITY = int(Coefficient.KV_CAPACITY_TOKENS)
_MAX_NUM_SEQS = int(Coefficient.MAX_NUM_SEQS)

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]


@compiled
def known_sum(first: Row, second: Row, count: int) -> float:
    """Of the first so many values of two columns, those that are known."""
    total = 0.0
    for i in range(count):
        for value in (first[i], second[i]):
            if value == value:
                total += value
    return total


@compiled
def analytic(
    coefficients: Matrix,
    running: Row,
    waiting: Row,
    waiting_tokens: Row,
    oldest_waiting_seconds: Row,
    kv_tokens: Row,
    prefill_duty: Row,
    cached_tokens: Row,
    waiting_squared_tokens: Row,
    step_seconds: Row,
    step_prefills: Row,
    rtt_seconds: Row,
    prompt_tokens: float,
    expected_output_tokens: float,
    pool_concurrency: float,
    estimates: Matrix,
    kv_fits: NDArray[np.bool_],
) -> None:
    """Fill in every row that has coefficients; the others stay as they are.

    Args:
        coefficients: row i as `heliotrope.engine.coefficients` gives it, shape (n, C).
        running: column of `Candidates`; so are the next nine.
        waiting: see there.
        waiting_tokens: see there.
        oldest_waiting_seconds: see there.
        kv_tokens: see there.
        prefill_duty: see there.
        cached_tokens: see there.
        waiting_squared_tokens: see there.
        step_seconds: see there.
        step_prefills: see there.
        rtt_seconds: the network's round trip.
        prompt_tokens: of the request.
        expected_output_tokens: of the request.
        pool_concurrency: requests that the pool serves and queues now.
        estimates: shape (11, n), the lines in the order of `heliotrope.decide.columns.Columns`.
        kv_fits: whether the request can ever fit.
    """
    ttft, tpot, queue_ttft = estimates[0], estimates[1], estimates[2]
    ttft_error, tpot_error = estimates[3], estimates[4]
    energy, energy_error, incremental, attributed = estimates[5], estimates[6], estimates[7], estimates[8]
    prefill_only, batch = estimates[9], estimates[10]
    out = max(expected_output_tokens, 1.0)
    context = prompt_tokens + out / 2.0
    for i in range(len(running)):
        c = coefficients[i]
        if c[0] != c[0]:
            continue
        kv, queued = kv_tokens[i], waiting_tokens[i]
        duty = lower(upper(prefill_duty[i], 0.0), LONGEST_DUTY)
        free = 1.0 - duty
        most = c[_MAX_NUM_SEQS]
        uncached = upper(prompt_tokens - cached_tokens[i], 1.0)
        ahead = running[i] + waiting[i]
        after = lower(ahead + 1.0, most)
        decode = decode_seconds(c, after, kv + prompt_tokens)
        step, queued_prefill, first, spread, _ = arrival(
            c,
            running[i],
            waiting[i],
            queued,
            waiting_squared_tokens[i],
            kv,
            duty,
            step_seconds[i],
            step_prefills[i],
            uncached,
            prompt_tokens,
            out,
            out,
        )
        ttft_error[i] = spread / first if first > 0.0 else np.nan
        ttft[i] = first + rtt_seconds[i]
        tpot[i] = (decode + queued_prefill / out) / free
        queue_ttft[i] = behind_ttft(c, waiting[i], queued, oldest_waiting_seconds[i], step, uncached)

        # Sharing: the batch that this endpoint reaches when the pool's load is consolidated on it.
        shared = lower(upper(ahead + 1.0, pool_concurrency + 1.0), most)
        computing = prefill_joules(c, uncached)
        prefill_only[i] = computing
        batch[i] = shared
        energy[i] = computing + out * decode_joules(c, shared, shared * context) / shared
        # While it is served the endpoint fills from the batch of now to the shared one, evenly for all that is known.
        met = 0.5 * (after + shared)
        attributed[i] = computing + out * decode_joules(c, met, met * context) / met

        # An engine that is idle now would have drawn its idle power meanwhile; a busy one draws its base anyway.
        idle = lower(upper(1.0 - ahead, 0.0), 1.0)
        alone = decode_joules(c, 1.0, context) - c[_IDLE_WATTS] * decode_seconds(c, 1.0, context)
        busy = decode_joules(c, after, kv + context) - decode_joules(c, after - 1.0, kv)
        standing = c[_IDLE_WATTS] * prefill_seconds(c, uncached, 1.0, uncached * uncached)
        incremental[i] = computing - idle * standing + out * (idle * alone + (1.0 - idle) * busy)
        tpot_error[i] = c[_DECODE_ERROR]
        energy_error[i] = c[_JOULES_ERROR]
        kv_fits[i] = prompt_tokens + out <= c[_KV_CAPACITY]
