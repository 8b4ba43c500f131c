"""The loop of `heliotrope.place.in_turn`. Import it where it is first needed: see `heliotrope.compiled`."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.engine.coefficients import Coefficient
from heliotrope.place.assignment import NOWHERE, Reason
from heliotrope.place.kernel import (
    PER_JOULE,
    cost_per_joule,
    free_slots,
    free_tokens,
    join,
    latency,
    region_terms,
    request_joules,
    share_room,
)
from heliotrope.place.state import State

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

_DECODE_ERROR = int(Coefficient.DECODE_ERROR)
_KV_CAPACITY = int(Coefficient.KV_CAPACITY_TOKENS)
_MAX_NUM_SEQS = int(Coefficient.MAX_NUM_SEQS)
_ENGINES = int(State.ENGINES)
_CAPACITY = int(State.BATCH_CAPACITY)
_RUNNING = int(State.RUNNING)
_WAITING = int(State.WAITING)
_INTENSITY = int(State.INTENSITY)

_NOWHERE = NOWHERE
_OBJECTIVE = int(Reason.OBJECTIVE)
_CLEANEST = int(Reason.CLEANEST_WITH_HEADROOM)
_LEAST_LATE = int(Reason.LEAST_LATE)
_ROUND_ROBIN = int(Reason.ROUND_ROBIN)
_REASON_NOWHERE = int(Reason.NOWHERE)


@compiled
def next_in_turn(possible: Flags, cursor: int) -> int:
    """The first possible region after the cursor, going round; `NOWHERE` if none is."""
    d = len(possible)
    for step in range(1, d + 1):
        i = (cursor + step) % d
        if possible[i]:
            return i
    return _NOWHERE


@compiled
def take_turns(possible: Flags, cursor: int, regions: Integers) -> int:
    """Write each request's next possible region, shape (n, d); returns the cursor."""
    for r in range(len(regions)):
        regions[r] = next_in_turn(possible[r], cursor)
        if regions[r] >= 0:
            cursor = regions[r]
    return cursor


@compiled
def best(
    eligible: Flags, seconds: Row, intensity: Row, pressure: Row, carbon: bool, by_pressure: bool, weight: float
) -> int:
    """The eligible region of the least score, by latency where it ties; `NOWHERE` if none is eligible.

    Args:
        eligible: length d; so are the next three.
        seconds: latency.
        intensity: read only where carbon counts.
        pressure: read only by the soft multiplier.
        carbon: whether it counts.
        by_pressure: the soft multiplier's score, else greedy's.
        weight: w, or α.
    """
    slowest, dirtiest = 0.0, 0.0
    for i in range(len(eligible)):
        if eligible[i]:
            slowest = max(slowest, seconds[i])
            if carbon:
                dirtiest = max(dirtiest, intensity[i])
    chosen, least = _NOWHERE, np.inf
    for i in range(len(eligible)):
        if not eligible[i]:
            continue
        dirt = intensity[i] / dirtiest if dirtiest > 0.0 else 0.0
        if by_pressure:
            score = pressure[i] * (1.0 + weight * dirt)
        else:
            score = (1.0 - weight) * dirt
            if weight > 0.0 and slowest > 0.0:
                score += weight * seconds[i] / slowest
        if chosen < 0 or score < least or (score == least and seconds[i] < seconds[chosen]):
            chosen, least = i, score
    return chosen


