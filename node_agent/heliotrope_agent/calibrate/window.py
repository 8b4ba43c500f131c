"""From samples to one measurement: tokens, joules and seconds of a stretch in which the batch was full.

Tokens are counted by the engine, energy by the GPUs, each on its own beat: an engine's counter moves with its steps, a
GPU's every few to a hundred milliseconds. So energy is interpolated to the moments at which the engine's counter was
seen to move, and lines are fitted through these points (`statistics.slope`) instead of taking first and last alone.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope_agent.calibrate.page import Page
from heliotrope_agent.calibrate.statistics import slope, timing_half_width
from heliotrope_agent.driver.interface import Reading

LEAST_EDGES = 5
"""Movements of the token counter below which a window tells nothing."""
MOST_TIMING_PERCENT = 5.0
"""Of `Measured.timing_percent`: on a machine that is too busy to look often enough, windows are measured again."""
CACHED_SHARE = 0.01
"""Of prompt tokens that may come from the prefix cache."""
STARVED_SHARE = 1.0 / 8.0
"""Of the prompts that should be in flight: with fewer an engine's steps may not be whole."""
STARVED_PAGES = 0.15
"""Of the pages of a window on which that may be so: the end of a load is."""
CLOCK_TOLERANCE_MHZ = 15
_UNIFORM = 12.0
"""Squared length over variance of an even distribution."""
_LEAST_DEVIATION_S = 1e-6
_POWER_CAP = 0x04
_HOLDING = {
    0x04: "SwPowerCap",
    0x08: "HwSlowdown",
    0x10: "SyncBoost",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
}
"""NVML's clock event reasons that hold a clock down (nvmlClocksEventReason…); idle and the lock itself are none."""


class Mark(StrEnum):
    """What was noticed about a window."""

    POWER_CAPPED = "PowerCapped"
    """The power limit held the clock down. That is what this setting does on this GPU, so the window counts."""
    THROTTLED = "Throttled"
    """Heat, another GPU or the power supply held the clock down."""
    CLOCK_OFF = "ClockOff"
    """The SMs ran at another clock than was set, and no reason was given."""
    NOT_FULL = "NotFull"
    """The engine had less than the whole batch to do."""
    CACHE_HITS = "CacheHits"
    """Prompts were found in the prefix cache."""
    PREEMPTED = "Preempted"
    """The engine ran out of KV memory and computed something twice."""
    TOO_SHORT = "TooShort"
    """The token counter moved, or was seen to move, too seldom to tell times well enough."""

    @property
    def excludes(self) -> bool:
        """Whether a window so marked is left out of means."""
        return self is not Mark.POWER_CAPPED


class Trace:
    """The energy counter of one GPU over time: where it was seen to move, in joules since some origin."""

    def __init__(self, times_s: Sequence[float], joules: Sequence[float]) -> None:
        self._times_s, self._joules = list(times_s), list(joules)

    @property
    def covers(self) -> tuple[float, float]:
        """First and last moment; an empty span if it has not moved."""
        return (self._times_s[0], self._times_s[-1]) if self._times_s else (math.inf, -math.inf)

    @property
    def beat_s(self) -> float:
        """Mean time between two movements; infinite if there were not two."""
        count = len(self._times_s) - 1
        return (self._times_s[-1] - self._times_s[0]) / count if count > 0 else math.inf

    def joules_at(self, at_s: float) -> float:
        """The counter at a moment that it covers, even power between two movements assumed.

        Raises:
            ValueError: outside of what it covers.
        """
        times_s = self._times_s
        low, high = self.covers
        if not low <= at_s <= high:
            raise ValueError(f"{at_s} is not between {low} and {high}")
        after = min(bisect_right(times_s, at_s), len(times_s) - 1)
        before = max(after - 1, 0)
        if times_s[after] == times_s[before]:
            return self._joules[before]
        share = (at_s - times_s[before]) / (times_s[after] - times_s[before])
        return self._joules[before] + share * (self._joules[after] - self._joules[before])


