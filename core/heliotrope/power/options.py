"""What a replica does and draws at each SM clock that may be set, out of its variant's measured energy profile.

Both phases are brought to one unit, the mean request of the pool: so many prompt tokens, so many output tokens. A
prefill engine does the first part of it, a decode engine the second, a mixed engine both, one after the other in the
sense that a second spent on prompts is none spent on answers.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.workloadvariant import EnergyPoint, Phase, WorkloadVariantSpec

TYPICAL_TOKENS = 1_000.0
"""Tokens of a request whose size nobody has counted yet, so that models can be weighed against each other."""
CLOCK_STEP_MHZ = 15
"""Distance of the clocks that are considered between measured ones; NVIDIA's data centre GPUs step by 15 MHz."""


@dataclass(frozen=True, slots=True)
class Work:
    """The mean request of a pool, in tokens that have to be computed."""

    prompt_tokens: float
    output_tokens: float

    @property
    def known(self) -> bool:
        """Whether both are numbers and there is something to do."""
        tokens = (self.prompt_tokens, self.output_tokens)
        return all(math.isfinite(each) and each >= 0 for each in tokens) and sum(tokens) > 0


@dataclass(frozen=True, slots=True)
class ClockOption:
    """One replica at one clock, working without a pause at its usual batch."""

    sm_clock_mhz: int
    prompt_seconds: float
    """Engine time of one request's prompt; 0 for decode engines."""
    output_seconds: float
    """Engine time of one request's answer, as its share of the usual batch; 0 for prefill engines."""
    joules_per_request: float
    watts: float
    """Power of all accelerators of the replica while it works."""

    @property
    def busy_seconds(self) -> float:
        """Engine time of one request."""
        return self.prompt_seconds + self.output_seconds

    @property
    def requests_per_second(self) -> float:
        """What the replica carries at most."""
        return 1.0 / self.busy_seconds


@dataclass(frozen=True, slots=True)
class _Curve:
    """One phase over the clocks, ascending: throughput and power are linear between two measured clocks."""

    clocks: list[int]
    tokens_per_second: list[float]
    watts: list[float]

    def at(self, mhz: int) -> tuple[float, float]:
        """Tokens per second and watts at a clock within what was measured."""
        index = bisect_left(self.clocks, mhz)
        if self.clocks[index] == mhz:
            return self.tokens_per_second[index], self.watts[index]
        below = index - 1
        share = (mhz - self.clocks[below]) / (self.clocks[index] - self.clocks[below])
        tokens, watts = self.tokens_per_second, self.watts
        return (
            tokens[below] + share * (tokens[index] - tokens[below]),
            watts[below] + share * (watts[index] - watts[below]),
        )


def clock_options(
    spec: WorkloadVariantSpec, work: Work, *, full_range: bool = False, step_mhz: int = CLOCK_STEP_MHZ
) -> tuple[ClockOption, ...]:
    """The clocks that may be set, ascending; between measured clocks every `step_mhz`, by linear interpolation.

    Nothing is extrapolated: a clock has to lie between the lowest and the highest that were measured, of both phases
    for mixed engines, and within `clockRange`.

    Args:
        spec: the variant.
        work: the mean request; it must be known.
        full_range: all measured clocks, whatever `clockRange` says: what the replica does when it is left alone.
        step_mhz: distance of interpolated clocks.

    Returns:
        Empty if the variant has no usable profile, no `clockRange` (unless `full_range`), or a range without any
        measured clock.
    """
    curves = _curves(spec)
    if not work.known or not curves:
        return ()
    low, high = _measured(curves)
    if not full_range:
        if spec.clock_range is None:
            return ()
        low, high = max(low, spec.clock_range.min_mhz), min(high, spec.clock_range.max_mhz)
    if low > high:
        return ()
    clocks = {low, high, *range(low, high, step_mhz)}
    clocks |= {mhz for curve in curves.values() for mhz in curve.clocks if low <= mhz <= high}
    options = (_option(mhz, curves, work) for mhz in sorted(clocks))
    return tuple(each for each in options if each.busy_seconds > 0)


