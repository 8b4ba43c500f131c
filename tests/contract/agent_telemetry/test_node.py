"""A node as the agent finds it: NVML through nvidia-ml-py, the kubelet's socket, and a picker that reads its page."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.nvml.node import Code, FakeNode, Partition
from tests.support.nvml.products import A100_80GB
from tests.support.podresources import KubeletSocket

from heliotrope.api.v1alpha1.nodepower import IntentPod, PowerIntent
from heliotrope.engine.counters import CounterGroup, CounterLimits
from heliotrope_agent.driver.nvml import Nvml
from heliotrope_agent.pods.claims import Standing
from heliotrope_agent.pods.kubelet import PodResources
from heliotrope_agent.pods.owners import KubeletOwners
from heliotrope_agent.pods.processes import ProcessPods
from heliotrope_agent.telemetry.server import MetricsServer
from heliotrope_agent.telemetry.telemetry import Telemetry
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.node_energy import NodeEnergy, NodeEnergySettings
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.metering.groups import Reading, groups

ENGINE = ("prod", "llm-0")
NOTEBOOK = ("dev", "notebook")
UIDS = {ENGINE: "6cf9e6c1-1fb6-4bdb-b8b7-8e4cb5a6c8b8", NOTEBOOK: "11111111-2222-4333-8444-555555555555"}
INTENTS = (
    PowerIntent(
        namespace=ENGINE[0],
        variant="llama",
        pods=(IntentPod(name=ENGINE[1], uid=UIDS[ENGINE]),),
        sm_clock_mhz=1200,
    ),
)


@dataclass
class Node:
    """Two GPUs and a kubelet, and what the agent makes of them."""

    gpus: FakeNode
    kubelet: KubeletSocket
    driver: Nvml
    owners: KubeletOwners
    proc: Path

    def run(self, pid: int, pod: tuple[str, str] | None) -> int:
        """A process of this pod."""
        (self.proc / str(pid)).mkdir(exist_ok=True)
        path = "/init.scope" if pod is None else f"/kubepods/burstable/pod{UIDS[pod]}/c"
        (self.proc / str(pid) / "cgroup").write_text(f"0::{path}\n")
        return pid

    def standing(self, gpu: int = 0) -> Standing:
        return self.owners.holders(INTENTS)[self.gpus.uuid(gpu)].standing


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    with FakeNode.create(tmp_path / "gpus", A100_80GB, A100_80GB) as gpus:
        monkeypatch.setenv("HELIOTROPE_FAKE_NVML", str(gpus.path))
        with KubeletSocket(tmp_path / "kubelet.sock") as kubelet:
            driver = Nvml()
            client = PodResources(kubelet.path)
            proc = tmp_path / "proc"
            proc.mkdir()
            yield Node(gpus, kubelet, driver, KubeletOwners(driver, client, ProcessPods(proc)), proc)
            client.close()
            driver.close()


def test_a_gpus_pod_is_verified_two_ways(node: Node) -> None:
    own, other = node.run(101, ENGINE), node.run(102, NOTEBOOK)
    assert node.standing() is Standing.FREE
    node.kubelet.give(ENGINE, [node.gpus.uuid(0)])
    assert node.standing() is Standing.UNVERIFIED
    node.gpus.processes([own])
    assert node.standing() is Standing.ELIGIBLE
    node.gpus.processes([own, other])
    assert node.standing() is Standing.FOREIGN_OWNER
    node.gpus.processes([own, node.run(103, None)])
    assert node.standing() is Standing.FOREIGN_OWNER
    node.gpus.processes([own, 104])
    assert node.standing() is Standing.UNVERIFIED
    node.gpus.processes([own])
    assert node.standing() is Standing.ELIGIBLE
    # Processes alone are no proof either.
    node.gpus.processes([own], gpu=1)
    assert node.standing(1) is Standing.FOREIGN_OWNER
    node.kubelet.take(ENGINE)
    node.kubelet.give(NOTEBOOK, [node.gpus.uuid(0)])
    assert node.standing() is Standing.FOREIGN_OWNER


def test_partitions_failures_and_gpus_that_are_gone(node: Node) -> None:
    node.kubelet.give(ENGINE, [node.gpus.uuid(0)])
    node.gpus.processes([node.run(101, ENGINE)])
    with node.gpus.fail(Code.UNKNOWN, "nvmlDeviceGetComputeRunningProcesses", gpu=0):
        assert node.standing() is Standing.UNVERIFIED
    assert node.standing() is Standing.ELIGIBLE
    node.gpus.lose(1)
    assert node.owners.holders(INTENTS).keys() == {node.gpus.uuid(0)}
    assert node.standing() is Standing.ELIGIBLE
    node.gpus.mig([Partition("MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", 1)])
    assert node.standing() is Standing.MIG


@pytest.fixture
async def served(node: Node) -> AsyncIterator[tuple[Telemetry, NodeEnergy]]:
    """A sampling agent and a picker, at GPUs for which no time passes but what a test lets pass."""
    telemetry = Telemetry(
        node.driver, node.owners.recent_claims, lambda: INTENTS, node_name="node-1", period_s=0.1, dcgm_names=False
    )
    pages = {"/metrics": telemetry.page, "/metrics/dcgm": telemetry.dcgm_page}
    server = MetricsServer("127.0.0.1", 0, pages, telemetry.problem)
    server.start()
    settings = NodeEnergySettings(server.port, "/metrics/dcgm", interval_s=0.05)
    with node.gpus.time_stands_still():
        telemetry.start()
        async with NodeEnergy(settings) as picker:
            yield telemetry, picker
    telemetry.stop()
    server.stop()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it has not come to that within 30 s")


@pytest.mark.slow
async def test_a_picker_attributes_a_pods_joules(node: Node, served: tuple[Telemetry, NodeEnergy]) -> None:
    telemetry, picker = served
    address = "127.0.0.1"
    state = EndpointState(Endpoint("llm-0", "prod", "10.0.0.1", 8000, node_address=address, pod="llm-0"))
    uuids = [node.gpus.uuid(gpu) for gpu in range(2)]
    node.kubelet.give(ENGINE, uuids)
    node.gpus.load(1000, gpu=0)
    picker.added(state)

    def reading() -> Reading | None:
        """The counters of the engine's accelerators, as the picker's meter groups them."""
        return next((r for g, r in groups([state], picker.readings).items() if g.source == address), None)

    def drawn() -> dict[str, int]:
        return {each.uuid: each.energy_millijoules for each in node.gpus.states()}

    def is_shown() -> bool:
        now = reading()
        return now is not None and now.values == drawn()

    counters = CounterGroup(CounterLimits(), expected=2)
    spans = []
    opened = drawn()
    for _ in range(4):
        await until(is_shown)
        now = reading()
        assert now is not None
        spans.append(counters.observe(now.values, now.read_s))
        node.gpus.advance(500_000_000)
    await until(is_shown)
    closed = drawn()
    # The first span begins at the first change; then every joule of both GPUs is in one.
    assert spans[:2] == [None, None]
    measured = [span for span in spans[2:] if span is not None]
    assert len(measured) == 2
    assert all(span.refusal is None for span in measured)
    total_millijoules = sum(closed.values()) - sum(opened.values())
    each_advance = total_millijoules / 4
    assert sum(span.millijoules or 0 for span in measured) == pytest.approx(2 * each_advance, abs=4)
    assert each_advance > 150_000  # half a second near 400 W

    # The agent's own books say the same of the pod, to the millijoule.
    total = total_millijoules / 1000.0
    pod = 'heliotrope_agent_pod_energy_joules_total{namespace="prod",pod="llm-0",variant="llama",role="both"}'
    await until(lambda: f"{pod} {total}" in telemetry.page().decode().splitlines())

    # Another tenant comes: the picker cannot tell its share any more, and says so by the group.
    node.kubelet.give(NOTEBOOK, [f"{uuids[0]}::1"])
    await until(lambda: any(group.stranger for group in groups([state], picker.readings)))
    node.kubelet.set({})
    await until(lambda: reading() is None)
