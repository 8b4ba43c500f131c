"""The loops of projections and dispatches. Import it where it is first needed: see `heliotrope.compiled`."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.load import LONGEST_DUTY
from heliotrope.decide.steps import lower, prefill_seconds, upper
from heliotrope.place.dispatches import Dispatch
from heliotrope.place.kernel import idle_after, latency, region_terms
from heliotrope.place.kernel import join as join_queue
from heliotrope.place.state import State

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

_REGION = int(Dispatch.REGION)
_ARRIVES = int(Dispatch.ARRIVES_S)
_FIRST_TOKEN = int(Dispatch.FIRST_TOKEN_S)
_ENDS = int(Dispatch.ENDS_S)
_PROMPT = int(Dispatch.PROMPT_TOKENS)
_UNCACHED = int(Dispatch.UNCACHED_TOKENS)
_OUTPUT = int(Dispatch.OUTPUT_TOKENS)
_PREFILL = int(Dispatch.PREFILL_SECONDS)
_RTT = int(State.RTT_SECONDS)
_DISPATCH = int(State.DISPATCH_SECONDS)

# Lines of a projection's load.
_RUNNING = 0
_WAITING = 1
_WAITING_TOKENS = 2
_KV_TOKENS = 3
_DUTY = 4
_IDLE = 5
LINES = 6


@compiled
def uncached_tokens(prompt: float, cached: float) -> float:
    """Tokens to compute: at least one, all where nobody knows."""
    return max(prompt - cached, 1.0) if cached > 0.0 else prompt


@compiled
def join_all(state: Matrix, prompt_tokens: Row, cached_tokens: Matrix, places: Integers) -> None:
    """Project a window's requests on the state, each in the queue of its region."""
    for r in range(len(places)):
        if places[r] >= 0:
            join_queue(state, places[r], uncached_tokens(prompt_tokens[r], cached_tokens[r, places[r]]), 1.0)


@compiled
def write_dispatches(
    rows: Matrix,
    state: Matrix,
    terms: Matrix,
    prompt_tokens: Row,
    output_tokens: Row,
    cached_tokens: Matrix,
    unknown_output: float,
    places: Integers,
    now: float,
    matrix: Matrix,
) -> int:
    """Write a column for every request that has a region; returns how many.

    Args:
        rows: coefficients, shape (d, C).
        state: shape (`STATES`, d), delays known; projected on.
        terms: shape (`TERMS`, d), written to.
        prompt_tokens: of the window; so are the next two.
        output_tokens: see there.
        cached_tokens: see there.
        unknown_output: tokens of an answer that nobody knows.
        places: length n.
        now: seconds.
        matrix: shape (`DISPATCH_LINES`, n), written to.
    """
    for i in range(rows.shape[0]):
        region_terms(rows[i], state, i, terms)
    count = 0
    for r in range(len(places)):
        i = places[r]
        if i < 0:
            continue
        c, prompt = rows[i], prompt_tokens[r]
        out = max(output_tokens[r] if output_tokens[r] == output_tokens[r] else unknown_output, 1.0)
        uncached = uncached_tokens(prompt, cached_tokens[r, i])
        ttft, _, tpot = latency(c, state, terms, i, prompt, uncached, out)
        first = now + ttft
        if not first < np.inf:
            first = np.inf
        end = first + out * tpot
        if not end < np.inf:
            end = np.inf
        own = prefill_seconds(c, uncached, 1.0, uncached * uncached)
        column = matrix[:, count]
        column[_REGION] = i
        column[_ARRIVES] = now + state[_RTT, i] + state[_DISPATCH, i]
        column[_FIRST_TOKEN] = first
        column[_ENDS] = end
        column[_PROMPT] = prompt
        column[_UNCACHED] = uncached
        column[_OUTPUT] = out
        column[_PREFILL] = own if own == own else 0.0
        count += 1
        join_queue(state, i, uncached, 1.0)
        region_terms(c, state, i, terms)
    return count


@compiled
def add_presence(dispatch: Row, at: float, duty_seconds: float, sign: float, change: Row) -> None:
    """Add to a region's change, or take away, what a request is there at a time."""
    first, end = dispatch[_FIRST_TOKEN], dispatch[_ENDS]
    if at < first:
        change[_WAITING] += sign
        change[_WAITING_TOKENS] += sign * dispatch[_UNCACHED]
        return
    if at < end:
        produced = dispatch[_OUTPUT] * (at - first) / (end - first) if end < np.inf else 0.0
        change[_RUNNING] += sign
        change[_KV_TOKENS] += sign * (dispatch[_PROMPT] + produced)
    if at - first < duty_seconds:
        change[_DUTY] += sign * dispatch[_PREFILL] / duty_seconds


@compiled
def write_projection(
    engines: Row,
    measured_at: Row,
    dispatches: Matrix,
    now: float,
    peers: float,
    duty_seconds: float,
    change: Matrix,
    load: Matrix,
) -> None:
    """Carry the load forward in place.

    Args:
        engines: length d.
        measured_at: length d, seconds.
        dispatches: shape (`DISPATCH_LINES`, m).
        now: seconds.
        peers: requests of others for each own one.
        duty_seconds: what duty is a share of.
        change: zeros of shape (d, `LINES`), written to.
        load: shape (`LINES`, d), written to.
    """
    for j in range(dispatches.shape[1]):
        dispatch = dispatches[:, j]
        i = int(dispatch[_REGION])
        add_presence(dispatch, now, duty_seconds, 1.0, change[i])
        if dispatch[_ARRIVES] <= measured_at[i]:
            add_presence(dispatch, measured_at[i], duty_seconds, -1.0, change[i])
    for i in range(len(engines)):
        if not engines[i] > 0.0:
            continue
        more = change[i]
        each = (1.0 + peers) / engines[i]
        for line in range(_IDLE):
            load[line, i] = upper(load[line, i] + more[line] * each, 0.0)
        load[_DUTY, i] = lower(load[_DUTY, i], LONGEST_DUTY)
        joined = (more[_RUNNING] + more[_WAITING]) * (1.0 + peers)
        load[_IDLE, i] = idle_after(load[_IDLE, i], engines[i], joined)


@compiled
def present(dispatches: Matrix, measured_at: Row, counts: Row) -> None:
    """Count the requests that each region had when it was measured."""
    for j in range(dispatches.shape[1]):
        i = int(dispatches[_REGION, j])
        if dispatches[_ARRIVES, j] <= measured_at[i] < dispatches[_ENDS, j]:
            counts[i] += 1.0


@compiled
def needed(dispatches: Matrix, measured_at: Row, duty_seconds: float, longest: float, keep: Flags) -> None:
    """Write which requests may add to the load now something else than to the load that was measured."""
    for j in range(dispatches.shape[1]):
        since = measured_at[int(dispatches[_REGION, j])]
        gone = dispatches[_ENDS, j] <= since and dispatches[_FIRST_TOKEN, j] + duty_seconds <= since
        keep[j] = not (gone or dispatches[_ARRIVES, j] + longest <= since)
