"""The chart, rendered by the helm that is built together with the control plane."""

import shutil
from pathlib import Path

import pytest
from e2e.controlplane import build
from tests.support.chart import Chart


@pytest.fixture(scope="session")
def chart() -> Chart:
    on_path = shutil.which("helm")
    return Chart(Path(on_path) if on_path and not build.CONTROL_PLANE.built() else build.ensure() / "helm")
