import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.support.podresources import KubeletSocket

from heliotrope_agent.errors import PodsUnknownError
from heliotrope_agent.pods.claims import Claim, PodName
from heliotrope_agent.pods.kubelet import PodResources

A, B = (f"GPU-0a3ad8ae-1f5b-4b0a-9f0e-00000000000{i}" for i in (1, 2))


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[KubeletSocket]:
    with KubeletSocket(tmp_path / "pod-resources" / "kubelet.sock") as socket:
        yield socket


@pytest.fixture
def client(kubelet: KubeletSocket) -> Iterator[PodResources]:
    client = PodResources(kubelet.path, timeout_s=0.5)
    yield client
    client.close()


def claims_once_up(client: PodResources) -> tuple[Claim, ...]:
    deadline = time.monotonic() + 10
    while True:
        try:
            return client.claims()
        except PodsUnknownError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_gpus_of_every_container(kubelet: KubeletSocket, client: PodResources) -> None:
    assert client.claims() == ()
    kubelet.give(("team", "engine-0"), [A, B])
    kubelet.give(("team", "engine-0"), ["0000:08:00.0"], resource="nvidia.com/hostdev")
    kubelet.give(("team", "notebook"), ["MIG-x"], container="jupyter", resource="nvidia.com/mig-1g.10gb")
    kubelet.give(("web", "front"), ["0"], resource="example.com/nic")
    kubelet.give_claim(("team", "dynamic"), "gpu.nvidia.com", "node-1", "gpu-0")
    kubelet.give_claim(("team", "dynamic"), "dra.net", "node-1", "eth1")
    engine = PodName("team", "engine-0")
    assert set(client.claims()) == {
        Claim(engine, "engine", A),
        Claim(engine, "engine", B),
        Claim(PodName("team", "notebook"), "jupyter", "MIG-x", "nvidia.com/mig-1g.10gb"),
        Claim(PodName("team", "dynamic"), "engine", "node-1/gpu-0", "gpu.nvidia.com", dynamic=True),
    }


def test_a_uuid_is_a_gpu_whatever_its_resource_is_called(kubelet: KubeletSocket, client: PodResources) -> None:
    kubelet.give(("team", "engine-0"), [A, "7"], resource="example.com/h100")
    assert client.claims() == (Claim(PodName("team", "engine-0"), "engine", A, "example.com/h100"),)
    other = PodResources(kubelet.path, resources=("example.com/*",))
    assert [claim.device_id for claim in other.claims()] == [A, "7"]
    other.close()


def test_a_kubelet_that_starts_again_is_found_again(kubelet: KubeletSocket, client: PodResources) -> None:
    kubelet.give(("team", "engine-0"), [A])
    assert len(client.claims()) == 1
    kubelet.stop()
    with pytest.raises(PodsUnknownError, match=r"there is no pod-resources socket at .*: mount"):
        client.claims()
    kubelet.start()
    assert len(claims_once_up(client)) == 1


def test_a_kubelet_that_hangs_is_not_waited_for(kubelet: KubeletSocket, client: PodResources) -> None:
    kubelet.hang_s = 30.0
    started_s = time.monotonic()
    with pytest.raises(PodsUnknownError, match=r"does not answer at .*DEADLINE_EXCEEDED"):
        client.claims()
    assert time.monotonic() - started_s < 10.0
    kubelet.hang_s = 0.0
    assert client.claims() == ()


def test_answers_are_bounded(kubelet: KubeletSocket) -> None:
    client = PodResources(kubelet.path, max_message_bytes=1024)
    kubelet.give(("team", "engine-0"), [f"{A}::{i}" for i in range(1000)])
    with pytest.raises(PodsUnknownError, match="too long"):
        client.claims()
    client.close()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "has refused or its answer is too long: slow down"),
        (grpc.StatusCode.UNIMPLEMENTED, "has no pod-resources API v1"),
        (grpc.StatusCode.INTERNAL, "INTERNAL"),
    ],
)
def test_failures_say_what_they_are(
    kubelet: KubeletSocket, client: PodResources, code: grpc.StatusCode, text: str
) -> None:
    kubelet.failure = (code, "slow down")
    with pytest.raises(PodsUnknownError, match=text):
        client.claims()
