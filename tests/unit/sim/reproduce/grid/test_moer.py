"""The reader of a user's own marginal rates."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from heliotrope.errors import InvalidInputError
from heliotrope.units import g_per_kwh_from_lb_per_mwh
from heliotrope_sim.reproduce.grid.moer import FEWEST_HOURS, read_folder
from heliotrope_sim.reproduce.grid.rates import rates

START = datetime(2025, 7, 6, 16, tzinfo=UTC)


def stamps(count: int = FEWEST_HOURS, minutes: int = 60, start: datetime = START) -> Iterator[str]:
    for i in range(count):
        yield (start + timedelta(minutes=minutes * i)).isoformat().replace("+00:00", "Z")


def write_csv(folder: Path, name: str, lines: list[str], column: str = "moer_lb_per_mwh") -> None:
    (folder / f"{name}.csv").write_text("\n".join([f"point_time,{column}", *lines]) + "\n", encoding="utf-8")


def constant(value: float, **how: int) -> list[str]:
    return [f"{time},{value}" for time in stamps(**how)]


def test_pounds_and_grams_are_read_and_zeros_are_kept(tmp_path: Path) -> None:
    lines = constant(1_000.0)
    lines[3] = lines[3].split(",")[0] + ",0.0"
    write_csv(tmp_path, "CAISO_NORTH", lines)
    write_csv(tmp_path, "PJM_DC", constant(450.0), "moer_g_per_kwh")
    found = read_folder(tmp_path)
    assert found.names == ("CAISO_NORTH", "PJM_DC")
    assert found.start_unix_s == START.timestamp()
    assert found.g_per_kwh.shape == (FEWEST_HOURS, 2)
    assert found.g_per_kwh[0] == pytest.approx([g_per_kwh_from_lb_per_mwh(1_000.0), 450.0])
    assert found.g_per_kwh[3, 0] == 0.0


def test_what_watttime_answers_is_read_with_its_five_minutes(tmp_path: Path) -> None:
    data = [{"point_time": t, "value": float(i)} for i, t in enumerate(stamps(FEWEST_HOURS * 12, 5))]
    document = {"data": data, "meta": {"region": "ERCOT_NORTHCENTRAL", "units": "lbs_co2_per_mwh"}}
    (tmp_path / "ERCOT_NORTHCENTRAL.json").write_text(json.dumps(document), encoding="utf-8")
    write_csv(tmp_path, "PJM_DC", constant(450.0))
    found = read_folder(tmp_path).g_per_kwh[:, 0]
    # The rate of an hour is that of its start.
    assert found == pytest.approx(g_per_kwh_from_lb_per_mwh(np.arange(FEWEST_HOURS) * 12.0))


def test_a_gap_is_unknown_and_never_zero(tmp_path: Path) -> None:
    lines = constant(1_000.0)
    del lines[10:13]
    write_csv(tmp_path, "CAISO_NORTH", lines)
    write_csv(tmp_path, "PJM_DC", constant(900.0))
    found = read_folder(tmp_path).g_per_kwh
    assert np.flatnonzero(np.isnan(found[:, 0])).tolist() == [10, 11, 12]
    assert not np.isnan(found[:, 1]).any()


def test_the_hours_are_those_that_all_files_span(tmp_path: Path) -> None:
    write_csv(tmp_path, "CAISO_NORTH", constant(1_000.0, count=FEWEST_HOURS + 48))
    late = [f"{t},900" for t in stamps(FEWEST_HOURS + 10, start=START + timedelta(hours=24))]
    write_csv(tmp_path, "PJM_DC", late)
    found = read_folder(tmp_path)
    assert found.start_unix_s == (START + timedelta(hours=24)).timestamp()
    assert found.g_per_kwh.shape == (FEWEST_HOURS + 10, 2)
    assert np.isfinite(found.g_per_kwh).all()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("2025-07-06T16:00:00Z,900", r"CAISO_NORTH.csv:7: comes before the one above"),
        ("yesterday,900", r"CAISO_NORTH.csv:7: time: 'yesterday' is not an RFC 3339 time"),
        ("2025-07-06T21:00:00Z,nan", r"CAISO_NORTH.csv:7: nan is no rate; leave out what is unknown"),
        ("2025-07-06T21:00:00Z,-3", r"CAISO_NORTH.csv:7: -3 is no rate"),
        ("2025-07-06T21:00:00Z,", r"CAISO_NORTH.csv:7: '' is no number"),
        ("2025-07-06T21:00:00Z,9,9", r"CAISO_NORTH.csv:7: has 3 cells, the header has 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    lines = constant(1_000.0)
    lines[5] = line
    write_csv(tmp_path, "CAISO_NORTH", lines)
    write_csv(tmp_path, "PJM_DC", constant(900.0))
    with pytest.raises(InvalidInputError, match=said):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "has no list `data`"),
        ('{"data": [], "meta": {"units": "percentile"}}', "meta.units: is 'percentile', none of lbs_co2_per_mwh"),
        ('{"data": [{"value": 1}], "meta": {"units": "lbs_co2_per_mwh"}}', r"data\[0\]: has no point_time and value"),
        (
            '{"data": [{"point_time": "2025-07-06T16:00:00Z", "value": null}], "meta": {"units": "lbs_co2_per_mwh"}}',
            r"data\[0\]: None is no number",
        ),
        ('{"data": [], "meta": {"units": "lbs_co2_per_mwh"}}', "has no value at a full hour"),
    ],
)
def test_bad_json_is_named(tmp_path: Path, document: str, said: str) -> None:
    (tmp_path / "MISO_INDIANAPOLIS.json").write_text(document, encoding="utf-8")
    write_csv(tmp_path, "PJM_DC", constant(900.0))
    with pytest.raises(InvalidInputError, match=said):
        read_folder(tmp_path)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is no folder"):
        read_folder(tmp_path / "nowhere")
    write_csv(tmp_path, "PJM_DC", constant(900.0))
    with pytest.raises(InvalidInputError, match="has 1 files"):
        read_folder(tmp_path)
    write_csv(tmp_path, "ATLANTIS", constant(900.0))
    with pytest.raises(InvalidInputError, match=r"ATLANTIS.csv: 'ATLANTIS' is no known region"):
        read_folder(tmp_path)
    (tmp_path / "ATLANTIS.csv").unlink()
    write_csv(tmp_path, "CAISO_NORTH", constant(900.0, count=20))
    with pytest.raises(InvalidInputError, match="20 hours in common; 240 are the least"):
        read_folder(tmp_path)
    write_csv(tmp_path, "CAISO_NORTH", constant(900.0), "signal_index")
    with pytest.raises(InvalidInputError, match=r"CAISO_NORTH.csv:1: needs the columns point_time and one of"):
        read_folder(tmp_path)
    (tmp_path / "PJM_DC.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="two files for PJM_DC"):
        read_folder(tmp_path)


def test_a_region_without_any_rate_above_zero_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path, "CAISO_NORTH", constant(0.0))
    write_csv(tmp_path, "PJM_DC", constant(900.0))
    with pytest.raises(InvalidInputError, match="CAISO_NORTH: has no rate above zero"):
        rates(tmp_path)
