"""Loops of `heliotrope.decide.phases`: what a prefill takes at each endpoint, and which pairs are worth a plan.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown; every comparison with it is false, so
that nothing unknown makes a pair.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.load import LONGEST_DUTY
from heliotrope.decide.steps import (
    arrival,
    behind_ttft,
    lower,
    prefill_joules,
    prefill_seconds,
    upper,
)
from heliotrope.engine.coefficients import Coefficient
from heliotrope.predict.steps_ahead import UNSEEN

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Planes = NDArray[np.float64]

# Lines of what a prefill takes.
TTFT, SPREAD, QUEUE_TTFT, JOULES, INCREMENTAL_JOULES, BUSY_SECONDS = 0, 1, 2, 3, 4, 5
JOULES_ERROR, BACKLOG, TAIL, NEIGHBOUR_TPOT, WEIGHT = 6, 7, 8, 9, 10
LINES = 11

# Planes of a pool of pairs.
LATENCY, SECONDS_PER_TOKEN, SENDER_JOULES_PER_TOKEN, RECEIVER_JOULES_PER_TOKEN = 0, 1, 2, 3
PLANES = 4

_JOULES_ERROR = int(Coefficient.STEP_JOULES_ERROR)
_IDLE_WATTS = int(Coefficient.IDLE_WATTS)
_KV_CAPACITY = int(Coefficient.KV_CAPACITY_TOKENS)
_DECODE_JOULES = int(Coefficient.DECODE_JOULES_PER_REQUEST)


@compiled
def prefill_alone(
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
    prompt_tokens: float,
    expected_output_tokens: float,
    result: Matrix,
) -> None:
    """Fill in every column of `result` (`LINES`, n) but the weight; NaN where there is no step model, or no room.

    Waiting, queue, prefill and its joules are those of `heliotrope.decide.kernel.analytic` for a request with one
    token of output; a running sequence is taken to be as long as this request's answer there and here. Backlog and tail
    are what an endpoint takes for a request that brings its KV: until it is its turn, and from then on to the first
    token. Neighbours are those that decode there: this prefill stalls them for its time, once in an answer.
    """
    out = max(expected_output_tokens, 1.0)
    for i in range(len(running)):
        c = coefficients[i]
        for line in range(WEIGHT):
            result[line, i] = np.nan
        if not prompt_tokens + 1.0 <= c[_KV_CAPACITY]:
            continue
        kv, queued = kv_tokens[i], waiting_tokens[i]
        duty = lower(upper(prefill_duty[i], 0.0), LONGEST_DUTY)
        free = 1.0 - duty
        uncached = upper(prompt_tokens - cached_tokens[i], 1.0)
        ahead = running[i] + waiting[i]
        step, queued_prefill, first, spread, first_of_one = arrival(
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
            1.0,
            out,
        )
        result[TTFT, i], result[SPREAD, i] = first, spread
        # Nobody knows which step will run when the KV has come.
        result[TAIL, i] = UNSEEN * step / free + prefill_seconds(c, 1.0, 1.0, 1.0)
        result[BACKLOG, i] = first_of_one - result[TAIL, i]
        result[QUEUE_TTFT, i] = behind_ttft(c, waiting[i], queued, oldest_waiting_seconds[i], step, uncached)
        joules = prefill_joules(c, uncached)
        idle = lower(upper(1.0 - ahead, 0.0), 1.0)
        alone = prefill_seconds(c, uncached, 1.0, uncached * uncached)
        if running[i] > 0.0:
            result[NEIGHBOUR_TPOT, i] = (step + (queued_prefill + alone) / out) / free
        result[JOULES, i] = joules
        result[INCREMENTAL_JOULES, i] = joules - idle * c[_IDLE_WATTS] * alone
        result[BUSY_SECONDS, i] = alone
        result[JOULES_ERROR, i] = c[_JOULES_ERROR]


@compiled
def best_partners(
    coefficients: Matrix,
    cached_tokens: Row,
    here: Matrix,
    there: Matrix,
    usable: NDArray[np.bool_],
    pool: Planes,
    prompt_tokens: float,
    expected_output_tokens: float,
    ttft_limit_seconds: float,
    tpot_limit_seconds: float,
    least_tokens: float,
    partners: NDArray[np.intp],
    bounds: Matrix,
) -> int:
    """The prefiller of least emissions within the limit, and the fastest, of every decode endpoint.

    Args:
        coefficients: of the decode endpoints.
        cached_tokens: of the prompt, there: what no transfer brings.
        here: what prefilling takes of the decode endpoints themselves, shape (`LINES`, n).
        there: the same of the prefillers, shape (`LINES`, m).
        usable: whether each prefiller may be used.
        pool: shape (`PLANES`, n, m), NaN where two make no pair.
        prompt_tokens: of the request.
        expected_output_tokens: of the request.
        ttft_limit_seconds: infinite where nothing is promised; so for the next.
        tpot_limit_seconds: where neighbours would be slower, a pair need not win anything else.
        least_tokens: fewer to compute are not worth a transfer.
        partners: shape (2, n); -1 where there is none, or the second is the first.
        bounds: shape (2, n), by which plans of different endpoints are ordered: weighted joules, seconds.

    Returns:
        How many there are.
    """
    found = 0
    for i in range(len(cached_tokens)):
        partners[0, i], partners[1, i] = -1, -1
        tokens = prompt_tokens - cached_tokens[i]
        if not tokens >= least_tokens:
            continue
        weight = here[WEIGHT, i]
        cleanest, fastest = np.inf, np.inf
        for j in range(len(usable)):
            if not usable[j]:
                continue
            seconds = there[TTFT, j] + pool[LATENCY, i, j] + pool[SECONDS_PER_TOKEN, i, j] * tokens
            weighted = (there[JOULES, j] + pool[SENDER_JOULES_PER_TOKEN, i, j] * tokens) * there[WEIGHT, j]
            weighted += pool[RECEIVER_JOULES_PER_TOKEN, i, j] * tokens * weight
            seconds = upper(seconds, here[BACKLOG, i]) + here[TAIL, i]
            # What is left to do here is the same whoever prefills: who is behind in both can win nothing.
            spares = here[NEIGHBOUR_TPOT, i] > tpot_limit_seconds
            if not (spares or seconds < here[TTFT, i] or weighted < here[JOULES, i] * weight):
                continue
            if seconds <= ttft_limit_seconds and weighted < cleanest:
                cleanest, partners[0, i] = weighted, j
            if seconds < fastest:
                fastest, partners[1, i] = seconds, j
        if partners[0, i] >= 0:
            bounds[0, i] = cleanest + expected_output_tokens * coefficients[i, _DECODE_JOULES] * weight
            found += 1
        if partners[1, i] == partners[0, i]:
            partners[1, i] = -1
        if partners[1, i] >= 0:
            bounds[1, i] = fastest
            found += 1
    return found


@compiled
def take_partners(partners: NDArray[np.intp], bounds: Matrix, most: int, taken: NDArray[np.intp]) -> None:
    """Write decode and prefill rows of pairs that `best_partners` found.

    Args:
        partners: as it filled them in; so is the next.
        bounds: of those that are too many, the least come first; else the rows are in order.
        most: this many are kept, half of each kind, or what the other kind leaves.
        taken: shape (2, as many as there are, at most `most`), written to: the first kind first.
    """
    n, half = partners.shape[1], most // 2
    counts = np.zeros(2, dtype=np.intp)
    for kind in range(2):
        for i in range(n):
            counts[kind] += partners[kind, i] >= 0
    many = counts[0] + counts[1] > most
    if many:
        counts[0] = min(counts[0], max(half, most - counts[1]))
        counts[1] = most - counts[0]
    first = 0
    for kind in range(2):
        found = 0
        for i in range(n):
            if partners[kind, i] < 0:
                continue
            at = found
            if many:
                # Equals stay in order.
                while at > 0 and bounds[kind, i] < bounds[kind, taken[0, first + at - 1]]:
                    at -= 1
                if at == counts[kind]:
                    continue
                for j in range(min(found, counts[kind] - 1), at, -1):
                    taken[0, first + j] = taken[0, first + j - 1]
            taken[0, first + at] = i
            found = min(found + 1, counts[kind])
        for at in range(first, first + found):
            taken[1, at] = partners[kind, taken[0, at]]
        first += found


@compiled
def add_prefills(
    table: Matrix,
    first: int,
    transfer_seconds: Row,
    rtt_seconds: Row,
    prefill: Matrix,
    rows: NDArray[np.intp],
    tail_seconds: Row,
    sender_joules: Row,
    drawn_joules: Row,
) -> None:
    """Complete rows of pairs, which hold what decoders take; `heliotrope.decide.pair_estimate` says how.

    Args:
        table: of `heliotrope.decide.columns.Columns`, transfers included; changed from column `first` on.
        first: the first pair's.
        transfer_seconds: of all plans; so is the next.
        rtt_seconds: TTFT has it already, its relative error is of the rest.
        prefill: what prefilling takes of every prefiller.
        rows: of it, per pair; so are the next two.
        tail_seconds: see `PrefillPairs`.
        sender_joules: see there.
        drawn_joules: of all plans; what is drawn at prefillers is filled in.
    """
    ttft, queue, ttft_error = table[0], table[2], table[3]
    energy, energy_error, incremental, attributed, prefill_only = table[5], table[6], table[7], table[8], table[9]
    for pair in range(len(rows)):
        i, j = first + pair, rows[pair]
        own = ttft[i] - rtt_seconds[i] - transfer_seconds[i]
        # Meanwhile the decoder works off what waits there.
        before = upper(prefill[TTFT, j] + transfer_seconds[i], own - tail_seconds[pair])
        spread_here, spread_there = ttft_error[i] * own, prefill[SPREAD, j]
        ttft[i] = rtt_seconds[i] + before + tail_seconds[pair]
        spread = sqrt(spread_here * spread_here + spread_there * spread_there)
        ttft_error[i] = spread / (before + tail_seconds[pair])
        queue[i] = upper(queue[i], prefill[QUEUE_TTFT, j])
        joules = prefill[JOULES, j]
        off = energy_error[i] * energy[i] + prefill[JOULES_ERROR, j] * joules
        energy[i] += joules
        energy_error[i] = off / energy[i]
        attributed[i] += joules
        incremental[i] += prefill[INCREMENTAL_JOULES, j]
        prefill_only[i] += joules
        drawn_joules[i] = joules + sender_joules[pair]
