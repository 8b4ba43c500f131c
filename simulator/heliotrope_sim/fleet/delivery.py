"""Compiled: requests reach engines, engines run up to a time, energy is read."""

import numpy as np

from heliotrope.compiled import compiled, inner
from heliotrope_sim.engine.fixed_point import PICOJOULES_PER_JOULE
from heliotrope_sim.fleet.layout import (
    AWAKE_NS,
    BATCH,
    BLOCK_SIZE,
    BLOCKS,
    BUSY_NS,
    CURSOR,
    DECODE_CURSOR,
    DECODE_STEP,
    DECODES_ONLY,
    DISPATCH,
    END_ENGINE,
    ENDING,
    ENGINE,
    FIRST_ENGINE,
    NO_STEP,
    NOBODY,
    NODE_ENGINES,
    OUTPUT,
    PREFILL_COUNT,
    PREFILL_PICOJOULES,
    PREFILL_STEP,
    PROMPT,
    QUEUED,
    READY,
    ROLE,
    ROW,
    SETTLED,
    SPLIT,
    STATE,
    STEP_KIND,
    STEP_NS,
    STEP_PICOJOULES,
    TAKES,
    WAIT_COUNT,
    WAIT_TOKENS,
    WAKING,
    Fleet,
)
from heliotrope_sim.fleet.queues import enqueue
from heliotrope_sim.fleet.stepping import advance

LEAST_LOADED = 1
REFUSED = 1
READINGS = 6
"""Columns of what `read_energy` gives: prefill, decode, idle, asleep, awake ns, busy ns."""


@compiled
def submit(fleet: Fleet, e: int, r: int, now: int) -> None:
    """Queue a request at an engine, or refuse what could never fit."""
    engines, requests, charges = fleet.engines, fleet.requests, fleet.charges
    row = engines[e, ROW]
    requests[r, ENGINE] = e
    requests[r, QUEUED] = now
    if requests[r, PROMPT] + requests[r, OUTPUT] > charges[row, BLOCKS] * charges[row, BLOCK_SIZE]:
        requests[r, ENDING] = REFUSED
        return
    enqueue(fleet, e, r)
    engines[e, WAIT_COUNT] += 1
    engines[e, WAIT_TOKENS] += requests[r, PROMPT]


@inner
def _ready(fleet: Fleet, e: int, now: int) -> bool:
    """Whether an engine is awake at a time, as far as commands up to then tell."""
    return fleet.engines[e, STATE] != WAKING or fleet.engines[e, READY] <= now  # type: ignore[no-any-return]


@inner
def _in_turn(fleet: Fleet, s: int, role: int, cursor: int, now: int) -> int:
    """The next engine of a site that takes requests, over nodes first; -1: none does.

    One that still wakes gets none as long as another is awake.
    """
    engines, sites = fleet.engines, fleet.sites
    first, per_node = sites[s, FIRST_ENGINE], sites[s, NODE_ENGINES]
    count = sites[s, END_ENGINE] - first
    nodes = count // per_node
    waking = NOBODY
    for _ in range(count):
        position = sites[s, cursor]
        sites[s, cursor] = (position + 1) % count
        e = first + (position % nodes) * per_node + position // nodes
        if engines[e, TAKES] and engines[e, ROLE] == role:
            if _ready(fleet, e, now):
                return e  # type: ignore[no-any-return]
            if waking == NOBODY or engines[e, READY] < engines[waking, READY]:
                waking = e
    return waking


@inner
def _least_loaded(fleet: Fleet, s: int, role: int, now: int, ended: np.ndarray, endings: int) -> tuple[int, int]:
    """The engine of a site with the fewest requests at a time, and the new length of `ended`."""
    engines, sites = fleet.engines, fleet.sites
    best, fewest, least_wait = NOBODY, 0, 0
    for e in range(sites[s, FIRST_ENGINE], sites[s, END_ENGINE]):
        if engines[e, ROLE] != role:
            continue
        endings = advance(fleet, e, now, ended, endings)
        if not engines[e, TAKES]:
            continue
        load = engines[e, WAIT_COUNT] + engines[e, PREFILL_COUNT] + engines[e, BATCH]
        wait = 0 if _ready(fleet, e, now) else engines[e, READY] - now
        if best == NOBODY or wait < least_wait or (wait == least_wait and load < fewest):
            best, fewest, least_wait = e, load, wait
    return best, endings


