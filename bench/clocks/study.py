"""All days that are compared, run in several processes, and the figures out of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import mean
from typing import Any

from bench.clocks.days import Day, run
from bench.clocks.planner import Seen
from bench.clocks.setups import FLEETS, HOURS, LOADS, MEASURED_CLOCKS, PROMISES, Fleet, Promised

from heliotrope_sim.fleet.simulate import compile_kernel

EQUAL_POINTS = 0.01
"""Violations count as equal up to one point more than with clocks left alone."""
HEADROOMS = (0.15, 0.3, 0.5, 0.7)
"""Shares of the promise that a policy may keep free; the first is the default."""
CUT = 0.3
CUT_LOADS = (0.7, 0.95)
Rows = dict[Day, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is run."""

    fleets: tuple[Fleet, ...] = FLEETS
    promises: tuple[Promised, ...] = PROMISES
    loads: tuple[float, ...] = LOADS
    cut_loads: tuple[float, ...] = CUT_LOADS
    seeds: tuple[int, ...] = (0, 1, 2)
    hour_seconds: float = 600.0
    hours: int = HOURS

    def day(self, fleet: Fleet, load: float, seed: int) -> Day:
        """With clocks left alone."""
        return Day(fleet, load, seed, self.hour_seconds, self.hours)


QUICK = Extent(fleets=FLEETS[:1], loads=(0.7,), cut_loads=(0.95,), seeds=(0,), hour_seconds=200.0)


def held_clocks(fleet: Fleet) -> list[int]:
    """Clocks that may be held all day, the highest left out: those of the energy profile."""
    low, high = fleet.model.clock.max_mhz // 3, fleet.model.clock.max_mhz
    return [round(low + i * (high - low) / (MEASURED_CLOCKS - 1)) for i in range(MEASURED_CLOCKS - 1)]


