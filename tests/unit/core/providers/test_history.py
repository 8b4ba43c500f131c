import gzip
import json
from pathlib import Path

import pytest

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope.providers.history import Names, Unit, read_history, settlement_signal

CSV = """datetime_utc,ci_direct,estimated
2026-01-01T00:00:00Z,100,false
2026-01-01T01:00:00Z,,false
2026-01-01T02:00:00Z,300,true
2026-01-01T03:00:00Z,400,false
2026-01-01T09:00:00Z,500,false
"""
MIDNIGHT = 1_767_225_600.0
HOUR = 3_600.0


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["es.csv", "es.csv.gz"])
def test_a_table(tmp_path: Path, name: str) -> None:
    series = read_history(written(tmp_path / name, CSV), Names(value="ci_direct"))
    point = series.at(MIDNIGHT + 2.5 * HOUR)
    assert point is not None
    assert (point.intensity_g_per_kwh, point.estimated) == (300.0, True)


def test_one_missing_step_is_held_over_and_a_longer_gap_is_a_gap(tmp_path: Path) -> None:
    series = read_history(written(tmp_path / "es.csv", CSV), Names(value="ci_direct"))
    # Steps of 2, 1, 6 hours: the usual one is 2, so a value holds for 4 at most.
    assert series.average(MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR) == 100.0
    assert series.average(MIDNIGHT + 6 * HOUR, MIDNIGHT + 7 * HOUR) == 400.0
    assert series.average(MIDNIGHT + 7 * HOUR, MIDNIGHT + 8 * HOUR) is None


ELECTRICITY_MAPS = {
    "zone": "ES",
    "history": [
        {"datetime": "2026-01-01T00:00:00.000Z", "carbonIntensity": 100, "isEstimated": False},
        {"datetime": "2026-01-01T01:00:00.000Z", "carbonIntensity": None},
        {"datetime": "2026-01-01T02:00:00.000Z", "carbonIntensity": 300, "isEstimated": True},
    ],
}
WATTTIME = {
    "data": [{"point_time": "2026-01-01T00:00:00+00:00", "value": 1_000}],
    "meta": {"units": "lbs_co2_per_mwh"},
}


def test_answers_of_electricity_maps_and_watttime(tmp_path: Path) -> None:
    average = read_history(written(tmp_path / "es.json", json.dumps(ELECTRICITY_MAPS)), Names())
    assert average.values_g_per_kwh == (100.0, 300.0)
    assert average.estimated == (False, True)
    marginal = read_history(written(tmp_path / "w.json", json.dumps(WATTTIME)), Names(), Unit.POUNDS_PER_MWH)
    assert marginal.values_g_per_kwh == (pytest.approx(453.59237),)
    assert marginal.estimated == (None,)


def test_a_plain_list_with_named_keys(tmp_path: Path) -> None:
    text = json.dumps([{"at": "2026-01-01T00:00:00Z", "g": 5.5}])
    series = read_history(written(tmp_path / "es.json.gz", text), Names(time="at", value="g"))
    assert series.values_g_per_kwh == (5.5,)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            CSV,
            r"a\.csv: which column is the value\? It has datetime_utc, ci_direct, estimated; .*--value-column",
        ),
        ("a.csv", "x,value\n1,2\n", "which column is the time"),
        ("a.csv", "time,value\nyesterday,2\n", "row 2: time: 'yesterday'"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "{}", "holds no list"),
        ("a.json", '[{"time": "2026-01-01", "value": true}]', r"\[0\]\.value: True is not a number"),
        ("a.json", '[{"time": 5, "value": 1}]', r"\[0\]\.time: 5 is not a time"),
        ("a.json", '[{"time": "2026-01-01", "value": null}]', "no object has a value"),
        ("a.json", '[{"time": "2026-01-01", "value": -5}]', "-5"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_history(written(tmp_path / name, text), Names())


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read: No such file"):
        read_history(tmp_path / "none.csv", Names())


def profile(source: dict[str, object], **spec: object) -> RegionProfile:
    return RegionProfile.model_validate(
        {"metadata": {"name": "es"}, "spec": {"zone": "ES", "source": source, **spec}}, by_alias=True
    )


MARGINAL = {"type": "marginal", "emissionFactor": "direct"}


def test_a_profiles_replay_lies_on_the_wall_clock(tmp_path: Path) -> None:
    written(tmp_path / "es.csv", CSV)
    replay = {"seriesStart": "2026-01-01T00:00:00Z", "wallStart": "2026-06-01T00:00:00Z", "speed": 60}
    source = {"file": {"path": "es.csv", "valueColumn": "ci_direct", "replay": replay}}
    signal = settlement_signal(profile(source), tmp_path)
    assert signal.kind == (SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
    june = 1_780_272_000.0
    assert signal.series.average(june + 120.0, june + 180.0) == 300.0
    assert signal.series.average(june + 420.0, june + 480.0) is None


def test_a_marginal_profiles_zeros_are_credited(tmp_path: Path) -> None:
    text = "time,moer\n2026-01-01T00:00:00Z,0\n2026-01-01T01:00:00Z,400\n2026-01-01T02:00:00Z,600\n"
    written(tmp_path / "es.csv", text)
    source = {"file": {"path": "es.csv", "timeColumn": "time", "valueColumn": "moer"}}
    marginal = profile(source, signal=MARGINAL, curtailmentCredit="0.1")
    assert settlement_signal(marginal, tmp_path).series.values_g_per_kwh == (50.0, 400.0, 600.0)
    assert settlement_signal(marginal, tmp_path).source == "file es.csv (α = 0.1)"
    assert settlement_signal(marginal, tmp_path, 1.0).series.values_g_per_kwh == (500.0, 400.0, 600.0)


def test_a_static_profile_has_its_value_always(tmp_path: Path) -> None:
    signal = settlement_signal(profile({"static": {"intensityGramsPerKwh": "7"}}), tmp_path)
    assert signal.series.average(0.0, 1e10) == 7.0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"neso": {}}, "its source has no file"),
        (
            {"file": {"path": "x", "valueColumn": "v", "replay": {"seriesStart": "2026-01-01T00:00:00Z"}}},
            "state spec.source.file.replay.wallStart",
        ),
    ],
)
def test_a_source_without_a_past_is_said(tmp_path: Path, source: dict[str, object], message: str) -> None:
    signal = {"emissionFactor": "direct"}
    with pytest.raises(InvalidInputError, match=message):
        settlement_signal(profile(source, signal=signal), tmp_path)
