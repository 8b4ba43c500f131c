"""What steps of an engine take and draw, and what a prompt meets there: for loops over many endpoints.

Each function takes one engine's `heliotrope.engine.coefficients`. Import it where it is first needed: see
`heliotrope.compiled`. NaN is unknown and passes through.
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
_KV_CAPACITY = int(Coefficient.KV_CAPACITY_TOKENS)
_MAX_NUM_SEQS = int(Coefficient.MAX_NUM_SEQS)
_MAX_BATCHED = int(Coefficient.MAX_NUM_BATCHED_TOKENS)

Row = NDArray[np.float64]


@compiled
def lower(a: float, b: float) -> float:
    """The lower of two; NaN if either is."""
    return a if a < b or a != a else b


@compiled
def upper(a: float, b: float) -> float:
    """The higher of two; NaN if either is."""
    return a if a > b or a != a else b


@compiled
def prefill_seconds(c: Row, tokens: float, requests: float, squares: float) -> float:
    """`EngineModel.prefill_seconds`."""
    if tokens <= 0.0:
        return 0.0
    below = lower(tokens, c[_KNEE])
    return float(
        c[_PER_TOKEN_BELOW] * below
        + c[_PER_TOKEN_ABOVE] * (tokens - below)
        + c[_PREFILL_BASE]
        + c[_PER_REQUEST] * requests
        + c[_PER_TOKEN_SQUARED] * squares
    )


@compiled
def decode_seconds(c: Row, batch: float, kv_tokens: float) -> float:
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
def decode_joules(c: Row, batch: float, kv_tokens: float) -> float:
    """`EngineModel.decode_joules`."""
    if batch <= 0.0:
        return 0.0
    return float(c[_DECODE_BASE_JOULES] + c[_DECODE_JOULES] * batch + c[_DECODE_JOULES_CACHED] * kv_tokens)


@compiled
def prefill_joules(c: Row, tokens: float) -> float:
    """`EngineModel.prefill_joules` of one prompt."""
    return float(c[_PREFILL_BASE_JOULES] + c[_PREFILL_JOULES] * tokens + c[_PREFILL_JOULES_SQUARED] * tokens * tokens)


@compiled
def arrival(
    c: Row,
    running: float,
    waiting: float,
    queued: float,
    kv: float,
    duty: float,
    uncached: float,
    prompt_tokens: float,
    kept_tokens: float,
    answer_tokens: float,
) -> tuple[float, float, float, float, float, float]:
    """What a prompt meets that comes to an endpoint in this state.

    Args:
        c: of the endpoint.
        running: sequences in the batch.
        waiting: requests before this one.
        queued: their uncached tokens.
        kv: tokens in the KV cache.
        duty: share of time spent in prefill, in [0, 1).
        uncached: tokens of the prompt to compute.
        prompt_tokens: all of them.
        kept_tokens: of its answer, for which there must be room too.
        answer_tokens: after so many a running sequence is taken to end.

    Returns:
        The decode step that runs; the wait for a slot; the prefill of what is queued and the sum of its squares; the
        time to the first token, and one standard deviation of it. Seconds, but for the squares.
    """
    free, most = 1.0 - duty, c[_MAX_NUM_SEQS]
    ahead = running + waiting
    step = decode_seconds(c, lower(ahead, most), kv)
    # A slot or KV space frees whenever a running sequence ends: on average every out · t_step / B seconds.
    seconds_per_departure = answer_tokens * step / upper(running, 1.0) / free
    over_slots = upper(ahead + 1.0 - most, 0.0)
    kv_need = kv + queued + prompt_tokens + kept_tokens - c[_KV_CAPACITY]
    over_kv = upper(kv_need, 0.0) / upper(kv / upper(running, 1.0), 1.0)
    departures = upper(over_slots, over_kv)
    wait = departures * seconds_per_departure

    mean_queued = queued / upper(waiting, 1.0)
    queued_squares = waiting * mean_queued * mean_queued
    prefill = prefill_seconds(c, uncached + queued, waiting + 1.0, uncached * uncached + queued_squares)
    queued_prefill = prefill_seconds(c, queued, waiting, queued_squares)
    until_own_step = 0.5 * step + queued_prefill
    first = wait + 0.5 * step + prefill + until_own_step * duty / free
    # Departures come at random, so waiting for k of them spreads by wait / √k; a step is met at a uniform point.
    off = c[_PREFILL_ERROR] * prefill
    spread = sqrt(off * off + step * step / 12.0 + wait * wait / upper(departures, 1.0))
    return step, wait, queued_prefill, queued_squares, first, spread


@compiled
def behind_ttft(
    c: Row, waiting: float, queued: float, oldest_waiting_seconds: float, step: float, uncached: float
) -> float:
    """TTFT of the first of those that wait, if this prompt joins them; 0 where none waits."""
    if not waiting > 0.0:
        return waiting * 0.0
    # They meet the prefill step with all of it, or with as much as the engine's budget takes.
    taken = lower(uncached + queued, c[_MAX_BATCHED])
    requests = waiting + 1.0
    return oldest_waiting_seconds + step + prefill_seconds(c, taken, requests, taken * taken / requests)
