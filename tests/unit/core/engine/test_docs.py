"""The examples of docs/engine-models.md run as printed, and its table of errors is that of the profiles."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel

PAGE = (Path(__file__).resolve().parents[4] / "docs/engine-models.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_a_shipped_profile_is_used_as_shown() -> None:
    exec(compile(BLOCKS[0], "engine-models.md", "exec"), {})


def test_an_engine_of_ones_own_is_fitted_as_shown() -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(BLOCKS[1], "engine-models.md", "exec"), {})
    printed, _ = json.JSONDecoder().raw_decode(output.getvalue())
    engine = EngineModel.from_mapping(printed["model"])
    assert engine.prefill_seconds(4096.0) == pytest.approx(0.271, rel=0.1)
    generation = 4 * engine.prefill_seconds(8192.0, 16.0, 16 * 512.0**2) + 511 * engine.decode_seconds(64.0, 64 * 768.0)
    assert generation == pytest.approx(13.6, rel=0.05)


@pytest.mark.parametrize("name", profiles.available())
def test_the_printed_errors_are_those_of_the_profile(name: str) -> None:
    error = profiles.load(name).error
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} |") and line.count("/ ") == 5)
    printed = re.findall(r"/ ([\d.]+) %", row)
    expected = (error.prefill_seconds, error.decode_seconds, error.step_joules)
    assert [float(value) for value in printed] == pytest.approx([100 * value for value in expected], abs=0.1)


@pytest.mark.parametrize("name", profiles.available())
def test_the_printed_steps_are_those_of_the_profile(name: str) -> None:
    engine = profiles.load(name)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    numbers = re.findall(r"([\d.]+) / ([\d.]+) (ms|W)", row)
    for batch, milliseconds, watts in zip((1.0, 64.0), numbers[0], numbers[1], strict=False):
        seconds = engine.decode_seconds(batch, batch * 600)
        joules = engine.decode_joules(batch, batch * 600)
        assert seconds * 1e3 == pytest.approx(float(milliseconds), abs=0.06)
        assert joules / seconds / engine.tensor_parallel == pytest.approx(float(watts), abs=0.6)
