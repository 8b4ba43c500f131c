import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from heliotrope.carbon.bootstrap import Interval
from heliotrope.errors import InvalidInputError
from heliotrope_sim.reproduce.experiment import Experiment, Settings
from heliotrope_sim.reproduce.report import Picture, Report, Sheet, number, show
from heliotrope_sim.reproduce.row import Row, above_zero, percent_row


def report(*rows: Row) -> Report:
    return Report("x", "A <title>", 7, True, ("stands in",), rows, (Sheet("t", ("a", "b"), (("1", "<2>"),), "n"),))


ROWS = (
    Row("a", "A", 1.5, 2.5, "%", True, "n", 2.0, 3.0),
    Row("b", "B", None, math.nan, "s", None),
    Row("c", "C", "x > y", "y > x", "", False, "because"),
)


def test_the_json_is_a_list_with_one_object_per_figure() -> None:
    rows = json.loads(report(*ROWS).to_json())
    assert [r["id"] for r in rows] == ["a", "b", "c"]
    plain = {"id": "a", "title": "A", "paper": 1.5, "ours": 2.5, "unit": "%", "holds": True, "note": "n"}
    assert rows[0] == plain | {"interval": [2.0, 3.0]}
    assert rows[1]["ours"] is None
    assert rows[1]["holds"] is None
    assert rows[1]["interval"] is None
    assert rows[2]["holds"] is False


def test_two_rows_of_one_id_are_refused() -> None:
    with pytest.raises(AssertionError, match="unique"):
        report(ROWS[0], ROWS[0])


def test_a_report_is_cut_to_what_is_asked_for() -> None:
    whole = replace(report(*ROWS), pictures=(Picture("Some plot", "", id="b"), Picture("Another", "")))
    cut = whole.only(("b", "another"))
    assert [row.id for row in cut.rows] == ["b"]
    assert [picture.title for picture in cut.pictures] == ["Some plot", "Another"]
    assert cut.sheets == ()
    assert whole.only(()) is whole
    with pytest.raises(InvalidInputError, match="'nothing' is none of a, b, c,"):
        whole.only(("b", "nothing"))


def test_a_part_is_left_out_that_nobody_asks_for() -> None:
    assert Settings().wants("alpha")
    assert Settings(figures=("alpha/0.5",)).wants("alpha")
    assert Settings(figures=("al",)).wants("alpha")
    assert not Settings(figures=("alpha",)).wants("seasons")
    assert Settings(figures=("Some plot",)).wants("seasons")


def test_what_a_study_cannot_do_is_refused_before_it_runs() -> None:
    study = Experiment("study", "", lambda _settings, _workers: report(*ROWS), parts=("a", "b"))
    study.check(Settings(figures=("a/1", "Some plot")))
    with pytest.raises(InvalidInputError, match="'x' is none of a, b"):
        study.check(Settings(figures=("x",)))
    with pytest.raises(InvalidInputError, match="does not read marginal"):
        study.check(Settings(moer=Path("moer")))


def test_the_page_escapes_and_the_folder_is_made(tmp_path: Path) -> None:
    page = report(*ROWS).write(tmp_path / "deep" / "er")
    text = page.read_text()
    assert "A &lt;title&gt;" in text
    assert "&lt;2&gt;" in text
    assert json.loads((tmp_path / "deep/er/rows.json").read_text())[0]["id"] == "a"


def test_the_terminal_shows_verdicts_and_why_a_figure_differs(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(*ROWS), Console(width=120))
    text = capsys.readouterr().out
    assert "1 figures hold, 1 differ, 1 are reported only." in text
    assert "C: because" in text


def test_percent_rows_carry_their_interval() -> None:
    row = percent_row("i", "t", 8.9, Interval(0.1, 0.05, 0.2, 0.95, 9), holds=None)
    assert (row.ours, row.low, row.high) == (10.0, 5.0, 20.0)


@pytest.mark.parametrize(
    ("estimate", "low", "quick", "holds"),
    [(0.1, 0.05, False, True), (0.1, -0.05, False, False), (0.1, -0.05, True, True), (-0.1, -0.2, True, False)],
)
def test_a_quick_run_judges_the_sign_a_full_one_the_interval(
    estimate: float, low: float, quick: bool, holds: bool
) -> None:
    assert above_zero(Interval(estimate, low, 0.3, 0.95, 9), quick=quick) is holds


def test_figures_have_the_digits_they_are_worth() -> None:
    figures = (1_848.9, 16.23, 0.3244, None, math.nan, "a")
    assert [number(v) for v in figures] == ["1,849", "16.2", "0.324", "–", "–", "a"]
