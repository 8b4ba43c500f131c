"""The experiment from start to end, as `heliotrope reproduce cleanest-grid` runs it."""

import io
import json
from datetime import UTC, datetime, timedelta
from math import cos, pi
from pathlib import Path

import pytest
from rich.console import Console

from heliotrope.errors import InvalidInputError
from heliotrope_cli.main import main
from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.grid.experiment import CLEANEST_GRID, PARTS
from heliotrope_sim.reproduce.workers import workers

EVIDENCE = {
    "headline/soft-1",
    "headline/cleanest-first",
    "headline/cleanest-first-against-blind",
    "headline/unpinned",
    "headline/order",
    "drivers/static",
    "drivers/dynamic",
    "credit/alpha-0",
    "credit/alpha-1",
    "credit/shape",
    "baseline/blind",
    "stale/failed",
    "soft/w-0.25",
    "soft/w-0.5",
    "soft/shape",
    "interval/shape",
    "seasons/spring",
}
"""Figures of the paper, which every run has."""
BEYOND = {"forecast", "headroom", "load", "pue", "prefix"}
GOLDEN = Path(__file__).parent / "golden.json"
"""Of `small`: written by the test's own run, to be looked at whenever it changes."""
DAYS = 30


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A month of three regions: one with curtailed power at noon, one with some at night, one without."""
    folder = tmp_path / "moer"
    folder.mkdir()
    start = datetime(2026, 4, 1, tzinfo=UTC)
    lines: dict[str, list[str]] = {name: ["point_time,moer_g_per_kwh"] for name in ("CAISO_NORTH", "SPP_KC", "PJM_DC")}
    for hour in range(DAYS * 24):
        time = (start + timedelta(hours=hour)).isoformat()
        sun, wind = cos((hour - 20) * pi / 12.0), cos(hour * pi / 37.0)
        lines["CAISO_NORTH"].append(f"{time},{0.0 if sun > 0.6 else 430.0 - 20.0 * sun:.1f}")
        lines["SPP_KC"].append(f"{time},{0.0 if wind > 0.9 else 600.0 - 90.0 * wind:.1f}")
        if hour != 100:  # a gap
            lines["PJM_DC"].append(f"{time},{500.0 + 25.0 * wind:.1f}")
    for name, text in lines.items():
        (folder / f"{name}.csv").write_text("\n".join(text) + "\n", encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_run_has_every_row_and_the_shape_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "deep" / "rows.json"
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "cleanest-grid", "--quick", f"--json={file}", f"--out={tmp_path}"])
    assert not ended.value.code
    rows = {row["id"]: row for row in json.loads(file.read_text())}
    assert rows.keys() >= EVIDENCE
    assert {id_.split("/")[0] for id_ in rows} == {part.name for part in PARTS}
    assert {id_: rows[id_]["holds"] for id_ in EVIDENCE} == dict.fromkeys(EVIDENCE, True)
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 13
    # A model stands in for the licensed rates, and everything that is printed says so.
    assert "an illustration" in page
    printed = capsys.readouterr().out
    assert "an illustration" in printed
    assert "not a reproduction" in printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_rows_of_a_users_own_rates_are_as_they_were(small: Path) -> None:
    with workers(1, Console(file=io.StringIO())) as pool:
        report = CLEANEST_GRID.run(Settings(seed=7, quick=True, moer=small), pool)
    # Nothing that is said of the model in their place is said of real rates.
    assert "illustration" not in report.to_html()
    assert "stand-in" not in report.to_html()
    assert any("1 of 720 hours" in each for each in report.substitutes)
    golden = {row["id"]: row for row in json.loads(GOLDEN.read_text(encoding="utf-8"))}
    rows = {row["id"]: row for row in json.loads(report.to_json())}
    assert rows.keys() == golden.keys()
    for id_, row in rows.items():
        numeric = isinstance(golden[id_]["ours"], float)
        expected = pytest.approx(golden[id_]["ours"], rel=1e-6, abs=1e-9) if numeric else golden[id_]["ours"]
        assert row["ours"] == expected, id_
        assert row["holds"] == golden[id_]["holds"], id_


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_parts_that_nobody_asks_for_are_not_run_and_processes_change_nothing(small: Path) -> None:
    settings = Settings(seed=7, quick=True, figures=("credit", "drivers/static"), moer=small)
    reports = []
    for jobs in (1, 2):
        with workers(jobs, Console(file=io.StringIO())) as pool:
            reports.append(CLEANEST_GRID.run(settings, pool))
    assert {row.id.split("/")[0] for row in reports[0].rows} == {"credit", "drivers"}
    assert reports[0].to_json() == reports[1].to_json()
    cut = reports[0].only(settings.figures)
    assert {row.id for row in cut.rows if row.id.startswith("drivers")} == {"drivers/static"}
    assert [picture.id for picture in cut.pictures] == ["credit"]


def test_a_figure_that_is_not_there_is_refused_before_the_run() -> None:
    with pytest.raises(InvalidInputError, match="'phlogiston' is none of headline, soft, drivers"):
        CLEANEST_GRID.check(Settings(figures=("phlogiston",)))
    CLEANEST_GRID.check(Settings(figures=("Savings by headroom and credit", "forecast/yesterday")))


def test_parts_are_named_once_and_go_beyond_the_paper() -> None:
    names = [part.name for part in PARTS]
    assert len(names) == len(set(names))
    assert set(names) >= BEYOND
