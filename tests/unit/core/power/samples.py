"""Variants with energy profiles out of the shipped engine profiles' labelled DVFS model, for the tests of power."""

from dataclasses import replace

from heliotrope.api.v1alpha1.common import LabelSelector, Role
from heliotrope.api.v1alpha1.workloadvariant import (
    Accelerator,
    ClockRange,
    EnergyPoint,
    Phase,
    WattRange,
    WorkloadVariantSpec,
)
from heliotrope.power.options import ClockOption

PREFILL_POINTS = ((900, 17_500.0, 210), (1_410, 27_473.0, 402), (1_980, 38_579.0, 695))
DECODE_POINTS = ((900, 2_600.0, 320), (1_410, 2_808.0, 385), (1_980, 2_856.0, 432))


def profile(phase: Phase, points: tuple[tuple[int, float, int], ...]) -> tuple[EnergyPoint, ...]:
    return tuple(
        EnergyPoint(
            phase=phase, sm_clock_mhz=mhz, tokens_per_second=rate, joules_per_token=round(watts / rate, 6), watts=watts
        )
        for mhz, rate, watts in points
    )


def spec(role: Role = Role.BOTH, **changes: object) -> WorkloadVariantSpec:
    points: tuple[EnergyPoint, ...] = ()
    if role is not Role.DECODE:
        points += profile(Phase.PREFILL, PREFILL_POINTS)
    if role is not Role.PREFILL:
        points += profile(Phase.DECODE, DECODE_POINTS)
    values: dict[str, object] = {
        "model": "llama",
        "endpoint_selector": LabelSelector(match_labels={"app": "llama", "role": role.value}),
        "role": role,
        "accelerator": Accelerator(type="H100-SXM5-80GB"),
        "energy_profile": points,
        "clock_range": ClockRange(min_mhz=900, max_mhz=1_980),
        "watt_range": WattRange(min_watts=200, max_watts=700),
    }
    return WorkloadVariantSpec(**(values | changes))  # type: ignore[arg-type]


def option(mhz: int, prompt_seconds: float, output_seconds: float, watts: float) -> ClockOption:
    return ClockOption(mhz, prompt_seconds, output_seconds, watts * (prompt_seconds + output_seconds), watts)


__all__ = ["option", "profile", "replace", "spec"]
