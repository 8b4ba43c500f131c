"""The clock of least energy that keeps the promise with room to spare, for the engines of one variant and role.

A change pays only when it holds, so there is hysteresis in both directions: a lower clock has to keep the whole
headroom and save something, while the present one may use up half of the headroom before it is raised. What is unknown
lowers nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.power.latency import Observed, Promise, predicted_tpot, predicted_ttft, utilization
from heliotrope.power.options import ClockOption, option_at

LEAST_SAVING = 0.02
"""A lower clock must save at least this share of the energy per request."""


class ClockReason(StrEnum):
    """Why a clock is what it is."""

    NO_PROFILE = "NoEnergyProfile"
    """Nothing was measured at any clock that may be set: clocks are left alone."""
    NO_RANGE = "NoClockRange"
    """The variant states no `clockRange`: clocks are left alone."""
    LOAD_UNKNOWN = "LoadUnknown"
    """Load or latency is unknown: the clock stays."""
    EFFICIENT = "LeastEnergy"
    """The clock of least energy within the headroom."""
    HELD = "Held"
    """Another clock would be better, but the present one has not held for long enough, or it is not its turn."""
    SLO = "SloGuard"
    """Raised because the headroom is used up, or nothing keeps it: the fastest clock then."""
    NOT_ASKED = "OnlyForBudget"
    """`clockPerPhase` is false: no clock but for a budget."""


@dataclass(frozen=True, slots=True)
class ClockRules:
    """How a policy wants clocks chosen."""

    promise: Promise
    slo_headroom: float = 0.15
    """Share of the promise that is kept free, in [0, 1)."""
    saturation: float = 0.85
    """Share of its time that an engine may work; beyond it the clock goes up."""


@dataclass(frozen=True, slots=True)
class ClockChoice:
    """A clock, and why."""

    sm_clock_mhz: int | None
    """None: the device's own choice."""
    reason: ClockReason
    raised: bool = False
    """Whether the clock goes up, which never waits."""


def choose_clock(
    options: Sequence[ClockOption],
    present_mhz: int | None,
    observed: Observed,
    rules: ClockRules,
    *,
    may_lower: bool = True,
) -> ClockChoice:
    """The clock for the engines of one variant and role.

    Args:
        options: clocks that may be set, ascending; empty without a profile.
        present_mhz: the clock that is set; None: the device's own choice, which counts as its highest.
        observed: load and latency of one replica at the present clock.
        rules: the promise and how much of it is kept free.
        may_lower: False while the present clock has to hold or replicas have their turn.
    """
    present = option_at(options, present_mhz)
    if present is None:
        return ClockChoice(None, ClockReason.NO_PROFILE)
    if not _known(present, observed):
        return ClockChoice(present_mhz, ClockReason.LOAD_UNKNOWN)
    enough = [each for each in options if _keeps(each, present, observed, rules, rules.slo_headroom)]
    stays = _keeps(present, present, observed, rules, rules.slo_headroom / 2.0)
    if not enough:
        # Not even the fastest clock keeps the headroom; the present one may stay if it has some left.
        fastest = options[-1]
        if stays and present.sm_clock_mhz == fastest.sm_clock_mhz:
            return ClockChoice(present_mhz, ClockReason.EFFICIENT)
        return _raised(fastest, present, ClockReason.SLO)
    best = min(enough, key=lambda each: (each.joules_per_request, each.sm_clock_mhz))
    if not stays:
        # Up, to the best of the faster ones: a slower clock cannot mend it.
        faster = [each for each in enough if each.sm_clock_mhz > present.sm_clock_mhz]
        if faster:
            return _raised(
                min(faster, key=lambda each: (each.joules_per_request, each.sm_clock_mhz)), present, ClockReason.SLO
            )
    saving = 1.0 - best.joules_per_request / present.joules_per_request
    if best.sm_clock_mhz == present.sm_clock_mhz or saving < LEAST_SAVING:
        return ClockChoice(present_mhz, ClockReason.EFFICIENT)
    if best.sm_clock_mhz > present.sm_clock_mhz:
        return _raised(best, present, ClockReason.EFFICIENT)
    if not may_lower:
        return ClockChoice(present_mhz, ClockReason.HELD)
    return ClockChoice(best.sm_clock_mhz, ClockReason.EFFICIENT)


def _raised(option: ClockOption, present: ClockOption, reason: ClockReason) -> ClockChoice:
    return ClockChoice(option.sm_clock_mhz, reason, raised=option.sm_clock_mhz > present.sm_clock_mhz)


def _known(present: ClockOption, observed: Observed) -> bool:
    """Whether load and the latencies of the phases that the engine serves are known."""
    needed = [observed.requests_per_second]
    if present.prompt_seconds > 0.0:
        needed.append(observed.ttft_seconds)
    if present.output_seconds > 0.0:
        needed.append(observed.tpot_seconds)
    return all(math.isfinite(each) and each >= 0.0 for each in needed)


def _keeps(option: ClockOption, present: ClockOption, observed: Observed, rules: ClockRules, headroom: float) -> bool:
    """Whether a clock keeps the promise with this much of it left, and the engine below saturation.

    NaN, where the queue grows already, keeps nothing.
    """
    if utilization(option, observed.requests_per_second) > rules.saturation:
        return False
    room = 1.0 - headroom
    return (
        predicted_ttft(option, present, observed) <= room * rules.promise.ttft_seconds
        and predicted_tpot(option, present, observed) <= room * rules.promise.tpot_seconds
    )
