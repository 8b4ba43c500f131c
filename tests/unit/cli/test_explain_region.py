"""`heliotrope explain` of the region tier's placements, as its scheduler tells them."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.epp.region.bench import Bench, chat, policy
from tests.unit.epp.region.builders import Client

from heliotrope_cli.main import main


def recorded(path: Path) -> dict[str, object]:
    async def placed() -> dict[str, object]:
        bench = Bench({"es": 20.0, "fr": 400.0}, carbon_policy=policy())
        bench.send(Client(chat(), {"x-request-id": "r-1", "x-session-id": "s"}), *bench.clients(4))
        found = bench.log.get("r-1")
        assert found is not None
        return found

    document = asyncio.run(placed())
    path.write_text(json.dumps(document))
    return document


def explain(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    assert ended.value.code == 0


def test_a_placement_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.json"
    recorded(file)
    explain("--file", str(file))
    said = capsys.readouterr().out
    assert "Request r-1 for llama" in said
    assert "went to region es: objective." in said
    assert "Greedy assigned it with 4 others in window 1, outcome Heuristic." in said
    assert "Its session: first turn." in said


def test_the_document_itself_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.json"
    document = recorded(file)
    explain("--json", "--file", str(file))
    assert json.loads(capsys.readouterr().out) == document


def test_what_was_held_fell_back_or_went_nowhere_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.json"
    document = recorded(file) | {
        "region": None,
        "reason": "no allowed region is up",
        "held_seconds": 1800.0,
        "fallback": "deadline",
        "carbon_counts": False,
    }
    file.write_text(json.dumps(document))
    explain("--file", str(file))
    said = capsys.readouterr().out
    for part in (
        "went nowhere: no allowed region is up.",
        "in the place of the policy's scheduler (deadline)",
        "held for",
        "Carbon did not count",
    ):
        assert part in said


def test_a_broken_placement_names_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.json"
    file.write_text(json.dumps(recorded(file) | {"window": "many"}))
    with pytest.raises(SystemExit):
        main(["explain", "--file", str(file)])
    assert "window" in capsys.readouterr().err
