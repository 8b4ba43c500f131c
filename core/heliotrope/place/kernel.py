"""The step arithmetic of a request at a region; `heliotrope.place.estimate` says what it means.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown and passes through.
"""

from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.load import LONGEST_DUTY
from heliotrope.decide.steps import decode_seconds, lower, prefill_joules, prefill_seconds, upper
from heliotrope.engine.coefficients import Coefficient
from heliotrope.place.state import State
from heliotrope.units import grams_co2e

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]

_PREFILL_ERROR = int(Coefficient.PREFILL_ERROR)
_BASE_JOULES = int(Coefficient.DECODE_BASE_JOULES)
_JOULES_PER_REQUEST = int(Coefficient.DECODE_JOULES_PER_REQUEST)
_JOULES_PER_CACHED = int(Coefficient.DECODE_JOULES_PER_CACHED_TOKEN)
_IDLE_WATTS = int(Coefficient.IDLE_WATTS)
_KV_CAPACITY = int(Coefficient.KV_CAPACITY_TOKENS)
_MAX_NUM_SEQS = int(Coefficient.MAX_NUM_SEQS)

_ENGINES = int(State.ENGINES)
_CAPACITY = int(State.BATCH_CAPACITY)
_RUNNING = int(State.RUNNING)
_WAITING = int(State.WAITING)
_WAITING_TOKENS = int(State.WAITING_TOKENS)
_KV = int(State.KV_TOKENS)
_DUTY = int(State.PREFILL_DUTY)
_IDLE = int(State.IDLE_ENGINES)
_RTT = int(State.RTT_SECONDS)
_DISPATCH = int(State.DISPATCH_SECONDS)
_INTENSITY = int(State.INTENSITY)
_PUE = int(State.PUE)
_LARGEST_SHARE = int(State.LARGEST_SHARE)
_RECENT_SHARE = int(State.RECENT_SHARE)
_GRAMS = grams_co2e(1.0, 1.0, 1.0)

# Lines of `terms`: what all requests share at a region as it is.
_STEP = 0
FREE = 1
_DECODE_AFTER = 2
QUEUED_PREFILL = 3
_QUEUED_SQUARES = 4
_OVER_SLOTS = 5
_DEPARTURE = 6
_KV_PER_SEQUENCE = 7
IDLE_SHARE = 8
_DELAY = 9
PER_JOULE = 10
TERMS = 11

_ROUNDING = 1e-9
"""Room that sums of shares of engines leave to whole numbers of requests."""


@compiled
def cost_per_joule(state: Matrix, allowed: Flags, terms: Matrix) -> bool:
    """Write what one joule of IT energy costs in each region; returns whether that is grams.

    Carbon counts where intensity and PUE of all regions are known that are up, or may be, and that some request may go
    to. Else joules do: behind the PUE where that is known of all of them, or as they are.
    """
    n, d = allowed.shape
    carbon, pue = True, True
    for i in range(d):
        if state[_ENGINES, i] <= 0.0:
            continue
        candidate = False
        for r in range(n):
            if allowed[r, i]:
                candidate = True
                break
        if candidate:
            pue = pue and abs(state[_PUE, i]) < np.inf
            carbon = carbon and abs(state[_INTENSITY, i]) < np.inf
    carbon = carbon and pue
    for i in range(d):
        terms[PER_JOULE, i] = state[_PUE, i] if pue else 1.0
        if carbon:
            terms[PER_JOULE, i] *= state[_INTENSITY, i] * _GRAMS
    return carbon


@compiled
def region_terms(c: Row, state: Matrix, i: int, terms: Matrix) -> None:
    """Write column i of `terms` (shape (`TERMS`, d)) from column i of the state and the region's coefficients."""
    running, waiting, queued, kv = state[_RUNNING, i], state[_WAITING, i], state[_WAITING_TOKENS, i], state[_KV, i]
    free = 1.0 - lower(upper(state[_DUTY, i], 0.0), LONGEST_DUTY)
    ahead, most = running + waiting, c[_MAX_NUM_SEQS]
    step = decode_seconds(c, lower(ahead, most), kv)
    mean_queued = queued / upper(waiting, 1.0)
    squares = waiting * mean_queued * mean_queued
    terms[_STEP, i] = step
    terms[FREE, i] = free
    terms[_DECODE_AFTER, i] = decode_seconds(c, lower(ahead + 1.0, most), kv + queued)
    terms[QUEUED_PREFILL, i] = prefill_seconds(c, queued, waiting, squares)
    terms[_QUEUED_SQUARES, i] = squares
    terms[_OVER_SLOTS, i] = upper(ahead + 1.0 - most, 0.0)
    terms[_DEPARTURE, i] = step / upper(running, 1.0) / free
    terms[_KV_PER_SEQUENCE, i] = upper(kv / upper(running, 1.0), 1.0)
    engines = state[_ENGINES, i]
    idle = state[_IDLE, i] / engines if engines > 0.0 else np.nan
    if idle != idle:
        idle = 1.0 - ahead
    terms[IDLE_SHARE, i] = lower(upper(idle, 0.0), 1.0)
    terms[_DELAY, i] = state[_RTT, i] + state[_DISPATCH, i]


