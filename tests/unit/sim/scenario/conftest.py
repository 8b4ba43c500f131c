import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliotrope_sim.fleet.simulate import compile_kernel
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.study import Study, prepare

SCENARIO = """
name: test
start: 2022-06-01T10:00:00Z
regions:
  - {name: norway, intensity: {grams_per_kwh: 30}, pue: 1.1, rtt_ms: {spain: 60}}
  - {name: spain, intensity: {zone: ES}}
sites:
  - {region: norway, engine: llama-3.1-8b-a100-40gb, engines_per_node: 2}
  - {region: spain, engine: llama-3.1-8b-a100-40gb, engines_per_node: 2}
slo: {ttft_seconds: 2.0, tpot_seconds: 0.1}
policies:
  - {name: round robin, scheduler: RoundRobin}
  - {name: greedy, scheduler: Greedy}
workload: {kind: poisson, rate_per_second: 5, duration_seconds: 4}
"""


class Changed:
    """A small scenario with some of its keys replaced, and files beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def data(self, **changes: Any) -> dict[str, Any]:
        data = copy.deepcopy(yaml.safe_load(SCENARIO))
        # As reading does: YAML's reader makes times of texts.
        data["start"] = "2022-06-01T10:00:00Z"
        for key, value in changes.items():
            data[key] = value
        return data

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def study(self, data: Mapping[str, Any] | None = None, **changes: Any) -> Study:
        return prepare(self.data(**changes) if data is None else data, Files(self.folder))


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    return Changed(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def compiled_kernel() -> None:
    """Compiles the kernel once, so that no test's time holds it."""
    compile_kernel()
