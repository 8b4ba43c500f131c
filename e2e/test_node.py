"""A whole Kubernetes node on this machine: what the tests on it rely on, and that nothing of it stays."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.node import images, outer, programs
from e2e.node.node import Node
from tests.support.chart import ROOT

from heliotrope_agent.pods.claims import Claim, PodName
from heliotrope_agent.pods.kubelet import PodResources
from heliotrope_agent.pods.processes import pod_uid

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

GPUS = ("GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222")


def gpu_pod(name: str, namespace: str, *, gpus: int = 1, command: str = "") -> dict[str, Any]:
    container = {
        "name": "engine",
        "image": images.STILL,
        "imagePullPolicy": "Never",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    if command:
        container["args"] = [command]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


@pytest.fixture(scope="module")
def node(real_node: Node) -> Iterator[Node]:
    real_node.set_gpus(GPUS)
    real_node.wait_for_gpus(len(GPUS))
    real_node.namespace("models")
    yield real_node
    real_node.kubectl("delete", "pods", "--all", "--namespace=models", "--grace-period=0", "--force")


def test_the_kubelet_says_which_pod_has_which_gpu_and_cgroups_whose_its_processes_are(node: Node) -> None:
    node.apply(gpu_pod("one", "models"))
    node.kubectl("wait", "--for=condition=Ready", "pod/one", "--namespace=models", "--timeout=60s")

    claims = PodResources(node.pod_resources_socket).claims()

    (claim,) = [each for each in claims if each.pod == PodName("models", "one")]
    assert claim == Claim(claim.pod, "engine", claim.device_id)
    assert claim.device_id in GPUS
    found = node.get("pod", "one", "--namespace=models")
    (process,) = node.processes("models", "one", "engine")
    assert pod_uid(Path(f"/proc/{process}/cgroup").read_text()) == found["metadata"]["uid"]
    assert node.outside(node.inside(process)) == process


def test_no_more_gpus_are_given_than_there_are(node: Node) -> None:
    node.apply(gpu_pod("greedy", "models", gpus=3))

    def waits() -> bool:
        conditions = node.get("pod", "greedy", "--namespace=models")["status"].get("conditions", [])
        return any("Insufficient nvidia.com/gpu" in each.get("message", "") for each in conditions)

    node.wait_until(waits, 30.0, "the pod waits for GPUs")
    node.kubectl("delete", "pod", "greedy", "--namespace=models")


def test_a_killed_kubelet_comes_back_and_still_knows(node: Node) -> None:
    node.apply(gpu_pod("before", "models"))
    node.kubectl("wait", "--for=condition=Ready", "pod/before", "--namespace=models", "--timeout=60s")
    resources = PodResources(node.pod_resources_socket)
    before = {each for each in resources.claims() if each.pod.name == "before"}

    node.kill("kubelet")

    def known() -> bool:
        with contextlib.suppress(Exception):
            return {each for each in resources.claims() if each.pod.name == "before"} == before
        return False

    node.wait_until(known, 30.0, "the new kubelet tells the same")
    node.wait_for_gpus(len(GPUS))


TRY = """
import sys
from e2e.node.node import Node
node = Node.start(gpus=["GPU-1"], say=lambda line: None)
node.kubectl("run", "still", "--image={image}", "--image-pull-policy=Never")
node.kubectl("wait", "--for=condition=Ready", "pod/still", "--timeout=60s")
print(node.folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("victim", ["starter", "keeper"])
def test_nothing_stays_when_it_is_killed(victim: str) -> None:
    """The starter is what `pytest` is for the tests; its keeper is the process that watches over the node."""
    if reason := programs.missing():
        pytest.skip(reason)
    starter = subprocess.Popen(
        [sys.executable, "-c", TRY.format(image=images.STILL)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert starter.stdout is not None
    assert starter.stdin is not None
    folder = Path(starter.stdout.readline().strip())
    assert folder.is_dir()
    (keeper,) = outer.children(starter.pid)
    (namespaces,) = outer.children(keeper)
    own = {name: Path(f"/proc/{namespaces}/ns/{name}").readlink() for name in ("net", "mnt", "pid_for_children")}
    cgroup = next(path.name for path in outer.locks().iterdir() if path.read_text() == str(folder))
    assert outer.cgroups(cgroup)
    assert living(own)

    os.kill({"starter": starter.pid, "keeper": keeper}[victim], signal.SIGKILL)

    deadline = time.monotonic() + 30
    while living(own) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not living(own)
    if victim == "keeper":  # whoever starts the next node removes what nobody could
        starter.kill()
        outer.sweep()
    while (folder.exists() or outer.cgroups(cgroup)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not folder.exists()
    assert not outer.cgroups(cgroup)
    assert not (outer.locks() / cgroup).exists()
    starter.stdin.close()
    starter.stdout.close()
    starter.wait(10)


def living(namespaces: dict[str, Path]) -> list[int]:
    """Processes in the node's namespaces: they keep its mounts and links alive."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            own = {(process / "ns" / name.partition("_")[0]).readlink() for name in namespaces}
            if own & set(namespaces.values()):
                found.append(int(process.name))
    return found
