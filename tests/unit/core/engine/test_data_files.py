"""What data/ holds is what its READMEs say: origin, licence, rows and bytes."""

import csv
import hashlib
import json
import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[4] / "data"
FOLDERS = sorted(path for path in DATA.iterdir() if path.is_dir())
ROW = re.compile(r"^\| (?P<name>[\w.-]+) \| (?P<rows>\d+) \| (?P<digest>[0-9a-f]{64}) \|$", re.MULTILINE)

folders = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@folders
def test_every_file_is_declared_with_its_rows_and_digest(folder: Path) -> None:
    readme = (folder / "README.md").read_text(encoding="utf-8")
    declared = {match["name"]: match for match in ROW.finditer(readme)}
    present = {path.name for path in folder.iterdir()} - {"README.md", "LICENSE"}
    assert present == set(declared)
    for name, match in declared.items():
        content = (folder / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == match["digest"], name
        rows = len(json.loads(content)) if name.endswith(".json") else content.count(b"\n") - 1
        assert rows == int(match["rows"]), name


@folders
def test_every_folder_states_its_origin_and_licence(folder: Path) -> None:
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert re.search(r"https://github\.com/[\w.-]+/[\w.-]+", readme)
    assert re.search(r"`[0-9a-f]{40}`", readme)
    assert "Licence" in readme
    own_text = (folder / "LICENSE").exists()
    assert own_text or "Apache-2.0" in readme or "opendatacommons.org/licenses/odbl" in readme
    assert folder.name in (DATA / "README.md").read_text(encoding="utf-8")


def test_the_notice_of_the_open_database_license_is_kept() -> None:
    notice = "Contains information from Electricity Maps, made available under the Open Database License (ODbL) v1.0."
    assert notice in (DATA / "carbon/README.md").read_text(encoding="utf-8")


def test_it_stays_small() -> None:
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 6_000_000


@pytest.mark.parametrize("zone", ["BR", "ES", "NO", "US-CAL-CISO"])
def test_a_carbon_series_is_every_hour_of_2022(zone: str) -> None:
    with (DATA / f"carbon/{zone}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["datetime_utc", "ci_lifecycle", "ci_direct", "estimated"]
    hours = [datetime.fromisoformat(row["datetime_utc"]) for row in rows]
    assert hours[0] == datetime(2022, 1, 1, tzinfo=UTC)
    assert {(b - a).total_seconds() for a, b in pairwise(hours)} == {3600.0}
    assert len(hours) == 8760
    assert all(0 < float(row["ci_direct"]) < float(row["ci_lifecycle"]) < 1000 for row in rows)
    assert {row["estimated"] for row in rows} == {"true", "false"}


def test_the_trace_is_twenty_minutes_in_order() -> None:
    with (DATA / "azure-llm-2023/conv_first_20min.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["TIMESTAMP"]) for row in rows]
    assert times == sorted(times)
    assert 1190 < (times[-1] - times[0]).total_seconds() < 1200
    assert all(int(row["ContextTokens"]) > 0 and int(row["GeneratedTokens"]) > 0 for row in rows)
