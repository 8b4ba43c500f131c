"""What somebody does to a node under a running agent: real processes and signals, as in test_safety."""

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.agent.rig import Rig, until

from heliotrope_agent.state.fence import Fence
from heliotrope_agent.state.store import COPIES

pytestmark = pytest.mark.slow
POD = ("serving", "decode-0")


def set_up(rig: Rig, **settings: int) -> None:
    """Both GPUs are one pod's, and an intent asks for a clock and a limit."""
    rig.place({POD: [0, 1]})
    rig.wish(rig.intent([POD], **({"smClockMhz": 810, "watts": 300} | settings)))


@pytest.mark.parametrize("fenced", [False, True], ids=["never fenced", "fenced before"])
@pytest.mark.parametrize("what", ["folder", "content", "lock"])
def test_a_state_folder_that_is_removed_has_everything_put_back(rig: Rig, what: str, fenced: bool) -> None:
    set_up(rig)
    rig.state.mkdir()
    if fenced:
        Fence(rig.state).raise_()
    agent = rig.agent()
    rig.until_locked(810, 810)
    if what == "lock":
        (rig.state / "lock").unlink()
    else:
        shutil.rmtree(rig.state)
    if what == "content":
        rig.state.mkdir()
    assert agent.wait(30.0) == 6
    assert rig.restored()
    assert "leave the state folder alone while an agent runs" in agent.text()
    again = rig.agent()
    rig.until_locked(810, 810)
    again.signal(signal.SIGTERM)
    assert again.wait(30.0) == 0
    assert rig.restored(), "it has not taken what was set for what was found"


@pytest.mark.parametrize("wished", [True, False], ids=["wished for still", "nothing is asked any more"])
def test_a_state_folder_that_is_removed_just_before_its_agent_is_killed(rig: Rig, wished: bool) -> None:
    """Nobody could put anything back, and the status still says what was set and what was before."""
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    until("reported", lambda: rig.condition() == ("True", "Applied"))
    agent.signal(signal.SIGSTOP)
    shutil.rmtree(rig.state)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    if not wished:
        rig.wish()
    again = rig.agent()
    until("told", lambda: "OriginalsLost" in rig.events())
    if wished:
        rig.until_locked(810, 810)
        until("on record", lambda: {each.pod for each in rig.records().values()} == {POD[1]})
        assert {each.original.power_limit_milliwatts for each in rig.records().values()} == {400_000}
    else:
        rig.until_restored()
    again.signal(signal.SIGTERM)
    assert again.wait(30.0) == 0
    assert rig.restored()


def test_a_watchdog_remembers_what_was_in_a_folder_that_is_gone(rig: Rig) -> None:
    """Agent and folder go together, and neither comes back."""
    set_up(rig)
    watchdog = rig.watchdog()
    agent = rig.agent()
    rig.until_locked(810, 810)
    time.sleep(0.5)
    agent.signal(signal.SIGSTOP)
    shutil.rmtree(rig.state)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    rig.until_restored()
    rig.node.foreign_sm_lock(600, 600, 0)
    time.sleep(2.5)
    assert rig.locks() == [600, None], "what an administrator has set since is left alone"
    watchdog.signal(signal.SIGTERM)
    assert watchdog.wait(30.0) == 0


