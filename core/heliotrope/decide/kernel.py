"""The analytic estimate of every plan in one loop; `heliotrope.decide.estimate` says what it means.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown and passes through.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.engine.coefficients import Coefficient

_KNEE = int(Coefficient.KNEE_TOKENS)
_PER_TOKEN_BELOW = int(Coefficient.PREFILL_PER_TOKEN_BELOW)
_PER_TOKEN_ABOVE = int(Coefficient.PREFILL_PER_TOKEN_ABOVE)
_PREFILL_BASE = int(Coefficient.PREFILL_BASE)
_PER_REQUEST = int(Coefficient.PREFILL_PER_REQUEST)
_PER_TOKEN_SQUARED = int(Coefficient.PREFILL_PER_TOKEN_SQUARED)
_ALPHA = int(Coefficient.DECODE_ALPHA_0)
_BETA = int(Coefficient.DECODE_BETA_0)
_PREFILL_BASE_JOULES = int(Coefficient.PREFILL_BASE_JOULES)
_PREFILL_JOULES = int(Coefficient.PREFILL_JOULES_PER_TOKEN)
_PREFILL_JOULES_SQUARED = int(Coefficient.PREFILL_JOULES_PER_TOKEN_SQUARED)
_DECODE_BASE_JOULES = int(Coefficient.DECODE_BASE_JOULES)
_DECODE_JOULES = int(Coefficient.DECODE_JOULES_PER_REQUEST)
_DECODE_JOULES_CACHED = int(Coefficient.DECODE_JOULES_PER_CACHED_TOKEN)
_PREFILL_ERROR = int(Coefficient.PREFILL_ERROR)
_DECODE_ERROR = int(Coefficient.DECODE_ERROR)
_JOULES_ERROR = int(Coefficient.STEP_JOULES_ERROR)
_IDLE_WATTS = int(Coefficient.IDLE_WATTS)
_KV_CAPACITY = int(Coefficient.KV_CAPACITY_TOKENS)
_MAX_NUM_SEQS = int(Coefficient.MAX_NUM_SEQS)
_MAX_BATCHED = int(Coefficient.MAX_NUM_BATCHED_TOKENS)

_LONGEST_DUTY = 0.95

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]


@compiled
def _lower(a: float, b: float) -> float:
    """The lower of two; NaN if either is."""
    return a if a < b or a != a else b


@compiled
def _upper(a: float, b: float) -> float:
    """The higher of two; NaN if either is."""
    return a if a > b or a != a else b


@compiled
def _prefill_seconds(c: Row, tokens: float, requests: float, squares: float) -> float:
    """`EngineModel.prefill_seconds`."""
    if tokens <= 0.0:
        return 0.0
    below = _lower(tokens, c[_KNEE])
    return float(
        c[_PER_TOKEN_BELOW] * below
        + c[_PER_TOKEN_ABOVE] * (tokens - below)
        + c[_PREFILL_BASE]
        + c[_PER_REQUEST] * requests
        + c[_PER_TOKEN_SQUARED] * squares
    )


@compiled
def _decode_seconds(c: Row, batch: float, kv_tokens: float) -> float:
    """`EngineModel.decode_seconds`."""
    if batch <= 0.0:
        return 0.0
    per_request = kv_tokens / batch
    return float(
        c[_ALPHA]
        + c[_BETA] * per_request
        + (c[_ALPHA + 1] + c[_BETA + 1] * per_request) * batch
        + (c[_ALPHA + 2] + c[_BETA + 2] * per_request) * batch * batch
    )


@compiled
def _decode_joules(c: Row, batch: float, kv_tokens: float) -> float:
    """`EngineModel.decode_joules`."""
    if batch <= 0.0:
        return 0.0
    return float(c[_DECODE_BASE_JOULES] + c[_DECODE_JOULES] * batch + c[_DECODE_JOULES_CACHED] * kv_tokens)


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
        running: column of `Candidates`; so are the next six.
        waiting: see there.
        waiting_tokens: see there.
        oldest_waiting_seconds: see there.
        kv_tokens: see there.
        prefill_duty: see there.
        cached_tokens: see there.
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
        duty = _lower(_upper(prefill_duty[i], 0.0), _LONGEST_DUTY)
        free = 1.0 - duty
        most = c[_MAX_NUM_SEQS]
        uncached = _upper(prompt_tokens - cached_tokens[i], 1.0)
        ahead = running[i] + waiting[i]
        step = _decode_seconds(c, _lower(ahead, most), kv)
        after = _lower(ahead + 1.0, most)
        decode = _decode_seconds(c, after, kv + prompt_tokens)

        # A slot or KV space frees whenever a running sequence ends: on average every out · t_step / B seconds.
        seconds_per_departure = out * step / _upper(running[i], 1.0) / free
        over_slots = _upper(ahead + 1.0 - most, 0.0)
        kv_need = kv + queued + prompt_tokens + out - c[_KV_CAPACITY]
        over_kv = _upper(kv_need, 0.0) / _upper(kv / _upper(running[i], 1.0), 1.0)
        departures = _upper(over_slots, over_kv)
        wait = departures * seconds_per_departure

        mean_queued = queued / _upper(waiting[i], 1.0)
        queued_squares = waiting[i] * mean_queued * mean_queued
        prefill = _prefill_seconds(c, uncached + queued, waiting[i] + 1.0, uncached * uncached + queued_squares)
        queued_prefill = _prefill_seconds(c, queued, waiting[i], queued_squares)
        until_own_step = 0.5 * step + queued_prefill
        first = wait + 0.5 * step + prefill + until_own_step * duty / free
        # Departures come at random, so waiting for k of them spreads by wait / √k; a step is met at a uniform point.
        prefill_spread = c[_PREFILL_ERROR] * prefill
        spread = sqrt(prefill_spread * prefill_spread + step * step / 12.0 + wait * wait / _upper(departures, 1.0))
        ttft_error[i] = spread / first if first > 0.0 else np.nan
        ttft[i] = first + rtt_seconds[i]
        tpot[i] = (decode + queued_prefill / out) / free
        if waiting[i] > 0.0:
            # What those that wait meet: the prefill step with all of it, or with as much as the engine's budget takes.
            taken = _lower(uncached + queued, c[_MAX_BATCHED])
            requests = waiting[i] + 1.0
            joined = _prefill_seconds(c, taken, requests, taken * taken / requests)
            queue_ttft[i] = oldest_waiting_seconds[i] + step + joined
        else:
            queue_ttft[i] = waiting[i] * 0.0

        # Sharing: the batch that this endpoint reaches when the pool's load is consolidated on it.
        shared = _lower(_upper(ahead + 1.0, pool_concurrency + 1.0), most)
        computing = (
            c[_PREFILL_BASE_JOULES] + c[_PREFILL_JOULES] * uncached + c[_PREFILL_JOULES_SQUARED] * uncached * uncached
        )
        prefill_only[i] = computing
        batch[i] = shared
        energy[i] = computing + out * _decode_joules(c, shared, shared * context) / shared
        # While it is served the endpoint fills from the batch of now to the shared one, evenly for all that is known.
        met = 0.5 * (after + shared)
        attributed[i] = computing + out * _decode_joules(c, met, met * context) / met

        # An engine that is idle now would have drawn its idle power meanwhile; a busy one draws its base anyway.
        idle = _lower(_upper(1.0 - ahead, 0.0), 1.0)
        alone = _decode_joules(c, 1.0, context) - c[_IDLE_WATTS] * _decode_seconds(c, 1.0, context)
        busy = _decode_joules(c, after, kv + context) - _decode_joules(c, after - 1.0, kv)
        standing = c[_IDLE_WATTS] * _prefill_seconds(c, uncached, 1.0, uncached * uncached)
        incremental[i] = computing - idle * standing + out * (idle * alone + (1.0 - idle) * busy)
        tpot_error[i] = c[_DECODE_ERROR]
        energy_error[i] = c[_JOULES_ERROR]
        kv_fits[i] = prompt_tokens + out <= c[_KV_CAPACITY]
