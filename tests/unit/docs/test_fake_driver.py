"""docs/fake-driver.md does what it says."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.nvml import __main__ as command
from tests.support.nvml import node, products

ROOT = Path(__file__).parents[3]
HELIOTROPE = Path(sys.executable).with_name("heliotrope")
PAGE = (ROOT / "docs" / "fake-driver.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.mark.slow
def test_an_agent_on_a_laptop(tmp_path: Path) -> None:
    script = block("sh").replace("uv run python", sys.executable).replace("uv run heliotrope", str(HELIOTROPE))
    assert "--state-folder" in script
    # A port of its own, and no longer a wait than the agent needs.
    script = script.replace("--node workstation", "--node workstation --metrics-port 0").replace(
        "sleep 10", 'for _ in $(seq 200); do [ -e "$folder/wishes/status/workstation.yaml" ] && break; sleep 0.1; done'
    )
    bash = shutil.which("bash")
    assert bash is not None
    said = subprocess.run(
        [bash, "-eumc", script],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert said.returncode == 0, said.stderr
    shown = [line for line in said.stdout.splitlines() if line.startswith("GPU 0 GPU-")]
    assert len(shown) == 2, said
    assert "SM locked 1050" in shown[0]
    assert "not locked" in shown[1]
    assert "nvmlDeviceSetGpuLockedClocks 1050 1050: ok" in said.stdout
    assert "nvmlDeviceResetGpuLockedClocks 0 0: ok" in said.stdout


def test_the_sample_test_uses_what_there_is() -> None:
    text = block("python")
    for name in re.findall(r"node\.(\w+)", text):
        assert hasattr(node.FakeNode, name) or name in ("node", "products")
    for name in re.findall(r"Code\.(\w+)", text):
        assert name in node.Code.__members__
    assert {"skip", "count", "gpu"} <= inspect.signature(node.FakeNode.fail).parameters.keys()
    assert all(hasattr(products, name) for name in re.findall(r"import (A\w+), (H\w+)", text)[0])


def test_every_option_of_the_page_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpus"
    command.main(["create", str(path), "a100-80gb", "h100"])
    variables = capsys.readouterr().out
    assert f"export HELIOTROPE_FAKE_NVML={path}" in variables
    command.main(["variables", str(path)])
    assert capsys.readouterr().out == variables
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    options = re.findall(r"`[^`]*?(--[a-z-]+ [\w ]+)`", table)
    assert {option.split()[0] for option in options} == {"--load", "--slow-mhz", "--lost", "--lock", "--privilege"}
    for option in options:
        command.main(["set", str(path), "1", *option.split()])
    with node.FakeNode(path) as opened:
        state = opened.read(1)
        assert (state.sm_lock_mhz, state.utilization_percent) == ((600, 600), 80)
    command.main(["show", str(path)])
    shown = capsys.readouterr().out
    assert "GPU 0" in shown
    assert "SM locked 600" in shown
    command.main(["writes", str(path)])
    assert "nvmlDeviceSetGpuLockedClocks 600 600: ok" in capsys.readouterr().out
    command.main(["reboot", str(path)])
    command.main(["show", str(path)])
    assert "locked 600" not in capsys.readouterr().out
    with pytest.raises(SystemExit, match="none of the 2"):
        command.main(["set", str(path), "2", "--load", "1"])
