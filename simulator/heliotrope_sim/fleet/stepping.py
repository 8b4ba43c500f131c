"""Compiled: one engine from step to step, through idleness, sleep and waking."""

import numpy as np

from heliotrope.compiled import inner
from heliotrope_sim.fleet.layout import (
    ASLEEP,
    ASLEEP_MILLIWATTS,
    ASLEEP_PICOJOULES,
    AWAKE,
    AWAKE_NS,
    BATCH,
    DRAINING,
    HELD_UNTIL,
    HOLD_HEAD,
    IDLE_MILLIWATTS,
    IDLE_PICOJOULES,
    NO_STEP,
    NOBODY,
    PREFILL_COUNT,
    QUEUED,
    READY,
    SETTLED,
    SLEEP_MILLIWATTS,
    SLEPT,
    STATE,
    STEP_KIND,
    WAIT_COUNT,
    WAIT_HEAD,
    WAKING,
    Fleet,
)
from heliotrope_sim.fleet.members import expire_holds, retire
from heliotrope_sim.fleet.steps import step


@inner
def stand(fleet: Fleet, e: int, until: int) -> None:
    """Draw the standing power up to a time."""
    engines = fleet.engines
    elapsed = until - engines[e, SETTLED]
    if elapsed <= 0:
        return
    if engines[e, STATE] == AWAKE or engines[e, STATE] == DRAINING:
        engines[e, IDLE_PICOJOULES] += engines[e, IDLE_MILLIWATTS] * elapsed
        engines[e, AWAKE_NS] += elapsed
    else:
        engines[e, ASLEEP_PICOJOULES] += engines[e, ASLEEP_MILLIWATTS] * elapsed
    engines[e, SETTLED] = until
    engines[e, STEP_KIND] = NO_STEP


@inner
def advance(fleet: Fleet, e: int, until: int, ended: np.ndarray, endings: int) -> int:
    """Run an engine up to a time: every step that starts before it, which may end after it.

    Args:
        fleet: all state.
        e: the engine.
        until: in ns.
        ended: receives sequences that have finished and go on elsewhere.
        endings: how many it holds.

    Returns:
        How many it holds then.
    """
    engines, requests = fleet.engines, fleet.requests
    while engines[e, SETTLED] < until:
        now = engines[e, SETTLED]
        endings = retire(fleet, e, ended, endings)
        if engines[e, HOLD_HEAD] != NOBODY:
            expire_holds(fleet, e, now)
        if engines[e, STATE] == WAKING and engines[e, READY] <= now:
            engines[e, STATE] = AWAKE
        if engines[e, STATE] == ASLEEP:
            stand(fleet, e, until)
            break
        if engines[e, STATE] == WAKING:
            stand(fleet, e, min(until, engines[e, READY]))
            continue
        if not engines[e, PREFILL_COUNT] and not engines[e, BATCH]:
            following = until
            if engines[e, WAIT_COUNT]:
                following = min(following, requests[engines[e, WAIT_HEAD], QUEUED])
            elif engines[e, STATE] == DRAINING:
                if engines[e, HOLD_HEAD] != NOBODY:
                    following = min(following, requests[engines[e, HOLD_HEAD], HELD_UNTIL])
                else:
                    engines[e, STATE] = ASLEEP
                    engines[e, SLEPT] = now
                    engines[e, ASLEEP_MILLIWATTS] = engines[e, SLEEP_MILLIWATTS]
                    continue
            if following > now:
                stand(fleet, e, following)
                continue
        if not step(fleet, e):
            # What is held for others has the memory.
            following = until
            if engines[e, HOLD_HEAD] != NOBODY:
                following = min(following, requests[engines[e, HOLD_HEAD], HELD_UNTIL])
            stand(fleet, e, following)
    return endings
