"""`heliotrope savings` over ledgers as a picker leaves them."""

import json
import re
from pathlib import Path

import pytest
from tests.unit.epp.ledger.builders import finished
from tests.unit.epp.ledger.test_arms import arms, in_slot, write

from heliotrope_cli.main import main
from heliotrope_epp.outcomes.finished import HOLDOUT, STEERED


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["savings", *arguments])
    captured = capsys.readouterr()
    assert ended.value.code in (0, None), captured.err
    return " ".join(captured.out.split())


def test_a_measured_saving_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, arms())
    text = ran(capsys, str(tmp_path))
    assert "1,080 requests steered, 120 held out (10.0%)" in text
    assert "Energy per request: 20.0% saved (20.0% to 20.0%), measured against the policy's holdout." in text
    assert "Emissions per request: 14.3% saved" in text  # the host's share is the same in both arms
    assert "share engines" in text
    assert "100% of the held-out requests" in text
    assert "By class" in text


@pytest.mark.parametrize(("dearer", "word"), [(HOLDOUT, "saved"), (STEERED, "more")])
def test_intervals_are_told_from_low_to_high(
    dearer: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        in_slot(slot, arm, (2_000_000 + 40_000 * slot) if arm == dearer else 1_000_000)
        for slot in range(12)
        for arm, count in ((HOLDOUT, 10), (STEERED, 90))
        for _ in range(count)
    ]
    write(tmp_path, rows)
    found = re.search(rf"Energy per request: ([\d.]+)% {word} \(([\d.]+)% to ([\d.]+)%\)", ran(capsys, str(tmp_path)))
    assert found is not None
    estimate, low, high = map(float, found.groups())
    assert low < estimate < high


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, arms())
    found = json.loads(ran(capsys, str(tmp_path), "--json"))
    assert (found["version"], found["savings_are"], found["policy"]) == (1, "measured", "llm/green")
    joules = found["overall"]["joules_per_request"]
    assert joules["change"]["estimate"] == pytest.approx(-0.2)
    assert joules["verdict"] == "saving"
    assert (joules["steered_requests"], joules["holdout_requests"]) == (1_080, 120)
    assert found["classes"][0]["class"] == "short"
    assert found["interference"]["share_of_holdout_beside_steered"] == 1.0


def test_without_a_holdout_savings_are_modelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [row for row in arms() if row[0].arm == STEERED])
    text = ran(capsys, str(tmp_path))
    assert "Savings are modelled: no request was held out to compare with." in text
    assert "spec.holdoutPercent" in text
    assert "measured" not in text
    assert json.loads(ran(capsys, str(tmp_path), "--json"))["savings_are"] == "modelled"


def test_too_little_says_what_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, arms(3, held=2))
    text = ran(capsys, str(tmp_path))
    assert "not enough to compare" in text
    assert "at least 100 requests of known value in each arm (there are 6 held out and 54 steered)" in text
    assert "at least 10 blocks of 5 minutes of time (there are 3)" in text
    assert "saved" not in text


def test_a_ledger_without_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [(finished(arm="unsteered", policy=None), None)])
    assert "No enforced policy has decided on a request here" in ran(capsys, str(tmp_path))


def test_names_from_clients_do_not_reach_the_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        in_slot(slot, arm, 1_000, request_class="[b]x\x1b[2J")
        for slot in range(12)
        for arm, count in ((HOLDOUT, 10), (STEERED, 90))
        for _ in range(count)
    ]
    write(tmp_path, rows)
    text = ran(capsys, str(tmp_path))
    assert "\x1b" not in text
    assert "[b]x" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["savings", "/nowhere"], "holds no ledger"),
        (["savings", "/nowhere", "--confidence=2"], "--confidence: 2.0 is not between"),
        (["savings", "/nowhere", "--since=yesterday"], "--since: 'yesterday' is not an RFC 3339 time"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    assert says in " ".join(capsys.readouterr().err.split())
