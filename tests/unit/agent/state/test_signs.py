"""The lock, the fence and the heartbeat."""

import os
from pathlib import Path

import pytest

from heliotrope_agent.errors import AnotherAgentError, FencedError, StateError
from heliotrope_agent.state import boot, heartbeat
from heliotrope_agent.state.boot import ProcessId
from heliotrope_agent.state.fence import Fence
from heliotrope_agent.state.heartbeat import Heartbeat
from heliotrope_agent.state.lock import Lock, LockHolder, Role


def test_the_lock_is_one_processes_and_says_whose(tmp_path: Path) -> None:
    first = Lock(tmp_path, Role.AGENT, lambda: 1_700_000_000.0)
    second = Lock(tmp_path, Role.RESTORE, lambda: 0.0)
    with first.held():
        with pytest.raises(AnotherAgentError, match=f"agent with pid {os.getpid()}, since 2023-11-14 22:13:20Z") as got:
            second.take()
        assert got.value.holder == LockHolder(Role.AGENT, os.getpid(), 1_700_000_000.0)
    with second.held():
        pass


def test_a_lock_without_a_folder_is_a_state_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="must be writable"):
        Lock(tmp_path / "none", Role.AGENT, lambda: 0.0).take()


def test_whoever_raises_the_fence_shuts_the_others_out(tmp_path: Path) -> None:
    agent, watchdog = Fence(tmp_path), Fence(tmp_path)
    agent.check()
    watchdog.raise_()
    watchdog.check()
    with pytest.raises(FencedError):
        agent.check()
    Fence(tmp_path).check()


def test_a_fence_that_is_gone_is_none_and_a_new_one_is_no_earlier_one(tmp_path: Path) -> None:
    Fence(tmp_path).raise_()
    agent = Fence(tmp_path)
    for _ in range(3):
        (tmp_path / "fence").unlink()
        agent.check()
        Fence(tmp_path).raise_()
        with pytest.raises(FencedError):
            agent.check()
    (tmp_path / "fence").write_text("no number")
    agent.check()


@pytest.mark.parametrize("damage", ["removed", "replaced", "folder removed", "folder replaced"])
def test_a_lock_whose_file_is_gone_locks_nobody_out(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    lock = Lock(folder, Role.AGENT, lambda: 0.0)
    lock.check()
    with lock.held():
        lock.check()
        if "folder" in damage:
            folder.rename(tmp_path / "elsewhere")
        else:
            (folder / "lock").unlink()
        if "replaced" in damage:
            folder.mkdir(exist_ok=True)
            Lock(folder, Role.AGENT, lambda: 0.0).take()
        with pytest.raises(StateError, match="removed or replaced while it was held"):
            lock.check()


@pytest.mark.parametrize("before", [b"", b"\0" * 100_000, b"nonsense"])
def test_a_sign_of_life_takes_the_place_of_whatever_was_there(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "beat"
    path.write_bytes(before)
    Heartbeat(path, ProcessId.own(), "boot", lambda: 7.0, every_s=1.0).beat()
    found = heartbeat.read(path)
    assert found is not None
    assert found.at_s == 7.0


def test_signs_of_life(tmp_path: Path) -> None:
    now_s = 100.0
    path = tmp_path / "beat"
    beats = Heartbeat(path, ProcessId.own(), "boot", lambda: now_s, every_s=1.0)
    assert heartbeat.read(path) is None
    beats.beat()
    now_s = 100.5
    beats.beat()
    found = heartbeat.read(path)
    assert found is not None
    assert found.at_s == 100.0
    assert found.age_s(103.0, "boot") == 3.0
    assert found.age_s(103.0, "another") == float("inf")
    now_s = 101.0
    beats.restores = 2
    beats.beat()
    found = heartbeat.read(path)
    assert found is not None
    assert (found.at_s, found.restores) == (101.0, 2)
    path.write_text(path.read_text().replace("101.0", "109.0"))
    assert heartbeat.read(path) is None, "a sign that was half written is none"
    beats.remove()
    assert not path.exists()


def test_processes_are_told_apart_by_when_they_started() -> None:
    own = ProcessId.own()
    assert boot.visible(own)
    assert boot.lives(own)
    assert not boot.lives(ProcessId(own.pid, own.start_ticks + 1, own.namespace))
    assert not boot.visible(ProcessId(own.pid, own.start_ticks, "pid:[1]"))
    assert not boot.visible(ProcessId(own.pid, own.start_ticks, ""))


def test_a_boot_id_that_cannot_be_read_is_a_state_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="rebooted"):
        boot.boot_id(tmp_path / "none")