def test_a_status_of_before_a_reboot_undoes_nothing_that_was_set_since(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    until("reported", lambda: rig.condition() == ("True", "Applied"))
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    shutil.rmtree(rig.state)
    rig.reboot()
    rig.node.foreign_power_limit(350_000, 1)
    rig.wish()
    rig.agent()
    until("reported", lambda: rig.condition() == ("True", "NothingAsked"))
    assert [each.power_limit_milliwatts for each in rig.node.states()] == [400_000, 350_000]
    assert rig.locks() == [None, None]


def test_originals_that_somebody_removes_or_damages_are_there_again(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    for damage in (Path.unlink, lambda path: path.write_text("")):
        for name in COPIES:
            damage(rig.state / name)
        until(
            "written anew",
            lambda: all((rig.state / name).exists() and (rig.state / name).read_text() for name in COPIES),
        )
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    rig.wish_nothing()
    rig.agent()
    rig.until_restored()


def test_a_knob_that_a_device_refuses_leaves_the_others_alone(rig: Rig) -> None:
    """A100s list memory clocks and lock none."""
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    rig.wish(rig.intent([POD], smClockMhz=600, watts=300, memoryClockMhz=1593))
    rig.until_locked(600, 600)
    until("told", lambda: "Unsupported" in rig.reasons() and "GpuNotSet" in rig.events())
    first = rig.node.write_count
    time.sleep(1.0)
    assert rig.node.write_count == first, "it is not tried again and again"
    assert "could not be taken back" not in agent.text()
    agent.signal(signal.SIGTERM)
    assert agent.wait(30.0) == 0
    assert rig.restored()


@pytest.fixture
def small_disk(rig: Rig) -> Iterator[Path]:
    """The state folder is on a disk of its own that is soon full."""
    rig.state.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", rig.state], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount")
    yield rig.state
    subprocess.run(["umount", "--lazy", rig.state], check=True)


def test_on_a_full_disk_a_dead_agents_gpus_are_put_back_once(rig: Rig, small_disk: Path) -> None:
    set_up(rig)
    rig.watchdog()
    agent = rig.agent()
    rig.until_locked(810, 810)
    with (small_disk / "filling").open("wb", buffering=0) as filling, contextlib.suppress(OSError):
        while True:
            filling.write(bytes(4096))
    agent.signal(signal.SIGKILL)
    rig.until_restored()
    rig.node.foreign_sm_lock(600, 600, 0)
    time.sleep(2.5)
    assert rig.locks() == [600, None], "what an administrator has set since is left alone"
    assert rig.records() != {}
    (small_disk / "filling").unlink()
    until("forgotten at last", lambda: rig.records() == {})
    assert rig.locks() == [600, None]


def test_a_gpu_that_a_boot_before_left_is_not_taken_over(rig: Rig) -> None:
    """Its pod is the same after the reboot, as those of a kubelet are; its record must not be."""
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    rig.reboot()
    rig.node.lose(0)
    agent = rig.agent("--restore-seconds=0.5")
    until("it could not be put back", lambda: "could not be put back" in agent.text())
    rig.node.lose(0, lost=False)
    rig.until_locked(810, 810)
    assert {each.boot_id for each in rig.records().values()} == {f"boot-{rig.boots}"}
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    rig.wish_nothing()
    rig.agent()
    rig.until_restored()


@pytest.mark.parametrize("seen", [True, False], ids=["killed", "fenced off"])
def test_a_call_that_hangs_while_somebody_takes_over_leaves_nothing_set(rig: Rig, seen: bool) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    with rig.node.hang("nvmlDeviceSetGpuLockedClocks") as hung:
        rig.wish(rig.intent([POD], smClockMhz=600, watts=200))
        until("it hangs", lambda: hung.waiting > 0)
        if not seen:
            (rig.state / "heartbeat").unlink()
        forced = rig.run("--restore", "--force", "--restore-seconds=1")
        assert forced.wait(30.0) == 0
        rig.until_restored()
    assert agent.wait(30.0) == (-signal.SIGKILL if seen else 4)
    assert rig.restored()
    assert rig.records() == {}


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetUUID"])
def test_a_gpu_that_hangs_when_it_is_looked_for_keeps_no_other_from_being_put_back(rig: Rig, function: str) -> None:
    set_up(rig)
    rig.watchdog("--restore-seconds=1")
    agent = rig.agent()
    rig.until_locked(810, 810)
    with rig.node.hang(function, gpu=1) as hung:
        until("the agent hangs", lambda: hung.waiting > 0)
        rig.until_restored()
        assert agent.wait(30.0) == -signal.SIGKILL
        until("forgotten", lambda: rig.records() == {})


def test_a_person_puts_back_what_can_be_while_a_gpu_hangs_when_it_is_looked_for(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    agent.signal(signal.SIGKILL)
    agent.wait(30.0)
    with rig.node.hang("nvmlDeviceGetMigMode", gpu=1):
        restored = rig.run("--restore", "--restore-seconds=1")
        assert restored.wait(30.0) == 0, restored.text()
        assert rig.restored()
        defaults = rig.run("--restore", "--defaults", "--restore-seconds=1")
        assert defaults.wait(30.0) == 1
        assert "does not tell which GPUs there are" in defaults.text()


def test_a_driver_that_does_not_let_go_keeps_no_process(rig: Rig) -> None:
    set_up(rig)
    agent = rig.agent()
    rig.until_locked(810, 810)
    with rig.node.hang("nvmlShutdown"):
        agent.signal(signal.SIGTERM)
        assert agent.wait(30.0) == 0
    assert rig.restored()
    assert not (rig.state / "heartbeat").exists()
