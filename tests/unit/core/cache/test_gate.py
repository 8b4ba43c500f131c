import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heliotrope.cache.gate import OFF, Gate, parse_gate
from heliotrope.cache.gate_features import FEATURES, GateFeatures
from heliotrope.cache.gate_training import MIN_SWITCHES, Switch, train_gate
from heliotrope.predict.forest import InvalidModelError


def switches(n: int = 400) -> list[Switch]:
    """Staying pays where the first feature is above one half."""
    rng = np.random.default_rng(0)
    rows = rng.random((n, len(FEATURES)))
    return [Switch(GateFeatures(tuple(r)), 3.0 if r[0] > 0.5 else 1.0, 2.0, 4.0) for r in rows.tolist()]


@pytest.fixture(scope="module")
def gate() -> Gate:
    return replace(train_gate(switches(), 1), threshold=0.05, validated_on=7, saving=0.02)


def row(first: float) -> GateFeatures:
    return GateFeatures((first, *([0.5] * (len(FEATURES) - 1))))


def test_it_learns_where_staying_pays(gate: Gate) -> None:
    assert gate.on
    assert gate.advantage(row(0.9)) == pytest.approx(0.25, abs=0.03)
    assert gate.advantage(row(0.1)) == pytest.approx(-0.25, abs=0.03)
    assert gate.advantage(row(math.nan)) is not None


def test_the_same_switches_give_the_same_gate(gate: Gate) -> None:
    again = replace(train_gate(switches(), 1), threshold=0.05, validated_on=7, saving=0.02)
    assert again.digest == gate.digest


def test_a_gate_reads_back_as_it_was_written(gate: Gate, tmp_path: Path) -> None:
    gate.dump(tmp_path / "gate.txt")
    back = Gate.load(tmp_path / "gate.txt")
    assert back.to_text() == gate.to_text()
    assert back.advantage(row(0.9)) == gate.advantage(row(0.9))


def test_off_reads_back_as_off() -> None:
    back = parse_gate(OFF.to_text())
    assert not back.on
    assert back.threshold == math.inf
    assert back.advantage(row(0.5)) is None


def test_until_a_threshold_is_chosen_it_is_off() -> None:
    assert not train_gate(switches(), 1).on


def test_too_few_or_unusable_switches_leave_it_off() -> None:
    assert train_gate(switches(MIN_SWITCHES - 1), 1) is OFF
    worthless = [replace(s, scale_grams=0.0) for s in switches()]
    assert train_gate(worthless, 1) is OFF


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace("0.05", "0.06", 1),
        lambda text: text.replace("heliotrope-gate 1", "heliotrope-gate 2"),
        lambda text: "",
        lambda text: text.split("\n", 1)[1],
    ],
)
def test_a_damaged_file_is_refused(gate: Gate, damage: object) -> None:
    with pytest.raises(InvalidModelError):
        parse_gate(damage(gate.to_text()))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"threshold": 0.05', '"threshold": "x"'),
        ('"threshold": 0.05', '"threshold": 1000'),
        ('"threshold": 0.05', '"threshold": NaN'),
        ('"trained_on": 400', '"trained_on": true'),
        ('"turn_number"', '"other"'),
        ("left_child=", "left_child=9 "),
    ],
)
def test_what_passes_the_digest_is_still_checked(gate: Gate, before: str, after: str) -> None:
    import hashlib

    head, _, body = gate.to_text().split("\n", 2)
    assert before in body
    body = body.replace(before, after, 1)
    with pytest.raises(InvalidModelError):
        parse_gate(f"{head}\nsha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gate").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidModelError, match="no text"):
        Gate.load(tmp_path / "gate")
