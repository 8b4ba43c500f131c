"""The agent runs on every GPU node: it loads nothing that it has no use for."""

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "node_agent" / "heliotrope_agent"
HEAVY = {"aiohttp", "kopf", "kr8s", "numba", "numpy", "pandas", "scipy", "uvloop"}
LIBRARY = ("heliotrope.units", "heliotrope.api.v1alpha1", "heliotrope.engine.counters")


def modules() -> list[str]:
    root = PACKAGE.parent
    files = (path.relative_to(root).with_suffix("") for path in PACKAGE.rglob("*.py"))
    # A calibration is run by hand, on a node that was given up for it.
    return sorted(".".join(file.parts) for file in files if file.parts[1] != "calibrate" and file.name != "__init__")


@pytest.mark.slow
def test_the_agent_loads_no_arrays_and_no_event_loop_of_others() -> None:
    names = (*LIBRARY, *modules())
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in answer.stdout.split()}
    assert "heliotrope_agent" in loaded
    assert not loaded & HEAVY
