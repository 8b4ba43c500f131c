"""docs/forecast-results.md is what the command that it names writes: one zone is computed again."""

import re
from pathlib import Path

import pytest

from heliotrope_sim.evaluation.forecast import report
from heliotrope_sim.evaluation.forecast.study import QUICK_ZONES, Settings, evaluate_zone
from heliotrope_sim.evaluation.forecast.zones import zones

PAGE = Path(__file__).parents[5] / "docs" / "forecast-results.md"
ZONE = "BR-CS"


def rows() -> dict[str, list[str]]:
    """Cells by zone."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    start = next(i for i, cells in enumerate(lines) if cells[0] == "zone")
    end = next(i for i, cells in enumerate(lines) if cells[0] == "hours ahead")
    return {cells[0]: cells for cells in lines[start + 1 : end] if set(cells[0]) != {"-"}}


def quick() -> bool:
    command = re.search(r"Written by `(heliotrope evaluate forecast[^`]*)`", PAGE.read_text())
    assert command is not None
    return "--quick" in command[1]


def test_every_zone_of_the_command_has_a_row() -> None:
    assert set(rows()) == (set(QUICK_ZONES) if quick() else set(zones()))


@pytest.mark.slow
def test_a_row_is_what_the_evaluation_gives() -> None:
    expected = report.zone_cells(evaluate_zone(ZONE, zones()[ZONE], Settings.of(quick=quick())))
    found = rows()[ZONE][: len(expected)]
    assert (found[0], found[-1]) == (expected[0], expected[-1])
    for got, wanted in zip(found[1:-1], expected[1:-1], strict=True):
        # Other processors round the last digit otherwise.
        tolerance = 1.0 if wanted.endswith("%") else 0.11
        assert float(got.rstrip(" %")) == pytest.approx(float(wanted.rstrip(" %")), abs=tolerance)
