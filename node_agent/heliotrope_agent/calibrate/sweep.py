"""What a calibration is asked to measure, and the one next thing to do: a pure function of what is on record.

So a calibration that was stopped goes on where it was, and what it will do can be shown before anything is touched.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope_agent.calibrate.clocks import Point, next_clock
from heliotrope_agent.calibrate.record import Kind, Record, Window
from heliotrope_agent.calibrate.settings import Sweep
from heliotrope_agent.calibrate.statistics import half_width, mean, pooled_relative_deviation

SPARE_ATTEMPTS = 5
"""Windows beyond the most repeats that may be lost to marks before a clock is given up."""
_OVERHEAD = 1.25
"""Of a window's time: filling the batch, what is skipped, what ends later."""
_LEAST_DEVIATION = 0.002
"""Relative standard deviation of a window that is assumed until repeats tell."""


class Work(StrEnum):
    """Kinds of tasks."""

    PILOT = "pilot"
    """A short run that tells how much work fills a window."""
    IDLE = "idle"
    """Power with nothing in flight."""
    MEASURE = "measure"
    """One window."""
    DRIFT = "drift"
    """One window at the first clock again, at the end."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do at one clock."""

    work: Work
    mhz: int
    phase: Phase | None = None
    batch: int | None = None
    refining: bool = False
    """Whether the clock was chosen near the minimum."""


def next_task(sweep: Sweep, record: Record) -> Task | None:
    """What to do next; None: all is measured.

    Clocks go down from the highest; at each, idle power and then all windows, so that clocks change seldom.
    """
    first = sweep.clocks[0]
    for phase, batch in sweep.loads:
        if record.size(phase, batch) is None:
            return Task(Work.PILOT, first, phase, batch)
    for mhz in sweep.clocks:
        if (task := _at_clock(sweep, record, mhz, sweep.loads, refining=False)) is not None:
            return task
    for phase in sweep.phases:
        batch = usual_batch(sweep, record, phase)
        refined = _refined(sweep, record, phase, batch)
        for mhz in refined:
            if (task := _at_clock(sweep, record, mhz, ((phase, batch),), refining=True)) is not None:
                return task
        more = len(refined) < sweep.refinements
        wanted = next_clock(points(record, phase, batch), sweep.candidates) if more else None
        if wanted is not None and not record.windows_of(phase, batch, wanted):
            return _at_clock(sweep, record, wanted, ((phase, batch),), refining=True)
    for phase in sweep.phases:
        if not drift_known(record, phase):
            return Task(Work.DRIFT, first, phase, usual_batch(sweep, record, phase))
    return None


def drift_known(record: Record, phase: Phase) -> bool:
    """Whether the first clock was measured again in the end, or that was tried often enough."""
    again = [each for each in record.windows if each.phase is phase and each.kind is Kind.DRIFT]
    return any(each.clean for each in again) or len(again) >= SPARE_ATTEMPTS


def _at_clock(
    sweep: Sweep, record: Record, mhz: int, loads: Sequence[tuple[Phase, int]], *, refining: bool
) -> Task | None:
    if record.idle_at(mhz) is None:
        return Task(Work.IDLE, mhz, refining=refining)
    for phase, batch in loads:
        if not enough(sweep, record.windows_of(phase, batch, mhz)):
            return Task(Work.MEASURE, mhz, phase, batch, refining)
    return None


def _refined(sweep: Sweep, record: Record, phase: Phase, batch: int) -> list[int]:
    """Clocks beyond the first ones, in the order in which they were begun."""
    order = dict.fromkeys(each.mhz for each in record.windows if each.phase is phase and each.batch == batch)
    return [mhz for mhz in order if mhz not in sweep.clocks]


def enough(sweep: Sweep, windows: Sequence[Window]) -> bool:
    """Whether a point needs no further repeat: known well enough, or repeated as often as may be."""
    values = [each.measured.joules_per_token for each in windows if each.clean]
    if len(windows) >= sweep.max_repeats + SPARE_ATTEMPTS or len(values) >= sweep.max_repeats:
        return True
    if len(values) < sweep.min_repeats:
        return False
    return 100.0 * half_width(values) <= sweep.target_percent * mean(values)


