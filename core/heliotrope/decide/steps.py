"""What steps of an engine take and draw, and what a prompt meets there: for loops over many endpoints.

Each function takes one engine's `heliotrope.engine.coefficients`. Import it where it is first needed: see
`heliotrope.compiled`. NaN is unknown and passes through.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.engine.coefficients import Coefficient
from heliotrope.predict.steps_ahead import UNSEEN, steps_ahead

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
    squares: float,
    kv: float,
    duty: float,
    step_seconds: float,
    step_prefills: float,
    uncached: float,
    prompt_tokens: float,
    kept_tokens: float,
    answer_tokens: float,
) -> tuple[float, float, float, float, float]:
    """What a prompt meets that comes to an endpoint in this state.

    Where the running step is known (`heliotrope.predict.steps_ahead`), the steps ahead are added up and what has passed
    of the running one is taken off; what may come meanwhile is part of the spread. Where it is not, half a decode step
    is left, and what takes time T to reach takes T / (1 − duty).

    Args:
        c: of the endpoint.
        running: sequences in the batch.
        waiting: requests before this one.
        queued: their uncached tokens.
        squares: Σ n² over their prompts; NaN: they are taken to be of one length.
        kv: tokens in the KV cache.
        duty: share of time spent in prefill, in [0, 1).
        step_seconds: how long the running step has run; NaN: unknown.
        step_prefills: 1 where it computes what waits, 0 where it decodes; NaN: unknown.
        uncached: tokens of the prompt to compute.
        prompt_tokens: all of them.
        kept_tokens: of its answer, for which there must be room too.
        answer_tokens: after so many a running sequence is taken to end.

    Returns:
        A decode step; the prefill of what is queued; the time to the first token, and one standard deviation of it; the
        time to the first token of a prompt with one token to compute. Seconds.
    """
    ahead, most = running + waiting, c[_MAX_NUM_SEQS]
    step = decode_seconds(c, lower(ahead, most), kv)
    decodes, prefills, elapsed = steps_ahead(ahead, step_seconds, step_prefills)
    seen = decodes != UNSEEN
    free = 1.0 - duty
    # A slot or KV space frees whenever a running sequence ends: on average every out · t_step / B seconds.
    seconds_per_departure = answer_tokens * step / upper(running, 1.0)
    over_slots = upper(ahead + 1.0 - most, 0.0)
    kv_need = kv + queued + prompt_tokens + kept_tokens - c[_KV_CAPACITY]
    over_kv = upper(kv_need, 0.0) / upper(kv / upper(running, 1.0), 1.0)
    departures = upper(over_slots, over_kv)
    stalled = departures * seconds_per_departure / free
    # Engines serve in order: while this prompt waits they prefill what is queued, which is counted below.
    wait = departures * seconds_per_departure if seen else stalled

    mean_queued = queued / upper(waiting, 1.0)
    queued_squares = squares if squares == squares else waiting * mean_queued * mean_queued
    queued_prefill = prefill_seconds(c, queued, waiting, queued_squares)
    if prefills > 1.0:
        before = wait + upper(queued_prefill - elapsed, 0.0) + decodes * step
        own, least = prefill_seconds(c, uncached, 1.0, uncached * uncached), prefill_seconds(c, 1.0, 1.0, 1.0)
        computed = queued_prefill + own
    else:
        # A step that has run for longer than it seems to take ends now.
        before = wait + upper(decodes * step - elapsed, 0.0)
        own = prefill_seconds(c, queued + uncached, waiting + 1.0, queued_squares + uncached * uncached)
        least = prefill_seconds(c, queued + 1.0, waiting + 1.0, queued_squares + 1.0)
        computed = own
    # Departures come at random, so waiting for k of them spreads by wait / √k, and prefills of others may stall them.
    off = c[_PREFILL_ERROR] * computed
    # A step is met at a uniform point; pieces that tell at which one come late.
    variance = off * off + stalled * stalled / upper(departures, 1.0) + step * step / 12.0
    if seen:
        # What comes before the own step begins joins it. Mostly nothing does, so the estimate leaves it out.
        variance += before * before * duty / free
    else:
        before += (UNSEEN * step + queued_prefill) * duty / free
    return step, queued_prefill, before + own, sqrt(variance), before + least


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