def study(extent: Extent, *, processes: int, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Run everything. Equal extents give equal results, whatever the machine and the number of processes.

    Args:
        extent: how much.
        processes: 1 runs in this one.
        progress: called with the number of days done and to do.
    """
    rows: Rows = {}
    compile_kernel()
    with ExitStack() as stack:
        each_in_turn: Callable[..., Iterator[dict[str, Any]]] = map
        if processes > 1:
            each_in_turn = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn"))).map

        def work(tasks: Iterable[Day]) -> None:
            left = [task for task in dict.fromkeys(tasks) if task not in rows]
            found = each_in_turn(run, left, [extent.promises] * len(left))
            for i, (task, row) in enumerate(zip(left, found, strict=True)):
                rows[task] = row
                if progress is not None:
                    progress(i + 1, len(left))

        # What there is to choose is chosen on the first seed's day, as an operator would: the clock to hold, and how
        # much of the promise is kept free. Then it is judged on all of them.
        work(_first(extent))
        work(
            replace(day, seed=seed)
            for case in _cases(extent)
            for day in _chosen(rows, extent, *case).values()
            for seed in extent.seeds
        )
    return {
        "cases": [_case(rows, extent, *case) for case in _cases(extent)],
        "cuts": [_cut(rows, extent, *case) for case in _cut_cases(extent)],
    }


def _cut_cases(extent: Extent) -> list[tuple[Fleet, float, Promised]]:
    fleets = [fleet for fleet in extent.fleets if fleet.prefill]
    return [(fleet, load, each) for fleet in fleets for load in extent.cut_loads for each in extent.promises]


def _cases(extent: Extent) -> list[tuple[Fleet, float, Promised]]:
    return [(f, load, each) for f in extent.fleets for load in extent.loads for each in extent.promises]


def _first(extent: Extent) -> Iterable[Day]:
    for fleet in extent.fleets:
        for load in sorted({*extent.loads, *(extent.cut_loads if fleet.prefill else ())}):
            for seed in extent.seeds:
                yield extent.day(fleet, load, seed)
    for fleet, load, promised in _cases(extent):
        for days in _choices(extent.day(fleet, load, extent.seeds[0]), promised).values():
            yield from days
    for fleet, load, promised in _cut_cases(extent):
        for seed in extent.seeds:
            yield from _cuts(extent.day(fleet, load, seed), promised).values()


def _choices(alone: Day, promised: Promised) -> dict[str, list[Day]]:
    """What each arm may choose from, by arm; an arm of one has no choice."""
    moved = replace(alone, promised=promised, seen=Seen.MEASURED)
    arms = {
        "left_alone": [alone],
        "one_held": [alone, *(replace(alone, clock_mhz=mhz) for mhz in held_clocks(alone.fleet))],
        "one_moving": [replace(moved, shared=True, headroom=each) for each in HEADROOMS],
        "per_phase": [replace(moved, headroom=each) for each in HEADROOMS],
        "per_phase_as_shipped": [moved],
        "per_phase_by_means": [replace(moved, seen=Seen.MODELLED)],
    }
    if not alone.fleet.prefill:
        del arms["one_moving"]
    return arms


def _chosen(rows: Rows, extent: Extent, fleet: Fleet, load: float, promised: Promised) -> dict[str, Day]:
    """By arm, on the first seed's day: the least energy at equal violations, else the fewest violations."""
    alone = extent.day(fleet, load, extent.seeds[0])
    most = _missed(rows, alone, promised) + EQUAL_POINTS
    chosen = {}
    for arm, days in _choices(alone, promised).items():
        fine = [day for day in days if _missed(rows, day, promised) <= most]
        chosen[arm] = (
            min(fine, key=lambda day: float(rows[day]["joules"]))
            if fine
            else min(days, key=lambda day: _missed(rows, day, promised))
        )
    return chosen


def _missed(rows: Rows, day: Day, promised: Promised) -> float:
    return float(rows[day]["missed"][promised.name]["either"])


def _cuts(alone: Day, promised: Promised) -> dict[str, Day]:
    split = replace(alone, promised=promised, seen=Seen.MEASURED, cut=CUT, saves=False)
    return {
        "per_phase": split,
        "per_phase_and_saving": replace(split, saves=True),
        "one_cap": replace(split, capped=True),
    }


def _case(rows: Rows, extent: Extent, fleet: Fleet, load: float, promised: Promised) -> dict[str, Any]:
    chosen = _chosen(rows, extent, fleet, load, promised)
    arms = {arm: [replace(day, seed=seed) for seed in extent.seeds] for arm, day in chosen.items()}
    base = [rows[day] for day in arms["left_alone"]]
    found = {name: _arm([rows[day] for day in days], base, promised) for name, days in arms.items()}
    against = {
        name: _saved([rows[d] for d in arms["per_phase"]], [rows[d] for d in arms[name]])
        for name in ("left_alone", "one_held", "one_moving")
        if name in arms
    }
    return {
        "fleet": fleet.name,
        "load": load,
        "promise": promised.name,
        "held_mhz": chosen["one_held"].clock_mhz or fleet.model.clock.max_mhz,
        "headroom": {arm: chosen[arm].headroom for arm in ("one_moving", "per_phase") if arm in chosen},
        "requests": [row["requests"] for row in base],
        "arms": found,
        "saved_by_per_phase": against,
        "equal_violations": {
            name: about["more_missed_points"]["mean"] <= 100.0 * EQUAL_POINTS for name, about in found.items()
        },
    }


def _arm(own: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]], promised: Promised) -> dict[str, Any]:
    missed = [row["missed"][promised.name]["either"] for row in own]
    before = [row["missed"][promised.name]["either"] for row in base[: len(own)]]
    return {
        "joules": [row["joules"] for row in own],
        "joules_by_line": [row["joules_by_line"] for row in own],
        "joules_with_host": [round(row["joules"] + row["host_joules"], 3) for row in own],
        "missed": missed,
        "more_missed_points": _spread([100.0 * (after - then) for after, then in zip(missed, before, strict=True)]),
        "ttft_p99_seconds": [row["ttft_p99_seconds"] for row in own],
        "tpot_p99_seconds": [row["tpot_p99_seconds"] for row in own],
        "changes": [row["changes"] for row in own],
        "clocks": own[0]["clocks"],
        "hourly_joules": own[0]["hourly_joules"],
        "traces": [row["trace"] for row in own],
    }


def _saved(own: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Percent of the other's joules, GPUs alone and with the host."""
    return {
        "percent": _spread([100.0 * (1.0 - a["joules"] / b["joules"]) for a, b in zip(own, other, strict=True)]),
        "percent_with_host": _spread(
            [
                100.0 * (1.0 - (a["joules"] + a["host_joules"]) / (b["joules"] + b["host_joules"]))
                for a, b in zip(own, other, strict=True)
            ]
        ),
    }


def _cut(rows: Rows, extent: Extent, fleet: Fleet, load: float, promised: Promised) -> dict[str, Any]:
    days = [extent.day(fleet, load, seed) for seed in extent.seeds]
    cuts = [_cuts(day, promised) for day in days]
    arms = {"no_cut": days} | {name: [each[name] for each in cuts] for name in cuts[0]}
    kept = {
        name: _spread([100.0 * (1.0 - rows[day]["missed"][promised.name]["either"]) for day in own])
        for name, own in arms.items()
    }
    return {
        "fleet": fleet.name,
        "load": load,
        "promise": promised.name,
        "cut": CUT,
        "kept_percent": kept,
        "joules": {name: [rows[day]["joules"] for day in own] for name, own in arms.items()},
        "clocks": {name: rows[own[0]]["clocks"] for name, own in arms.items() if name != "no_cut"},
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Over seeds."""
    return {"mean": round(mean(values), 4), "least": round(min(values), 4), "most": round(max(values), 4)}