@dataclass(frozen=True, slots=True)
class Look:
    """All GPUs of the engine at one moment."""

    at_s: float
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One window. Energies are of all GPUs of the engine, idle power included."""

    start_s: float
    end_s: float
    tokens: int
    """Prompt tokens that were computed, or tokens that were generated."""
    joules: float
    joules_by_gpu: tuple[float, ...]
    joules_per_token: float
    tokens_per_second: float
    watts: float
    timing_percent: float
    """Half width of the 90 % interval of J/token from the beats of the two counters alone."""
    edges: int
    """Points that the lines go through."""
    mean_batch: float
    """Requests in flight, mean over the window."""
    context_tokens: float | None
    """Tokens that a sequence held in the middle of the window; None in prefill."""
    tokens_per_step: float | None
    seconds_per_token: float | None
    """Of one sequence (TPOT); None in prefill."""
    effective_mhz: int | None
    """Median of the SM clocks that were read; None: the driver does not tell."""
    temperature_celsius: int | None
    """Highest that was read."""
    reasons: tuple[str, ...]
    """What held the clock down, by NVML."""
    marks: tuple[Mark, ...]

    @property
    def clean(self) -> bool:
        """Whether it counts."""
        return not any(mark.excludes for mark in self.marks)


class WindowError(Exception):
    """The samples hold no window; the message says what is missing."""


def full_pages(phase: Phase, pages: Sequence[Page], batch: int, skip: int) -> list[Page]:
    """The pages of the stretch that is measured.

    Prefill: up to the last step but one that was seen, as the last may not be a whole one. Decode: the longest stretch
    in which the whole batch decodes, nothing waits and no prompt is computed, without the first `skip` tokens of each
    sequence; so no prefill is in it at all.
    """
    if phase is Phase.PREFILL:
        ends = [i for i in range(1, len(pages)) if pages[i].computed_tokens > pages[i - 1].computed_tokens]
        return list(pages[: ends[-2] + 1]) if len(ends) >= 2 else []
    longest: list[Page] = []
    present: list[Page] = []
    for page in pages:
        full = page.running == batch and page.waiting == 0
        if full and (not present or page.prompt_tokens == present[-1].prompt_tokens):
            present.append(page)
        else:
            present = [page] if full else []
        if len(present) > len(longest):
            longest = present
    if not longest:
        return []
    first = longest[0].generated_tokens
    return [page for page in longest if page.generated_tokens >= first + skip * batch]


@dataclass(frozen=True, slots=True)
class _Edge:
    """A moment at which the engine's counter was at a number for the first time."""

    page: Page
    at_s: float
    deviation_s: float
    """Standard deviation of `at_s`."""


def measured(
    phase: Phase,
    pages: Sequence[Page],
    traces: Sequence[Trace],
    looks: Sequence[Look],
    *,
    batch: int,
    requested_mhz: int,
    context_tokens: Callable[[Page], float] | None,
) -> Measured:
    """Evaluate a window.

    Args:
        phase: which counter is looked at.
        pages: of `full_pages`.
        traces: energy of each GPU of the engine.
        looks: at its GPUs, at least one of them in the window.
        batch: requests that should be in flight.
        requested_mhz: clock that was set.
        context_tokens: tokens that a sequence holds at a page; None in prefill.

    Raises:
        WindowError: if too little was sampled to tell anything.
    """
    low = max((trace.covers[0] for trace in traces), default=math.inf)
    high = min((trace.covers[1] for trace in traces), default=-math.inf)
    beat_s = max((trace.beat_s for trace in traces), default=math.inf)
    edges = [edge for edge in _edges(phase, pages, beat_s) if low <= edge.at_s <= high]
    if len(edges) < 2 or edges[0].at_s >= edges[-1].at_s:
        raise WindowError(
            f"the engine's token counter moved {len(edges)} times while the batch was full and energy was counted"
        )
    first, last = edges[0].page, edges[-1].page
    times = [edge.at_s for edge in edges]
    weights = [1.0 / edge.deviation_s**2 for edge in edges]
    tokens = [float(_count(phase, edge.page)) for edge in edges]
    by_gpu = [[trace.joules_at(at_s) for at_s in times] for trace in traces]
    joules = [math.fsum(each) for each in zip(*by_gpu, strict=True)]
    rate, per_token = slope(times, tokens, weights), slope(tokens, joules, weights)
    inside = [page for page in pages if first.at_s <= page.at_s <= last.at_s]
    seen = [look for look in looks if times[0] <= look.at_s <= times[-1]] or list(looks[-1:])
    effective = _median([each.sm_clock_mhz for look in seen for each in look.readings])
    bits = _held_down(seen, requested_mhz)
    timing_percent = 100.0 * timing_half_width(times, [edge.deviation_s for edge in edges])
    context = None
    if context_tokens is not None:
        context = (context_tokens(first) + context_tokens(last)) / 2.0
    temperatures = [
        each.temperature_celsius for look in seen for each in look.readings if each.temperature_celsius is not None
    ]
    return Measured(
        start_s=times[0],
        end_s=times[-1],
        tokens=_count(phase, last) - _count(phase, first),
        joules=joules[-1] - joules[0],
        joules_by_gpu=tuple(each[-1] - each[0] for each in by_gpu),
        joules_per_token=per_token,
        tokens_per_second=rate,
        watts=rate * per_token,
        timing_percent=timing_percent,
        edges=len(edges),
        mean_batch=sum(page.in_flight for page in inside) / len(inside),
        context_tokens=context,
        tokens_per_step=_per_step(phase, first, last),
        seconds_per_token=batch / rate if phase is Phase.DECODE else None,
        effective_mhz=effective,
        temperature_celsius=max(temperatures, default=None),
        reasons=tuple(name for bit, name in _HOLDING.items() if bits & bit),
        marks=_marks(phase, inside, batch, len(edges), timing_percent, bits, effective, requested_mhz),
    )