def usual_batch(sweep: Sweep, record: Record, phase: Phase) -> int:
    """The batch that a phase's profile is written for.

    Prefill: the most prompts in flight. Decode: as asked for, else the largest at which the highest clock keeps the
    TPOT, else the smallest if none keeps it, and the largest if no TPOT is given.
    """
    if phase is Phase.PREFILL:
        return max(sweep.prefill_batches)
    if sweep.batch is not None:
        return sweep.batch
    if sweep.tpot_seconds is None:
        return max(sweep.decode_batches)
    keeping = []
    for batch in sweep.decode_batches:
        seconds = [
            each.measured.seconds_per_token
            for each in record.windows_of(phase, batch, sweep.clocks[0])
            if each.clean and each.measured.seconds_per_token is not None
        ]
        if seconds and mean(seconds) <= sweep.tpot_seconds:
            keeping.append(batch)
    return max(keeping, default=min(sweep.decode_batches))


def points(record: Record, phase: Phase, batch: int) -> list[Point]:
    """J/token by clock, ascending, with standard errors that are pooled over clocks; only clocks with clean windows."""
    values = values_by_clock(record, phase, batch)
    relative = pooled_relative_deviation(values.values())
    if math.isnan(relative):
        relative = _LEAST_DEVIATION
    return [
        Point(mhz, mean(each), mean(each) * relative / math.sqrt(len(each))) for mhz, each in sorted(values.items())
    ]


def values_by_clock(record: Record, phase: Phase, batch: int) -> dict[int, list[float]]:
    """J/token of the clean windows by clock, without what was measured for drift."""
    found: dict[int, list[float]] = {}
    for each in record.windows:
        if each.phase is phase and each.batch == batch and each.kind is not Kind.DRIFT and each.clean:
            found.setdefault(each.mhz, []).append(each.measured.joules_per_token)
    return found


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is left to do, at least: further repeats come where windows scatter."""

    steps: int
    seconds: float


def estimate(sweep: Sweep, record: Record) -> Estimate:
    """Steps and time that are left, with as many clocks near the minimum as may be tried."""
    seconds = [_seconds(sweep, task) for task in _expected(sweep, record)]
    changes = {task.mhz for task in _expected(sweep, record)}
    return Estimate(len(seconds), math.fsum(seconds) + len(changes) * sweep.settle_seconds)


def _expected(sweep: Sweep, record: Record) -> Iterator[Task]:
    first = sweep.clocks[0]
    for phase, batch in sweep.loads:
        if record.size(phase, batch) is None:
            yield Task(Work.PILOT, first, phase, batch)
    for mhz in sweep.clocks:
        yield from _expected_at(sweep, record, mhz, sweep.loads)
    middle = sweep.candidates[len(sweep.candidates) // 2]
    for phase in sweep.phases:
        batch = usual_batch(sweep, record, phase)
        begun = _refined(sweep, record, phase, batch)
        for mhz in begun:
            yield from _expected_at(sweep, record, mhz, ((phase, batch),))
        known = points(record, phase, batch)
        done = {point.mhz for point in known} >= {*sweep.clocks} and all(
            enough(sweep, record.windows_of(phase, batch, mhz)) for mhz in begun
        )
        if not done or next_clock(known, sweep.candidates) is not None:
            for _ in range(sweep.refinements - len(begun)):
                yield Task(Work.IDLE, middle)
                for _ in range(sweep.min_repeats):
                    yield Task(Work.MEASURE, middle, phase, batch, refining=True)
        if not drift_known(record, phase):
            yield Task(Work.DRIFT, first, phase, batch)


def _expected_at(sweep: Sweep, record: Record, mhz: int, loads: Sequence[tuple[Phase, int]]) -> Iterator[Task]:
    if record.idle_at(mhz) is None:
        yield Task(Work.IDLE, mhz)
    for phase, batch in loads:
        windows = record.windows_of(phase, batch, mhz)
        if not enough(sweep, windows):
            for _ in range(max(sweep.min_repeats - sum(each.clean for each in windows), 1)):
                yield Task(Work.MEASURE, mhz, phase, batch)


def _seconds(sweep: Sweep, task: Task) -> float:
    """Windows hold the same work at all clocks, so they are longer at low ones: prefill in full, decode in part."""
    if task.work is Work.IDLE:
        return sweep.idle_seconds
    if task.work is Work.PILOT:
        return sweep.window_seconds / 2.0
    slower = sweep.clocks[0] / task.mhz
    factor = slower if task.phase is Phase.PREFILL else max(1.0, 0.6 * slower)
    return sweep.window_seconds * factor * _OVERHEAD
