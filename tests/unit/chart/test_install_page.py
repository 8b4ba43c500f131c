"""The commands and values of docs/install.md are those of the chart."""

import re
from typing import Any

import pytest
import yaml
from tests.support.chart import CHART, ROOT, Chart

PAGE = re.sub(r"\\\n\s*", "", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"))
HELM = [line.strip() for line in PAGE.splitlines() if re.match(r"\s*helm (install|upgrade|template) ", line)]
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


@pytest.mark.controlplane
@pytest.mark.parametrize("command", HELM)
def test_every_helm_command_renders(chart: Chart, command: str) -> None:
    words = command.partition("|")[0].split()
    positions = [number for number, word in enumerate(words) if word in ("--set", "--show-only")]
    flags = [word for number in positions for word in words[number : number + 2]]
    chart.run("template", "release", str(ROOT / "charts" / "heliotrope"), "--kube-version=1.34.0", *flags)
    assert "charts/heliotrope" in words


def test_there_are_commands() -> None:
    assert len(HELM) >= 6


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)+)(?:`|: |=)", PAGE))))
def test_every_value_exists(path: str) -> None:
    if path.startswith(("heliotrope.", "endpointPickerRef.")):
        return
    found: Any = VALUES
    for key in path.split("."):
        assert key in found, f"{path} is not a value of the chart"
        found = found[key]
