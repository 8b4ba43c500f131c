"""Savings against how far intensities are apart (§V-C, figure 5b)."""

from dataclasses import replace

import numpy as np

from heliotrope_sim.reproduce.row import Row
from heliotrope_sim.reproduce.tension.case import Case
from heliotrope_sim.reproduce.tension.grids import base_hour, spread
from heliotrope_sim.reproduce.tension.models import LLAMA, LOADS, MIXTRAL, Served
from heliotrope_sim.reproduce.tension.plan import Found, Plan
from heliotrope_sim.reproduce.tension.policies import FACILITY

SPREAD = (LLAMA, MIXTRAL)
PAPER_CV = (0.31, 0.94)
PAPER = {
    ("llama", "low"): (49.0, 59.0),
    ("llama", "moderate"): (34.0, 56.0),
    ("llama", "high"): (13.0, 39.0),
    ("mixtral", "low"): (44.0, 55.0),
    ("mixtral", "moderate"): (39.0, 55.0),
    ("mixtral", "high"): (24.0, 45.0),
}
TENTH = 0.1
UNCHANGED_POINTS = 3.0


def spread_case(plan: Plan, model: Served, load: str, hour: int) -> Case:
    """Facility at an hour of the year."""
    return replace(plan.swept(model, model.rate(load), FACILITY), hour=hour)


def spread_cases(plan: Plan) -> list[Case]:
    """All hours, the base hour too."""
    hours = (*plan.hours, base_hour())
    return [spread_case(plan, model, load, hour) for model in SPREAD for load in LOADS for hour in hours]


def slope(plan: Plan, found: Found, model: Served, load: str) -> float:
    """Points of saving per tenth of the coefficient of variation, by least squares over the hours."""
    savings = [found.saving(spread_case(plan, model, load, hour)) for hour in plan.hours]
    return float(np.polyfit([spread(hour) for hour in plan.hours], savings, 1)[0]) * TENTH


def paper_slope(model: Served, load: str) -> float:
    """Of the paper's lowest and highest hours."""
    low, high = PAPER[model.name, load]
    return round((high - low) / (PAPER_CV[1] - PAPER_CV[0]) * TENTH, 2)


def spread_rows(plan: Plan, found: Found) -> list[Row]:
    """A slope for each load, and that the load steepens it."""
    rows = []
    half = len(plan.hours) // 2
    for model in SPREAD:
        slopes = {load: slope(plan, found, model, load) for load in LOADS}
        for load in LOADS:
            savings = [found.saving(spread_case(plan, model, load, hour)) for hour in plan.hours]
            low, high = np.mean(savings[:half]), np.mean(savings[half:])
            paper = PAPER[model.name, load]
            rows.append(
                Row(
                    f"spread/{model.name}/{load}",
                    f"{FACILITY}: more saved per 0.1 of CV of intensity, {model.title}, {load} load",
                    paper_slope(model, load),
                    slopes[load],
                    "points",
                    slopes[load] > 0.0,
                    f"saved {low:.0f} to {high:.0f} % between CV {spread(plan.hours[0]):.2f} and "
                    f"{spread(plan.hours[-1]):.2f} (paper: {paper[0]:.0f} to {paper[1]:.0f} between {PAPER_CV[0]} and "
                    f"{PAPER_CV[1]}); judged: positive",
                )
            )
        rows.append(
            Row(
                f"spread/{model.name}/load",
                f"The slope is steeper at high than at low load, {model.title}",
                f"{paper_slope(model, 'low'):.1f} < {paper_slope(model, 'high'):.1f}",
                " , ".join(f"{slopes[load]:.1f}" for load in LOADS),
                "points",
                None if plan.quick else slopes["high"] > slopes["low"],
                "per 0.1 of CV at low, moderate and high load; judged in a full run: the ends",
            )
        )
        ranges = []
        for load in LOADS:
            missed = [found.violation(spread_case(plan, model, load, hour)) for hour in plan.hours]
            ranges.append(max(missed) - min(missed))
        rows.append(
            Row(
                f"spread/{model.name}/violation",
                f"Violation by hour differs by at most, {model.title}",
                "unchanged",
                max(ranges),
                "points",
                max(ranges) <= UNCHANGED_POINTS,
                f"over hours at one load; judged: within {UNCHANGED_POINTS:g} points",
            )
        )
    return rows