def _edges(phase: Phase, pages: Sequence[Page], beat_s: float) -> list[_Edge]:
    """Where the counter moved.

    It did so after the page before, and not longer ago than a step takes: with pages rarer than steps the counter is up
    to date within a step. The middle of what is left is taken, and how long that is, how long the page took and how
    often the energy counters move are how well it is known.
    """
    moved = [(a, b) for a, b in pairwise(pages) if _count(phase, b) > _count(phase, a)]
    if len(moved) < 2:
        return []
    first, last = moved[0][1], moved[-1][1]
    steps = None if first.steps is None or last.steps is None else last.steps - first.steps
    step_s = (last.at_s - first.at_s) / steps if steps else math.inf
    found = []
    for before, after in moved:
        open_s = min(after.at_s - before.at_s, step_s)
        deviation_s = math.sqrt((open_s**2 + after.took_s**2 + beat_s**2) / _UNIFORM)
        found.append(_Edge(after, after.at_s - open_s / 2.0, max(deviation_s, _LEAST_DEVIATION_S)))
    return found


def _held_down(looks: Sequence[Look], requested_mhz: int) -> int:
    """Reasons that held a clock below the one that was set; a reason that holds nothing down is none."""
    bits = 0
    for look in looks:
        for each in look.readings:
            low = each.sm_clock_mhz is None or each.sm_clock_mhz < requested_mhz - CLOCK_TOLERANCE_MHZ / 2
            bits |= (each.clock_event_reasons or 0) if low else 0
    return bits


def _count(phase: Phase, page: Page) -> int:
    return page.computed_tokens if phase is Phase.PREFILL else page.generated_tokens


def _per_step(phase: Phase, first: Page, last: Page) -> float | None:
    if first.steps is None or last.steps is None or last.steps <= first.steps:
        return None
    return (_count(phase, last) - _count(phase, first)) / (last.steps - first.steps)


def _marks(
    phase: Phase,
    pages: Sequence[Page],
    batch: int,
    edges: int,
    timing_percent: float,
    bits: int,
    effective_mhz: int | None,
    requested_mhz: int,
) -> tuple[Mark, ...]:
    first, last = pages[0], pages[-1]
    off = effective_mhz is not None and abs(effective_mhz - requested_mhz) > CLOCK_TOLERANCE_MHZ
    holding = bits & sum(_HOLDING)
    prompt_tokens = last.prompt_tokens - first.prompt_tokens
    starved = sum(1 for page in pages if page.in_flight < max(1.0, STARVED_SHARE * batch))
    found = []
    if holding & _POWER_CAP:
        found.append(Mark.POWER_CAPPED)
    if holding & ~_POWER_CAP:
        found.append(Mark.THROTTLED)
    if off and not holding:
        found.append(Mark.CLOCK_OFF)
    if phase is Phase.PREFILL and starved > STARVED_PAGES * len(pages):
        found.append(Mark.NOT_FULL)
    if phase is Phase.PREFILL and last.cached_tokens - first.cached_tokens > CACHED_SHARE * prompt_tokens:
        found.append(Mark.CACHE_HITS)
    if last.preemptions > first.preemptions:
        found.append(Mark.PREEMPTED)
    if edges < LEAST_EDGES or not timing_percent <= MOST_TIMING_PERCENT:
        found.append(Mark.TOO_SHORT)
    return tuple(found)


def _median(values: Sequence[int | None]) -> int | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None
