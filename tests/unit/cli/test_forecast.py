"""`heliotrope forecast` of a folder and of statuses, and `heliotrope evaluate forecast`."""

import json
import math
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import Freshness
from heliotrope_cli.forecast_text import RegionForecast, Wanted, document, sentences, table
from heliotrope_cli.main import main
from heliotrope_cli.region_forecasts import NO_FORECAST, NOTHING_PUBLISHED, published
from heliotrope_cli.region_profiles import chosen

HOUR = 3600.0
NOW = datetime(2026, 3, 1, 12, 20, tzinfo=UTC)
NOW_S = NOW.timestamp()


def profile(name: str = "spain", status: dict[str, Any] | None = None, **spec: Any) -> RegionProfile:
    resource = parse(
        {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "RegionProfile",
            "metadata": {"name": name},
            "spec": {"zone": "ES", "source": {"file": {"path": "es.csv", "valueColumn": "g"}}} | spec,
        }
        | ({} if status is None else {"status": status})
    )
    assert isinstance(resource, RegionProfile)
    return resource


def status(*values: float, age: timedelta = timedelta(minutes=20), spread: bool = True) -> dict[str, Any]:
    """The reading is of 12:00, the forecast's points of 13:00 on."""
    start = NOW - age
    points = [
        {"time": (start + timedelta(hours=i + 1)).isoformat(), "value": str(value)}
        | ({"lower": str(value / 2), "upper": str(value * 2)} if spread else {})
        for i, value in enumerate(values)
    ]
    return {
        "intensity": {
            "value": "200",
            "time": start.isoformat(),
            "source": "file",
            "signalType": "average",
            "emissionFactor": "lifecycle",
        },
        "forecast": {"issuedAt": NOW.isoformat(), "source": "heliotrope anomalies", "points": points},
        "forecastError": {
            "horizonHours": 24,
            "meanAbsoluteError": "14.25",
            "baselineMeanAbsoluteError": "19",
            "samples": 720,
        },
    }


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0


def cells(regions: list[RegionForecast], wanted: Wanted) -> list[list[str]]:
    columns = [list(column.cells) for column in table(regions, wanted).columns]
    return [[str(column[row]) for column in columns] for row in range(len(regions))]


def test_a_status_becomes_a_row() -> None:
    region = published(profile(status=status(*[100.0] * 6, *[50.0] * 6, *[100.0] * 12)), NOW_S)
    row = cells([region], Wanted(NOW_S, 4.0, 24.0))[0]
    # 20 minutes of the running hour are over: the hour after next is half of this and that.
    assert row == [
        "spain", "ES", "200", "100", "100", "83", "67", "–",
        "Sun 19:00 (in 7 h)", "50 (25–100)", "-57 %", "14.2 (19.0)", "heliotrope anomalies",
    ]  # fmt: skip


def test_what_is_unknown_is_no_zero() -> None:
    nothing = published(profile("a"), NOW_S)
    bare = published(profile("b", {name: value for name, value in status().items() if name == "intensity"}), NOW_S)
    stale = published(profile("c", status(100.0, age=timedelta(hours=5), spread=False)), NOW_S)
    rows = cells([nothing, bare, stale], Wanted(NOW_S, 4.0, 24.0))
    assert [row[2] for row in rows] == ["–", "200", "200 (stale)"]
    assert rows[0][3:] == ["–"] * 10
    assert [nothing.problem, bare.problem] == [NOTHING_PUBLISHED, NO_FORECAST]
    assert sentences([nothing, bare])[1:] == [f"a: {NOTHING_PUBLISHED}", f"b: {NO_FORECAST}"]
    said = document([nothing, bare, stale], Wanted(NOW_S, 4.0, 24.0))["regions"]
    assert [each["cleanest"] for each in said] == [None] * 3
    assert [each["freshness"] for each in said] == ["Absent", "Fresh", "Stale"]
    json.dumps(said, allow_nan=False)


def test_a_static_value_is_always_fresh() -> None:
    source = {"static": {"intensityGramsPerKwh": "140"}}
    region = published(profile(status=status(age=timedelta(days=400)), source=source), NOW_S)
    assert region.freshness is Freshness.FRESH


def test_a_status_that_contradicts_itself_says_so() -> None:
    twice = status(100.0)
    twice["forecast"]["points"] *= 2
    region = published(profile(status=twice), NOW_S)
    assert region.forecast is None
    assert region.problem == "forecast: times must rise strictly"


def test_json_has_every_point_and_the_window() -> None:
    region = published(profile(status=status(100.0, 40.0, 60.0, 90.0)), NOW_S)
    said = document([region], Wanted(NOW_S, 2.0, 24.0))["regions"][0]
    assert said["cleanest"] == {
        "start": "2026-03-01T14:00:00Z",
        "end": "2026-03-01T16:00:00Z",
        "expected_g_per_kwh": 50.0,
        "lower_g_per_kwh": 25.0,
        "upper_g_per_kwh": 100.0,
    }
    assert said["error"]["samples"] == 720
    assert [point["expected_g_per_kwh"] for point in said["forecast"]["points"]] == [200.0, 100.0, 40.0, 60.0, 90.0]
    assert said["forecast"]["points"][0]["upper_g_per_kwh"] == 200.0


