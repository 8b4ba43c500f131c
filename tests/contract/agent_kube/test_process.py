"""The whole process on a node without a driver: it says so where somebody looks."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.agent_kube.conftest import NAMESPACE
from tests.support.controlplane import Cluster

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.slow,
    pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has NVIDIA's driver"),
]


def test_a_node_without_a_driver_is_told_of(
    control_plane: Cluster, kubeconfig: Callable[[str], Path], tmp_path: Path
) -> None:
    words = ["--node", "n2", "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig("n2")), "--metrics-port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    ended = subprocess.run(
        [str(Path(sys.executable).with_name("heliotrope")), "agent", "--state-folder", str(tmp_path / "state"), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 7, ended.stderr
    assert "driver" in ended.stderr.splitlines()[-1]
    (event,) = [
        each
        for each in control_plane.get("events.events.k8s.io", "--namespace", "default")["items"]
        if each["reason"] == "DriverMissing"
    ]
    assert (event["regarding"]["kind"], event["regarding"]["name"], event["type"]) == ("Node", "n2", "Warning")