@compiled
def assign(
    rows: Matrix,
    state: Matrix,
    terms: Matrix,
    prompt_tokens: Row,
    output_tokens: Row,
    waited: Row,
    ttft_slo: Row,
    tpot_slo: Row,
    cached_tokens: Matrix,
    allowed: Flags,
    deviations: float,
    unknown_output: float,
    in_tokens: bool,
    projects: bool,
    turns: bool,
    by_pressure: bool,
    weight: float,
    limited: bool,
    keeps_slo: bool,
    cursor: int,
    regions: Integers,
    reasons: Integers,
) -> tuple[int, float, bool]:
    """Assign every request that has no region yet, one after the other.

    Args:
        rows: coefficients, shape (d, C).
        state: shape (`STATES`, d), projected on.
        terms: shape (`TERMS`, d), written to.
        prompt_tokens: column of the window; so are the next six.
        output_tokens: see there.
        waited: see there.
        ttft_slo: see there.
        tpot_slo: see there.
        cached_tokens: see there.
        allowed: see there.
        deviations: of the policy; so are the next four.
        unknown_output: see there.
        in_tokens: whether capacity is counted in tokens.
        projects: whether a request sees those before it.
        turns: whether the last fallback is round robin.
        by_pressure: of the rule; so are the next three.
        weight: see there.
        limited: see there.
        keeps_slo: see there.
        cursor: the region that had the last turn.
        regions: length n, read and written to: `NOWHERE` is to be assigned.
        reasons: length n, written to for those.

    Returns:
        The cursor, the cost of all requests that have a region, and whether carbon counts.
    """
    n, d = allowed.shape
    carbon = cost_per_joule(state, allowed, terms)
    room, left = np.empty(d), np.empty(d)
    possible, eligible, good = np.empty(d, np.bool_), np.empty(d, np.bool_), np.empty(d, np.bool_)
    first_token, seconds, pressure = np.empty(d), np.empty(d), np.empty(d)
    total = 0.0
    for r in range(n):
        if in_tokens:
            out = output_tokens[r] if output_tokens[r] == output_tokens[r] else unknown_output
            total += prompt_tokens[r] + max(out, 1.0)
        else:
            total += 1.0
    for i in range(d):
        room[i] = share_room(state, i, total, not in_tokens)
        left[i] = free_tokens(rows[i], state, i) if in_tokens else free_slots(rows[i], state, i)
        region_terms(rows[i], state, i, terms)

    cost = 0.0
    for phase in range(2):
        # Those that have a region come first, whatever their place: the others must see them.
        for r in range(n):
            if (regions[r] >= 0) != (phase == 0):
                continue
            prompt = prompt_tokens[r]
            out = output_tokens[r] if output_tokens[r] == output_tokens[r] else unknown_output
            out = max(out, 1.0)
            need = prompt + out if in_tokens else 1.0
            chosen = regions[r]
            if phase == 1:
                some = False
                for i in range(d):
                    c, cached = rows[i], cached_tokens[r, i]
                    up = not state[_ENGINES, i] <= 0.0
                    possible[i] = allowed[r, i] and up and not prompt + out > c[_KV_CAPACITY]
                    good[i] = False
                    eligible[i] = False
                    if not possible[i]:
                        continue
                    uncached = max(prompt - cached, 1.0) if cached > 0.0 else prompt
                    ttft, spread, tpot = latency(c, state, terms, i, prompt, uncached, out)
                    ttft += waited[r]
                    first_token[i] = ttft
                    seconds[i] = ttft + out * tpot
                    if by_pressure:
                        capacity = state[_CAPACITY, i]
                        if capacity != capacity:
                            capacity = c[_MAX_NUM_SEQS]
                        active = state[_RUNNING, i] + state[_WAITING, i] + 1.0
                        pressure[i] = active / capacity if capacity > 0.0 else np.inf
                    if deviations > 0.0:
                        ttft += deviations * spread
                        tpot *= 1.0 + deviations * c[_DECODE_ERROR]
                    known = state[_ENGINES, i] > 0.0 and seconds[i] < np.inf
                    if by_pressure:
                        known = known and pressure[i] < np.inf
                    kept = ttft <= ttft_slo[r] and tpot <= tpot_slo[r]
                    good[i] = known and (kept or not keeps_slo) and (left[i] >= need or not limited)
                    eligible[i] = good[i] and room[i] >= need
                    some = some or good[i]
                chosen, reason = _NOWHERE, _OBJECTIVE
                if some:
                    chosen = best(eligible, seconds, state[_INTENSITY], pressure, carbon, by_pressure, weight)
                    if chosen < 0:
                        # The largest share yields to the latency promise.
                        chosen, reason = best(good, seconds, state[_INTENSITY], pressure, carbon, False, 0.0), _CLEANEST
                if chosen < 0 and not turns:
                    reason = _LEAST_LATE
                    for i in range(d):
                        known = possible[i] and first_token[i] == first_token[i]
                        if known and (chosen < 0 or first_token[i] < first_token[chosen]):
                            chosen = i
                if chosen < 0:
                    chosen, reason = next_in_turn(possible, cursor), _ROUND_ROBIN
                    if chosen >= 0:
                        cursor = chosen
                    else:
                        reason = _REASON_NOWHERE
                regions[r] = chosen
                reasons[r] = reason
            if chosen < 0:
                continue
            cached = cached_tokens[r, chosen]
            uncached = max(prompt - cached, 1.0) if cached > 0.0 else prompt
            cost += request_joules(rows[chosen], uncached, prompt, out) * terms[PER_JOULE, chosen]
            room[chosen] -= need
            left[chosen] -= need
            if projects:
                join(state, chosen, uncached, 1.0)
                region_terms(rows[chosen], state, chosen, terms)
    return cursor, cost, carbon