@compiled
def latency(
    c: Row, state: Matrix, terms: Matrix, i: int, prompt: float, uncached: float, out: float
) -> tuple[float, float, float]:
    """TTFT without what the request has waited, one standard deviation of it, and TPOT, in seconds."""
    queued = state[_WAITING_TOKENS, i]
    prefill = prefill_seconds(
        c, uncached + queued, state[_WAITING, i] + 1.0, uncached * uncached + terms[_QUEUED_SQUARES, i]
    )
    # A slot or KV space frees whenever a running sequence ends: on average every out · t_step / B seconds.
    over_kv = upper(state[_KV, i] + queued + prompt + out - c[_KV_CAPACITY], 0.0) / terms[_KV_PER_SEQUENCE, i]
    departures = upper(terms[_OVER_SLOTS, i], over_kv)
    wait = departures * out * terms[_DEPARTURE, i]
    ttft = terms[_DELAY, i] + wait + prefill
    tpot = (terms[_DECODE_AFTER, i] + terms[QUEUED_PREFILL, i] / out) / terms[FREE, i]
    # As `heliotrope.decide.steps.arrival`: waits for k departures spread by wait / √k, a step is met at a random point.
    off, step = c[_PREFILL_ERROR] * prefill, terms[_STEP, i]
    spread = sqrt(off * off + step * step / 12.0 + wait * wait / upper(departures, 1.0))
    return ttft, spread, tpot


@compiled
def request_joules(c: Row, uncached: float, prompt: float, out: float) -> float:
    """What a request adds to a batch that runs anyway: its prefill, and its part of every decode step."""
    # Step energy is linear in B and K, so the part is the same at every batch.
    step = c[_JOULES_PER_REQUEST] + c[_JOULES_PER_CACHED] * (prompt + 0.5 * out)
    return float(prefill_joules(c, uncached) + out * step)


@compiled
def activation_joules(c: Row, idle_share: float, uncached: float, prompt: float, out: float) -> float:
    """What it adds where it finds an engine idle: the steps' base, less what the engine would have drawn idle."""
    above_idle = c[_BASE_JOULES] - c[_IDLE_WATTS] * decode_seconds(c, 1.0, prompt + 0.5 * out)
    standing = c[_IDLE_WATTS] * prefill_seconds(c, uncached, 1.0, uncached * uncached)
    return float(idle_share * (out * above_idle - standing))


@compiled
def wake_watts(c: Row) -> float:
    """By how much an engine's power rises from idle to a running batch: the base that its sequences share."""
    return upper(c[_BASE_JOULES] / decode_seconds(c, 1.0, 0.0) - c[_IDLE_WATTS], 0.0)


@compiled
def free_slots(c: Row, state: Matrix, i: int) -> float:
    """Whole requests that fit in the batches of a region's engines; 0 where that is unknown."""
    capacity = state[_CAPACITY, i]
    if capacity != capacity:
        capacity = c[_MAX_NUM_SEQS]
    slots = state[_ENGINES, i] * (capacity - state[_RUNNING, i] - state[_WAITING, i]) + _ROUNDING
    return float(floor(slots)) if slots > 0.0 else 0.0


@compiled
def free_tokens(c: Row, state: Matrix, i: int) -> float:
    """KV memory that no sequence holds or waits for, in a region; 0 where that is unknown."""
    tokens = state[_ENGINES, i] * (c[_KV_CAPACITY] - state[_KV, i] - state[_WAITING_TOKENS, i])
    return float(tokens) if tokens > 0.0 else 0.0


@compiled
def idle_after(idle: float, engines: float, joined: float) -> float:
    """Idle engines expected after requests joined, or left where `joined` is below 0.

    Each meets an idle engine with the share of idle ones, and then there is one less.
    """
    if joined == 0.0:
        return idle
    if engines > 1.0:
        return lower(idle * (1.0 - 1.0 / engines) ** joined, engines)
    return idle * 0.0 if joined > 0.0 else idle


@compiled
def join(state: Matrix, i: int, uncached: float, count: float) -> None:
    """Project requests that were sent to a region and wait there, `uncached` prompt tokens together."""
    engines = state[_ENGINES, i]
    if not engines > 0.0:
        return
    state[_WAITING, i] += count / engines
    state[_WAITING_TOKENS, i] += uncached / engines
    state[_IDLE, i] = idle_after(state[_IDLE, i], engines, count)


@compiled
def share_room(state: Matrix, i: int, weight: float, whole: bool) -> float:
    """What of a window's weight a region may get under its largest share.

    At most its share of the window. Whole requests are rounded up for a region that had less than its share recently,
    else down, so that neither small windows close a region nor its share grows beyond.
    """
    largest = state[_LARGEST_SHARE, i]
    if largest >= 1.0:
        return np.inf
    room = largest * weight
    if not whole:
        return float(room)
    over = state[_RECENT_SHARE, i] >= largest  # NaN compares false: there was nothing yet
    return float(floor(room)) if over else float(ceil(room))
