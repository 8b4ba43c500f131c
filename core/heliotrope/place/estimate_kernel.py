"""The loop of `heliotrope.place.estimate`. Import it where it is first needed: see `heliotrope.compiled`."""

from math import floor

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.steps import decode_seconds, upper
from heliotrope.engine.coefficients import Coefficient
from heliotrope.place.kernel import (
    FREE,
    IDLE_SHARE,
    PER_JOULE,
    QUEUED_PREFILL,
    activation_joules,
    cost_per_joule,
    free_slots,
    free_tokens,
    latency,
    region_terms,
    request_joules,
    share_room,
    wake_watts,
)
from heliotrope.place.state import State

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]

_DECODE_ERROR = int(Coefficient.DECODE_ERROR)
_KV_CAPACITY = int(Coefficient.KV_CAPACITY_TOKENS)
_ENGINES = int(State.ENGINES)
_RUNNING = int(State.RUNNING)
_WAITING = int(State.WAITING)
_WAITING_TOKENS = int(State.WAITING_TOKENS)
_KV = int(State.KV_TOKENS)


@compiled
def within_tpot(
    c: Row, state: Matrix, terms: Matrix, i: int, slots: float, slo: float, context: float, out: float
) -> float:
    """The most of so many further requests with which the TPOT estimate stays within its SLO, by bisection."""
    engines = state[_ENGINES, i]
    ahead, kv = state[_RUNNING, i] + state[_WAITING, i], state[_KV, i] + state[_WAITING_TOKENS, i]
    low, high = 0.0, slots + 1.0
    while high - low > 1.0:
        middle = floor(0.5 * (low + high))
        each = middle / engines
        step = decode_seconds(c, ahead + each, kv + each * context)
        if (step + terms[QUEUED_PREFILL, i] / out) / terms[FREE, i] <= slo:
            low = middle
        else:
            high = middle
    return low


@compiled
def write_estimates(
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
    window_seconds: float,
    in_tokens: bool,
    matrices: NDArray[np.float64],
    flags: NDArray[np.bool_],
    requests: Matrix,
    columns: Matrix,
) -> bool:
    """Fill in everything; returns whether carbon counts.

    Args:
        rows: coefficients, shape (d, C).
        state: shape (`STATES`, d).
        terms: shape (`TERMS`, d), written to.
        prompt_tokens: column of the window; so are the next six.
        output_tokens: see there.
        waited: see there.
        ttft_slo: see there.
        tpot_slo: see there.
        cached_tokens: see there.
        allowed: see there.
        deviations: of the policy; so are the next three.
        unknown_output: see there.
        window_seconds: see there.
        in_tokens: whether capacity is counted in tokens.
        matrices: shape (6, n, d), written to: TTFT, TPOT, latency, joules, cost, activation cost.
        flags: shape (2, n, d), written to: possible, feasible.
        requests: shape (2, n), written to: output tokens, weights.
        columns: shape (3, d), written to: slots, headroom, wake cost.
    """
    n, d = cached_tokens.shape
    outputs, weights = requests[0], requests[1]
    prompts, outs = 0.0, 0.0
    for r in range(n):
        out = output_tokens[r] if output_tokens[r] == output_tokens[r] else unknown_output
        outputs[r] = max(out, 1.0)
        weights[r] = prompt_tokens[r] + outputs[r] if in_tokens else 1.0
        prompts += prompt_tokens[r]
        outs += outputs[r]
    carbon = cost_per_joule(state, allowed, terms)
    for i in range(d):
        c = rows[i]
        region_terms(c, state, i, terms)
        up, known = not state[_ENGINES, i] <= 0.0, state[_ENGINES, i] > 0.0
        idle, per_joule = terms[IDLE_SHARE, i], terms[PER_JOULE, i]
        margin = 1.0 + deviations * c[_DECODE_ERROR] if deviations > 0.0 else 1.0
        tightest = np.inf
        some = False
        for r in range(n):
            prompt, out, cached = prompt_tokens[r], outputs[r], cached_tokens[r, i]
            uncached = upper(prompt - cached, 1.0) if cached > 0.0 else prompt
            ttft, spread, tpot = latency(c, state, terms, i, prompt, uncached, out)
            ttft += waited[r]
            joules = request_joules(c, uncached, prompt, out)
            matrices[0, r, i] = ttft
            matrices[1, r, i] = tpot
            matrices[2, r, i] = ttft + out * tpot
            matrices[3, r, i] = joules
            matrices[4, r, i] = joules * per_joule
            matrices[5, r, i] = activation_joules(c, idle, uncached, prompt, out) * per_joule
            possible = allowed[r, i] and up and not prompt + out > c[_KV_CAPACITY]
            if deviations > 0.0:
                ttft += deviations * spread
            feasible = possible and known and ttft <= ttft_slo[r] and tpot * margin <= tpot_slo[r]
            flags[0, r, i] = possible
            flags[1, r, i] = feasible
            if feasible:
                some = True
                tightest = min(tightest, tpot_slo[r] / margin)
        slots = free_slots(c, state, i)
        headroom = slots
        if some and slots > 1.0:
            headroom = within_tpot(c, state, terms, i, slots, tightest, (prompts + 0.5 * outs) / n, outs / n)
            headroom = max(headroom, 1.0)
        weight = float(n)
        if in_tokens and n > 0:
            weight = prompts + outs
            headroom = min(free_tokens(c, state, i), headroom * weight / n)
        columns[0, i] = slots
        columns[1, i] = min(headroom, share_room(state, i, weight, not in_tokens))
        columns[2, i] = wake_watts(c) * idle * state[_ENGINES, i] * window_seconds * per_joule
    return carbon
