"""The whole study on a tiny setting."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.progress import Progress

from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.report import Report
from heliotrope_sim.reproduce.tension.experiment import CARBON_SLO, report_of
from heliotrope_sim.reproduce.tension.plan import plan
from heliotrope_sim.reproduce.workers import Workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SETTINGS = Settings(quick=True)
TINY = replace(
    plan(SETTINGS),
    seconds=1.0,
    swept_seconds=1.0,
    poll_seconds=2.0,
    prompt_seconds=2.5,
    warm_seconds=0.5,
    long_answer_warm_seconds=0.5,
    planned_seconds=0.5,
    anchor_requests=100,
)
MACHINE_DEPENDENT = "beyond/speed/"
GOLDEN = "8a1585a849ef92e0a0ffa6750ba1648eeba20c7d566d3ff57a4a75c3af2f93c1"


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(TINY, SETTINGS, Workers(None, Progress(disable=True)))


def rows_of(report: Report) -> list[dict[str, object]]:
    """All but CPU times; figures with six digits."""
    rows: list[dict[str, object]] = json.loads(report.to_json())
    kept = [row for row in rows if not str(row["id"]).startswith(MACHINE_DEPENDENT)]
    return [{k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()} for row in kept]


def test_rows_are_what_they_were(report: Report) -> None:
    digest = hashlib.sha256(json.dumps(rows_of(report), ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    assert digest == GOLDEN, digest


def test_rows_belong_to_parts_and_say_what_was_judged(report: Report) -> None:
    for row in report.rows:
        assert row.id.startswith(CARBON_SLO.parts), row.id
        if row.holds is False:
            assert row.note, row.id
    assert {"load", "greedy", "tail", "standing", "sight", "poll", "spread", "shape", "pue", "osl", "prompts"} <= {
        row.id.split("/")[0] for row in report.rows
    }


def test_every_figure_is_drawn(report: Report, tmp_path: Path) -> None:
    figures = {picture.id.rpartition("-")[2] for picture in report.pictures}
    assert figures == {"4a", "4b", "5a", "5b", "6a", "6b", "6c", "7a", "7b"}
    page = report.write(tmp_path).read_text(encoding="utf-8")
    assert page.count("<img") == len(report.pictures)


def test_one_figure_needs_its_runs_alone() -> None:
    settings = replace(SETTINGS, figures=("pue",))
    report = report_of(TINY, settings, Workers(None, Progress(disable=True)))
    assert {row.id.split("/")[0] for row in report.rows} == {"pue"}
