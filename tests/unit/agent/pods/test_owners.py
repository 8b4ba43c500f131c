from dataclasses import dataclass, field
from pathlib import Path

import pytest

from heliotrope.api.v1alpha1.nodepower import IntentPod, PowerIntent
from heliotrope_agent.driver.interface import Device
from heliotrope_agent.errors import DeviceGoneError, PodsUnknownError
from heliotrope_agent.pods.claims import ANYWHERE, Claim, Holder, PodName, Standing
from heliotrope_agent.pods.owners import KubeletOwners
from heliotrope_agent.pods.processes import ProcessPods

A, B = (f"GPU-0a3ad8ae-1f5b-4b0a-9f0e-00000000000{i}" for i in (1, 2))
MINE = PodName("team", "engine-0")
UID, OTHER = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


@dataclass
class World:
    """A node: its driver's processes, its kubelet's claims, its `/proc` and its clock."""

    proc: Path
    running: dict[str, list[tuple[int, ...] | None]] = field(default_factory=dict)
    claimed: tuple[Claim, ...] | None = ()
    asked: int = 0
    now_s: float = 0.0

    def devices(self) -> tuple[Device, ...]:
        return (Device(A, 0, "H100"), Device(B, 1, "H100"))

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        left = self.running.get(uuid, [()])
        now = left.pop(0) if len(left) > 1 else left[0]
        if now == (-1,):
            raise DeviceGoneError("it fell off the bus")
        return now

    def claims(self) -> tuple[Claim, ...]:
        self.asked += 1
        if self.claimed is None:
            raise PodsUnknownError("silence")
        return self.claimed

    def process(self, pid: int, uid: str | None) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text("0::/\n" if uid is None else f"0::/kubepods/pod{uid}/c\n")


def intents(uid: str = UID) -> tuple[PowerIntent, ...]:
    pod = IntentPod(name=MINE.name, uid=uid)
    return (PowerIntent(namespace="team", variant="llama", pods=(pod,), sm_clock_mhz=1200),)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.process(10, UID)
    world.process(11, OTHER)
    world.claimed = (Claim(MINE, "engine", A),)
    return world


@pytest.fixture
def owners(world: World) -> KubeletOwners:
    return KubeletOwners(world, world, ProcessPods(world.proc), clock=lambda: world.now_s)  # type: ignore[arg-type]


def standing(owners: KubeletOwners, uid: str = UID) -> Standing:
    return owners.holders(intents(uid))[A].standing


def test_verified_once_its_process_runs(world: World, owners: KubeletOwners) -> None:
    assert owners.holders(intents()) == {A: Holder(Standing.UNVERIFIED, MINE), B: Holder(Standing.FREE)}
    world.running[A] = [(10,)]
    assert owners.holders(intents())[A] == Holder(Standing.ELIGIBLE, MINE)
    world.running[A] = [(10, 11)]
    assert standing(owners) is Standing.FOREIGN_OWNER


def test_a_restart_of_the_container_keeps_it_for_a_minute(world: World, owners: KubeletOwners) -> None:
    world.running[A] = [(10,)]
    assert standing(owners) is Standing.ELIGIBLE
    world.running[A] = [()]
    world.now_s = 59.0
    assert standing(owners) is Standing.ELIGIBLE
    # That it was kept does not keep it longer.
    world.now_s = 61.0
    assert standing(owners) is Standing.UNVERIFIED
    world.now_s = 62.0
    world.running[A] = [(10,)]
    assert standing(owners) is Standing.ELIGIBLE


def test_a_pod_that_was_made_anew_under_its_name_begins_anew(world: World, owners: KubeletOwners) -> None:
    world.running[A] = [(10,)]
    assert standing(owners) is Standing.ELIGIBLE
    world.running[A] = [()]
    assert standing(owners, OTHER) is Standing.UNVERIFIED
    # Nor does the old one come back by its name alone.
    world.running[A] = [(11,)]
    assert standing(owners, UID) is Standing.FOREIGN_OWNER
    world.running[A] = [()]
    assert standing(owners, UID) is Standing.UNVERIFIED


def test_a_kubelet_that_starts_again_takes_nothing_away(world: World, owners: KubeletOwners) -> None:
    claimed = world.claimed
    world.running[A] = [(10,)]
    assert standing(owners) is Standing.ELIGIBLE
    world.claimed, world.now_s = (), 3.0
    assert owners.holders(intents())[A] == Holder(Standing.UNVERIFIED, MINE)
    world.claimed, world.now_s = claimed, 4.0
    assert standing(owners) is Standing.ELIGIBLE
    # One that never lists the pod again does.
    world.claimed, world.now_s = (), 65.0
    assert standing(owners) is Standing.FOREIGN_OWNER


def test_another_tenant_ends_what_was_verified(world: World, owners: KubeletOwners) -> None:
    world.running[A] = [(10,)]
    assert standing(owners) is Standing.ELIGIBLE
    world.running[A] = [()]
    world.claimed = (Claim(PodName("team", "notebook"), "engine", A),)
    assert standing(owners) is Standing.FOREIGN_OWNER
    world.claimed = (Claim(MINE, "engine", A),)
    assert standing(owners) is Standing.UNVERIFIED


def test_a_process_that_ends_between_two_looks_is_no_riddle(world: World, owners: KubeletOwners) -> None:
    world.running[A] = [(10, 77), (10,)]
    assert standing(owners) is Standing.ELIGIBLE
    world.running[A] = [(10, 77)]
    assert standing(owners) is Standing.UNVERIFIED
    # It is gone, and so is the container: what was verified before it still holds.
    world.running[A] = [()]
    assert standing(owners) is Standing.ELIGIBLE


def test_a_driver_that_fails_for_one_gpu_verifies_nothing_there(world: World, owners: KubeletOwners) -> None:
    world.running[A] = [(-1,)]
    assert owners.holders(intents()) == {A: Holder(Standing.UNVERIFIED, MINE), B: Holder(Standing.FREE)}
    world.running[A] = [None]
    assert standing(owners) is Standing.UNVERIFIED


def test_silence_of_the_kubelet_is_told(world: World, owners: KubeletOwners) -> None:
    world.claimed = None
    with pytest.raises(PodsUnknownError):
        owners.holders(intents())
    with pytest.raises(PodsUnknownError):
        owners.recent_claims()


def test_recent_claims_are_asked_for_only_when_old(world: World, owners: KubeletOwners) -> None:
    assert world.claimed is not None
    owners.holders(intents())
    world.now_s = 0.5
    assert owners.recent_claims() == {A: world.claimed}
    assert world.asked == 1
    world.now_s, world.claimed = 0.6, (Claim(MINE, "engine", B),)
    assert owners.recent_claims() == {B: world.claimed}
    assert world.asked == 2


def test_claims_that_may_be_for_any_gpu_are_told_as_such(world: World, owners: KubeletOwners) -> None:
    world.claimed = (Claim(MINE, "engine", A), Claim(MINE, "engine", "node-1/gpu-1", "gpu.nvidia.com", dynamic=True))
    assert owners.recent_claims() == {A: world.claimed[:1], ANYWHERE: world.claimed[1:]}