@compiled
def deliver(
    fleet: Fleet, s: int, role: int, rows: np.ndarray, times: np.ndarray, ended: np.ndarray, endings: int
) -> int:
    """Give requests to a site's engines in the order given, which is that of their times; as `advance` for `ended`."""
    sites = fleet.sites
    cursor = DECODE_CURSOR if role == DECODES_ONLY else CURSOR
    for i in range(len(rows)):
        if sites[s, DISPATCH] == LEAST_LOADED:
            e, endings = _least_loaded(fleet, s, role, times[i], ended, endings)
        else:
            e = _in_turn(fleet, s, role, cursor, times[i])
        if e != NOBODY:
            submit(fleet, e, rows[i], times[i])
    return endings


@compiled
def run_role(fleet: Fleet, s: int, role: int, until: int, ended: np.ndarray, endings: int) -> int:
    """Run a site's engines of one role up to a time; as `advance` for `ended`."""
    engines, sites = fleet.engines, fleet.sites
    for e in range(sites[s, FIRST_ENGINE], sites[s, END_ENGINE]):
        if engines[e, ROLE] == role:
            endings = advance(fleet, e, until, ended, endings)
    return endings


@compiled
def run_together(
    fleet: Fleet, starts: np.ndarray, rows: np.ndarray, times: np.ndarray, until: int, ended: np.ndarray
) -> None:
    """Deliver to all sites whose engines do both phases, then run these up to a time.

    Args:
        fleet: all state.
        starts: site s gets `rows[starts[s]:starts[s + 1]]`, in the order of their times.
        rows: requests.
        times: when they reach the site, before `until`.
        until: in ns.
        ended: written only by engines that hold blocks for others.
    """
    # Not a literal, for which everything below would be compiled once more.
    none: int = np.int64(0)  # type: ignore[assignment]
    for s in range(len(fleet.sites)):
        if fleet.sites[s, SPLIT]:
            continue
        lo, hi = starts[s], starts[s + 1]
        deliver(fleet, s, none, rows[lo:hi], times[lo:hi], ended, none)
        run_role(fleet, s, none, until, ended, none)


@compiled
def read_energy(fleet: Fleet, until: int, joules: np.ndarray, picojoules: np.ndarray) -> None:
    """Add what engines drew since the last reading and up to a time that all of them have reached.

    A step in progress has drawn its share of the time. What it draws later counts in the next reading.

    Args:
        fleet: all state.
        until: in ns.
        joules: whole joules by engine, shape (engines, 4): prefill, decode, idle, asleep.
        picojoules: what is left of each, and awake and busy ns, shape (engines, 6).
    """
    engines = fleet.engines
    for e in range(len(engines)):
        ahead = max(engines[e, SETTLED] - until, 0)
        undrawn = 0
        if ahead > 0 and engines[e, STEP_KIND] != NO_STEP:
            undrawn = int(engines[e, STEP_PICOJOULES] * (ahead / engines[e, STEP_NS]))
        for k in range(4):
            column = PREFILL_PICOJOULES + k
            later = 0
            if (k == 0 and engines[e, STEP_KIND] == PREFILL_STEP) or (k == 1 and engines[e, STEP_KIND] == DECODE_STEP):
                later = undrawn
            drawn = engines[e, column] - later
            engines[e, column] = later
            joules[e, k] += drawn // PICOJOULES_PER_JOULE
            picojoules[e, k] += drawn % PICOJOULES_PER_JOULE
        picojoules[e, 4] += engines[e, AWAKE_NS] - ahead
        picojoules[e, 5] += engines[e, BUSY_NS] - ahead
        engines[e, AWAKE_NS] = ahead
        engines[e, BUSY_NS] = ahead
