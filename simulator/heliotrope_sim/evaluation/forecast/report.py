"""Results as tables: for a terminal, for JSON and for a page of documentation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from heliotrope.carbon.forecast.training import BASELINE
from heliotrope_sim.evaluation.forecast.study import WINDOW_HOURS, ZoneResult

SHOWN_AHEAD = (1, 3, 6, 12, 24, 36, 48, 72)
HEADER = (
    "zone",
    "mean",
    "ours",
    "yesterday",
    "ours/yesterday",
    "MAPE",
    "MAPE of yesterday",
    "in 80 %",
    f"in 80 %, {WINDOW_HOURS} h",
    "used",
)
GRAMS_COLUMNS = slice(1, 4)


def zone_cells(result: ZoneResult) -> list[str]:
    """One row; rivals follow."""
    trainings = sum(result.used.values())
    own = trainings - result.used.get(BASELINE.name, 0)
    used = "ours" if own == trainings else "yesterday" if own == 0 else f"ours in {own} of {trainings}"
    return [
        result.zone,
        f"{result.mean_g_per_kwh:.0f}",
        f"{result.mae:.1f}",
        f"{result.baseline_mae:.1f}",
        f"{result.ratio:.2f}",
        _percent(result.mape),
        _percent(result.baseline_mape),
        _percent(result.coverage),
        _percent(result.window_coverage),
        used,
        *(f"{mae:.1f}" for mae in result.rivals.values()),
    ]


def hour_cells(results: Sequence[ZoneResult]) -> list[list[str]]:
    """By hours ahead, zones counting alike: error over the baseline's, and coverage."""
    rows = []
    for ahead in SHOWN_AHEAD:
        ratios = [float(each.mae_by_hour[ahead - 1] / each.baseline_mae_by_hour[ahead - 1]) for each in results]
        inside = [float(each.coverage_by_hour[ahead - 1]) for each in results]
        rows.append([str(ahead), f"{np.mean(ratios):.2f}", _percent(float(np.mean(inside)))])
    return rows


def summary(results: Sequence[ZoneResult]) -> str:
    """The results in a sentence."""
    ratios = [each.ratio for each in results]
    worse = [each.zone for each in results if each.ratio > 1.0]
    lost = f"above it in {', '.join(worse)} (by up to {_percent(max(ratios) - 1.0)})" if worse else "nowhere above it"
    inside, windows = (
        _percent(float(np.mean([getattr(each, name) for each in results]))) for name in ("coverage", "window_coverage")
    )
    return (
        f'{len(results)} zones: the error is {np.mean(ratios):.2f} of that of "as at the same hour yesterday" on '
        f"average, {min(ratios):.2f} at best, {lost}; {inside} of hours and {windows} of means over {WINDOW_HOURS} "
        "hours are within the interval of 80 %."
    )


def tables(results: Sequence[ZoneResult]) -> list[Table]:
    """For a terminal."""
    by_zone = Table(*_header(results), title="Mean absolute errors of 1 to 72 hours ahead, g/kWh", box=None)
    for each in results:
        by_zone.add_row(*zone_cells(each))
    by_hour = Table("hours ahead", "ours/yesterday", "in 80 %", box=None)
    for row in hour_cells(results):
        by_hour.add_row(*row)
    return [by_zone, by_hour]


def markdown(results: Sequence[ZoneResult], command: str) -> str:
    """A page that says by which command it was written."""
    return "\n".join(
        [
            "# Forecasts of carbon intensity: results",
            "",
            f"Written by `{command}`. What is measured, and how, is in [forecast.md](forecast.md).",
            "",
            summary(results),
            "",
            "Mean absolute errors over 1 to 72 hours ahead, and the zone's mean intensity, g/kWh:",
            "",
            *_lines(_header(results), [zone_cells(each) for each in results]),
            "",
            "By hours ahead, zones counting alike:",
            "",
            *_lines(["hours ahead", "ours/yesterday", "in 80 %"], hour_cells(results)),
            "",
        ]
    )


def document(results: Sequence[ZoneResult]) -> dict[str, Any]:
    """Every figure."""
    return {
        "zones": [
            {
                "zone": each.zone,
                "forecasts": each.forecasts,
                "mean_g_per_kwh": each.mean_g_per_kwh,
                "mae_g_per_kwh": each.mae,
                "baseline_mae_g_per_kwh": each.baseline_mae,
                "mape": each.mape,
                "baseline_mape": each.baseline_mape,
                "coverage_80": each.coverage,
                "window_coverage_80": each.window_coverage,
                "used": dict(each.used),
                "rivals_mae_g_per_kwh": dict(each.rivals),
                "mae_by_hour": each.mae_by_hour.tolist(),
                "baseline_mae_by_hour": each.baseline_mae_by_hour.tolist(),
                "coverage_80_by_hour": each.coverage_by_hour.tolist(),
            }
            for each in results
        ]
    }


def _header(results: Sequence[ZoneResult]) -> list[str]:
    return [*HEADER, *(results[0].rivals if results else ())]


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"
