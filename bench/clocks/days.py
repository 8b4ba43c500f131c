"""One simulated day with its clocks set in one way, and what came of it."""

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np
from bench.clocks.fleet_day import run_day
from bench.clocks.planner import CONTROL_SECONDS, HEADROOM, Planner, Seen, full_watts
from bench.clocks.setups import PROMISES, Fleet, Promised, capacity, day, topology, typical_work

from heliotrope.power.options import Work
from heliotrope_sim.fleet.results import Line, Results
from heliotrope_sim.fleet.settings import Command, Controller
from heliotrope_sim.fleet.workload import Workload

GPU_LINES = (Line.PREFILL, Line.DECODE, Line.IDLE)


@dataclass(frozen=True, slots=True)
class Day:
    """One run. It is a key: equal ones give equal results."""

    fleet: Fleet
    load: float
    seed: int
    hour_seconds: float
    hours: int
    clock_mhz: int | None = None
    """Held all day by every GPU; None: left alone, or moved."""
    promised: Promised | None = None
    """What clocks are moved for; None: they are not."""
    shared: bool = False
    seen: Seen = Seen.MODELLED
    headroom: float = HEADROOM
    """Share of the promise that is kept free."""
    saves: bool = True
    """False: clocks move for the cut alone."""
    cut: float = 0.0
    """Share of the fleet's watts that it may not draw."""
    capped: bool = False
    """That cut as one cap for every GPU."""


@lru_cache(maxsize=1)
def _work() -> Work:
    return typical_work()


@lru_cache(maxsize=4)
def _workload(fleet: Fleet, load: float, seed: int, hour_seconds: float, hours: int) -> Workload:
    peak = load * capacity(fleet, _work(), PROMISES[0].promise)
    return day(peak, seed=seed, hour_seconds=hour_seconds, hours=hours)


def run(task: Day, promises: tuple[Promised, ...]) -> dict[str, Any]:
    """Simulate it; joules of the GPUs by line, and what was missed of each promise."""
    fleet, workload = task.fleet, _workload(task.fleet, task.load, task.seed, task.hour_seconds, task.hours)
    planner = None
    if task.promised is not None:
        promise = task.promised.promise
        watts = inf if task.cut == 0.0 else (1.0 - task.cut) * full_watts(fleet, _work(), promise)
        planner = Planner(
            fleet,
            _work(),
            promise,
            workload,
            seen=task.seen,
            shared=task.shared,
            budget_watts=watts,
            capped=task.capped,
            saves=task.saves,
            headroom=task.headroom,
        )
    controller: Controller | None = planner
    if task.clock_mhz is not None:
        controller = _held(Command(0, range(fleet.engines), clock_mhz=task.clock_mhz))
    results = run_day(
        topology(fleet),
        workload,
        controller,
        control_seconds=CONTROL_SECONDS,
        interval_seconds=task.hour_seconds,
    )
    return _row(results, promises, planner)


def _held(command: Command) -> Controller:
    return lambda now, _: [command] if now == 0.0 else []


def _row(results: Results, promises: tuple[Promised, ...], planner: Planner | None) -> dict[str, Any]:
    energy = results.energy_joules.sum(axis=(0, 1))
    lines = {line.name.lower(): round(float(energy[line]), 3) for line in GPU_LINES}
    ttft, tpot = results.ttft_seconds, results.tpot_seconds
    missed = {}
    for each in promises:
        late, slow = ~(ttft <= each.promise.ttft_seconds), ~(tpot <= each.promise.tpot_seconds)
        missed[each.name] = {
            "either": round(float((late | slow).mean()), 6),
            "ttft": round(float(late.mean()), 6),
            "tpot": round(float(slow.mean()), 6),
        }
    return {
        "requests": len(results.workload),
        "joules": round(float(energy[list(GPU_LINES)].sum()), 3),
        "joules_by_line": lines,
        "host_joules": round(float(energy[Line.HOST]), 3),
        "hourly_joules": [round(float(row[:, list(GPU_LINES)].sum()), 1) for row in results.energy_joules],
        "missed": missed,
        "ttft_p99_seconds": round(float(np.nanquantile(ttft, 0.99)), 6),
        "tpot_p99_seconds": round(float(np.nanquantile(tpot, 0.99)), 6),
        "changes": 0 if planner is None else planner.changes,
        "clocks": [] if planner is None else planner.history,
        "trace": results.trace_hash(),
    }
