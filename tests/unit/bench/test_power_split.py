"""The study of cuts of power: on one fleet, it is arithmetic, and the split by phase never keeps less."""

import json
from pathlib import Path

import pytest
from bench import power_split
from bench.power_split import CUTS, FLEETS, LOADS, main, study, summary

NAME = "8B on H100, chat"


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    return study(FLEETS[NAME])


def test_a_study_has_every_cut_at_every_load_and_prints_the_same_each_time(found: dict[str, object]) -> None:
    rows = found["rows"]
    assert isinstance(rows, list)
    assert {(row["load"], row["cut"]) for row in rows} == {(load, cut) for load in LOADS for cut in CUTS}
    assert study(FLEETS[NAME]) == found


def test_the_split_by_phase_keeps_within_the_budget_at_least_what_one_cap_keeps(found: dict[str, object]) -> None:
    rows = found["rows"]
    assert isinstance(rows, list)
    for row in rows:
        assert row["phase_aware"]["kept"] >= row["uniform_cap"]["kept"] - 1e-3
        assert 0.0 <= row["phase_aware"]["kept"] <= 1.0
        if row["phase_aware"]["verdict"] == "Within":
            assert row["phase_aware"]["watts"] <= row["budget_watts"] + 1
    # Less power never serves more.
    for load in LOADS:
        kept = [row["phase_aware"]["kept"] for row in rows if row["load"] == load]
        assert kept == sorted(kept, reverse=True)


def test_what_is_written_is_what_was_found(
    found: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(power_split, "FLEETS", {NAME: FLEETS[NAME]})
    monkeypatch.setattr("sys.argv", ["power_split", "--output", str(tmp_path / "deep" / "split.json")])
    main()
    document = json.loads((tmp_path / "deep" / "split.json").read_text())
    assert document["fleets"] == {NAME: found}
    assert document["mean_kept_by_cut"] == summary({NAME: found})["mean_kept_by_cut"]
    assert NAME in capsys.readouterr().out
