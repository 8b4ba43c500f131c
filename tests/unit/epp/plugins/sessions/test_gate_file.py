"""A gate's file that cannot be used turns the gate off and says why."""

import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.gates import trained_gate

from heliotrope.cache.gate import OFF, Gate
from heliotrope_epp.plugins.sessions.gate_file import NO_GATE, GateState, load_gate


@pytest.fixture(scope="module")
def gate() -> Gate:
    return trained_gate(0.25)


def test_without_a_file_it_is_off() -> None:
    assert load_gate(None) is NO_GATE
    assert not NO_GATE.gate.on


def test_a_validated_gate_is_on(gate: Gate, tmp_path: Path) -> None:
    gate.dump(tmp_path / "gate")
    loaded = load_gate(tmp_path / "gate")
    assert (loaded.state, loaded.problem, loaded.gate.digest) == (GateState.ON, None, gate.digest)


def test_a_gate_without_a_threshold_is_off_and_no_problem(gate: Gate, tmp_path: Path) -> None:
    for off in (OFF, replace(gate, threshold=math.inf)):
        off.dump(tmp_path / "gate")
        loaded = load_gate(tmp_path / "gate")
        assert (loaded.state, loaded.problem, loaded.gate.on) == (GateState.NOT_VALIDATED, None, False)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"heliotrope-gate 1\nsha256 0\n{}\n", b"x" * 5_000_000])
def test_a_file_that_is_none_is_a_problem(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gate"
    if content is not None:
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        loaded = load_gate(path)
    assert (loaded.state, loaded.gate.on) == (GateState.UNUSABLE, False)
    assert loaded.problem is not None
    assert str(path) in loaded.problem
    assert "session gate not used" in caplog.text


def test_a_gate_of_other_features_is_a_problem(gate: Gate, tmp_path: Path) -> None:
    import hashlib

    head, _, body = gate.to_text().partition("sha256 ")
    body = body.partition("\n")[2].replace("turn_number", "turn_count", 1)
    (tmp_path / "gate").write_text(f"{head}sha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}")
    loaded = load_gate(tmp_path / "gate")
    assert loaded.state is GateState.UNUSABLE
    assert loaded.problem is not None
    assert "features" in loaded.problem