def full_option(spec: WorkloadVariantSpec, work: Work) -> ClockOption | None:
    """What a replica does when it is left alone, which is its highest measured clock; None without a profile."""
    curves = _curves(spec)
    if not work.known or not curves:
        return None
    low, high = _measured(curves)
    option = _option(high, curves, work) if low <= high else None
    return option if option is not None and option.busy_seconds > 0 else None


def option_at(options: Sequence[ClockOption], mhz: int | None) -> ClockOption | None:
    """The option of a clock, the next one below it where it is none of them.

    The highest for None, which is a device left alone; None if there are no options.
    """
    if not options:
        return None
    if mhz is None:
        return options[-1]
    clocks = [each.sm_clock_mhz for each in options]
    index = bisect_left(clocks, mhz)
    if index < len(clocks) and clocks[index] == mhz:
        return options[index]
    return options[max(index - 1, 0)]


def peak_watts(spec: WorkloadVariantSpec, mhz: int) -> float:
    """Most power of a replica at a measured or interpolated clock: that of the phase that draws more.

    A mixed engine's mean is no limit to set: prompts would be held back below the clock that was chosen for them.

    Raises:
        ValueError: if nothing was measured around this clock.
    """
    curves = _curves(spec)
    low, high = _measured(curves) if curves else (1, 0)
    if not low <= mhz <= high:
        raise ValueError(f"{mhz} MHz is outside of what was measured")
    return max(curve.at(mhz)[1] for curve in curves.values())


def balanced_work(specs: Sequence[WorkloadVariantSpec], replicas: Sequence[int]) -> Work:
    """A request that keeps prefill and decode pools equally busy at their highest clocks, as they were sized to be.

    It stands in where nobody has counted tokens yet: `TYPICAL_TOKENS`, shared out as the pools are. Mixed engines count
    half to each phase. A phase without a profile has no tokens; without any profile the work is unknown.
    """
    totals = {Phase.PREFILL: 0.0, Phase.DECODE: 0.0}
    for spec, count in zip(specs, replicas, strict=True):
        for phase in _phases(spec.role):
            points = _of(spec.energy_profile, phase)
            share = 0.5 if spec.role is Role.BOTH else 1.0
            totals[phase] += count * share * max((point.tokens_per_second for point in points), default=0.0)
    total = sum(totals.values())
    scale = TYPICAL_TOKENS / total if total > 0 else 0.0
    return Work(scale * totals[Phase.PREFILL], scale * totals[Phase.DECODE])


def _phases(role: Role) -> tuple[Phase, ...]:
    return (Phase.PREFILL, Phase.DECODE) if role is Role.BOTH else (Phase(role.value),)


def _of(profile: Sequence[EnergyPoint], phase: Phase) -> list[EnergyPoint]:
    return [point for point in profile if point.phase is phase]


def _curves(spec: WorkloadVariantSpec) -> dict[Phase, _Curve]:
    """One per phase that the variant serves; empty if one of them was not measured."""
    curves = {}
    for phase in _phases(spec.role):
        points = sorted(_of(spec.energy_profile, phase), key=lambda point: point.sm_clock_mhz)
        if not points:
            return {}
        curves[phase] = _Curve(
            [point.sm_clock_mhz for point in points],
            [point.tokens_per_second for point in points],
            [point.joules_per_token * point.tokens_per_second for point in points],
        )
    return curves


def _measured(curves: Mapping[Phase, _Curve]) -> tuple[int, int]:
    """Lowest and highest clock that was measured in all phases."""
    return max(curve.clocks[0] for curve in curves.values()), min(curve.clocks[-1] for curve in curves.values())


def _option(mhz: int, curves: Mapping[Phase, _Curve], work: Work) -> ClockOption:
    prompt, output, joules = 0.0, 0.0, 0.0
    for phase, curve in curves.items():
        rate, watts = curve.at(mhz)
        if phase is Phase.PREFILL:
            prompt = work.prompt_tokens / rate
            joules += prompt * watts
        else:
            output = work.output_tokens / rate
            joules += output * watts
    busy = prompt + output
    return ClockOption(mhz, prompt, output, joules, joules / busy if busy > 0 else 0.0)
