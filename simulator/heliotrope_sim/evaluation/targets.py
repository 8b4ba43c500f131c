"""The targets of an evaluation, and whether figures meet them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Met(StrEnum):
    """What became of a target."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "unknown"
    """The figure could not be computed."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One target."""

    key: str
    title: str
    text: str
    holds: Callable[[float, Mapping[str, float]], bool]
    """From the figure and all figures by key."""


def _at_most(limit: float) -> Callable[[float, Mapping[str, float]], bool]:
    return lambda value, _: value <= limit


GOALS = (
    Goal("ttft_mape", "TTFT below saturation", "≤ 5 %", _at_most(0.05)),
    Goal("ttft_mape_around", "TTFT around saturation", "< 28.5 % (analytic model of the paper)", _at_most(0.285)),
    Goal("tpot_mape", "TPOT below saturation", "≤ 5 %", _at_most(0.05)),
    Goal("step_energy_mape", "Energy of a step", "≤ 5.6 %", _at_most(0.056)),
    Goal("request_energy_mape", "Energy of a request, length given", "≤ 10 %", _at_most(0.10)),
    Goal("coverage_90", "Coverage of the 0.9 quantile", "90 ± 2 %", lambda value, _: abs(value - 0.9) <= 0.02),
    Goal("bucket_exact", "Length bucket, exact", "> base rate", lambda value, all_: value > all_["bucket_base_rate"]),
    Goal(
        "bucket_within_one",
        "Length bucket, within one",
        "> best constant",
        lambda value, all_: value > all_["bucket_base_within_one"],
    ),
    Goal("us_per_64_candidates", "64 candidates, all targets", "≤ 200 µs", _at_most(200.0)),
    Goal("drift_requests", "Requests until back under 10 %", "≤ 1,000", _at_most(1_000.0)),
)
"""In this order on the screen. TTFT above saturation is reported without a goal."""


def verdict(goal: Goal, figures: Mapping[str, float]) -> Met:
    """Whether a goal is met by these figures."""
    value = figures.get(goal.key, float("nan"))
    if value != value:
        return Met.UNKNOWN
    return Met.MET if goal.holds(value, figures) else Met.MISSED