def test_regions_are_chosen_by_name_in_the_order_given() -> None:
    profiles = [profile("a"), profile("b")]
    assert [each.metadata.name for each in chosen(profiles, ["b", "a"])] == ["b", "a"]
    assert chosen(profiles, []) == profiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    now = time.time() // HOUR * HOUR
    rows = []
    for i in range(50 * 24):
        moment = datetime.fromtimestamp(now - i * HOUR, UTC)
        rows.append(f"{moment:%Y-%m-%dT%H:%M:%SZ},{300 + 100 * math.cos(moment.hour / 24 * 2 * math.pi) + i % 7:.1f}")
    (tmp_path / "es.csv").write_text("\n".join(["datetime_utc,g", *rows]))
    (tmp_path / "short.csv").write_text("\n".join(["datetime_utc,g", *rows[:10]]))
    documents = []
    for name, source in (
        ("spain", "file: {path: es.csv, valueColumn: g}"),
        ("short", "file: {path: short.csv, valueColumn: g}"),
        ("flat", 'static: {intensityGramsPerKwh: "100"}'),
        ("gone", "file: {path: gone.csv, valueColumn: g}"),
    ):
        documents.append(
            f"apiVersion: heliotrope.io/v1alpha1\nkind: RegionProfile\nmetadata: {{name: {name}}}\n"
            f"spec: {{zone: ES, source: {{{source}}}}}\n"
        )
    (tmp_path / "regions.yaml").write_text("---\n".join(documents))
    return tmp_path


def test_of_a_folder_it_learns_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("forecast", "--folder", str(folder), "--json", "--hours", "3")
    regions = {each["region"]: each for each in json.loads(capsys.readouterr().out)["regions"]}
    assert list(regions) == ["flat", "gone", "short", "spain"]
    spain = regions["spain"]
    assert spain["forecast"]["source"] == "heliotrope anomalies"
    assert len(spain["forecast"]["points"]) == 73
    assert spain["error"]["mae_g_per_kwh"] < spain["error"]["baseline_mae_g_per_kwh"]
    start = datetime.fromisoformat(spain["cleanest"]["start"])
    assert 9 <= start.hour <= 13
    assert "neither a forecast nor a past" in regions["flat"]["problem"]
    assert "gone.csv" in regions["gone"]["problem"]
    assert regions["short"]["problem"] == "too little of the past is known to learn from: 10 hours"


def test_of_a_folder_it_prints_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("forecast", "spain", "--folder", str(folder))
    printed = capsys.readouterr().out
    assert "Cleanest 4 h" in printed
    assert "heliotrope anomalies" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--folder", "FOLDER"], "nowhere: is no RegionProfile; there are: flat, gone, short, spain"),
        (["--folder", "FOLDER/none"], "is not a folder"),
        (["--folder", "FOLDER", "--hours", "0"], "--hours: 0 is not above 0 and at most 72"),
        (["--folder", "FOLDER", "--hours", "nan"], "--hours: nan is not above 0"),
        (["--folder", "FOLDER", "--hours", "8", "--within", "6"], "--within: 6 is not between --hours (8) and 72"),
        (["--folder", "FOLDER", "--kubeconfig", "x"], "--folder: give --folder or --kubeconfig, not both"),
        (["--kubeconfig", "FOLDER/none"], "give a kubeconfig"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        main(["forecast", *(each.replace("FOLDER", str(folder)) for each in arguments)])
    assert ended.value.code == 1
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_folder_without_regions_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["forecast", "--folder", str(tmp_path)])
    assert "holds no RegionProfile" in " ".join(capsys.readouterr().err.split())


def test_the_command_does_not_load_lightgbm() -> None:
    import subprocess

    code = (
        "import heliotrope_cli.commands.forecast, heliotrope_operator.forecasts, sys; print('lightgbm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"False"


@pytest.mark.slow
def test_the_evaluation_of_one_zone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, page = tmp_path / "f.json", tmp_path / "page.md"
    files = ("--json", str(figures), "--markdown", str(page))
    run("evaluate", "forecast", "--quick", "--zone", "BR", *files, "--strict")
    zone = json.loads(figures.read_text())["zones"][0]
    assert zone["mae_g_per_kwh"] < 0.8 * zone["baseline_mae_g_per_kwh"]
    assert 0.65 < zone["coverage_80"] < 0.9
    assert "1 zones" in capsys.readouterr().out
    assert f"heliotrope evaluate forecast --quick --zone BR --markdown {page}" in page.read_text()


def test_a_zone_that_is_not_recorded_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", "forecast", "--zone", "XX"])
    assert "'XX' is not recorded" in capsys.readouterr().err
