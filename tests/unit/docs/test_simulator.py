"""docs/simulator.md: its example runs, and says what the simulator says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/simulator.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    grams = {name: float(value) for name, value in re.findall(r"(\w+): (\d+) g", printed)}
    assert grams.keys() == {"RoundRobin", "Greedy", "Facility"}
    assert grams["Greedy"] < grams["RoundRobin"]
    assert grams["Facility"] < grams["RoundRobin"]
