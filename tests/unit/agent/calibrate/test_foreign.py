from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_agent.calibrate.errors import NodeInUseError
from heliotrope_agent.calibrate.foreign import check_processes

POD_A, POD_B = "/kubepods/poda/c1", "/kubepods/podb/c1"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Processes 10 and 11 of one container, 11 a child of 10; 20 of another."""
    for pid, parent, cgroup in ((10, 1, POD_A), (11, 10, POD_A), (20, 1, POD_B)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "stat").write_text(f"{pid} (a (strange) name) S {parent} 1 1\n")
    return tmp_path


def test_one_container_may_have_all_gpus(proc: Path) -> None:
    assert check_processes({"a": (10,), "b": (11,)}, None, proc) == ()


def test_two_containers_are_told_apart(proc: Path) -> None:
    with pytest.raises(NodeInUseError, match=r"10 of /kubepods/poda/c1; 20 of /kubepods/podb/c1"):
        check_processes({"a": (10,), "b": (20,)}, None, proc)


def test_only_descendants_of_the_engine_that_is_named_may_be_there(proc: Path) -> None:
    assert check_processes({"a": (10, 11)}, 10, proc) == ()
    with pytest.raises(NodeInUseError, match="processes 20 use"):
        check_processes({"a": (10, 20)}, 10, proc)
    with pytest.raises(NodeInUseError, match="processes 10 use"):
        check_processes({"a": (10, 11)}, 11, proc)


def test_what_cannot_be_verified_is_said(proc: Path) -> None:
    (unknown,) = check_processes({"a": None}, None, proc)
    assert "make sure yourself" in unknown
    (unseen,) = check_processes({"a": (10, 99)}, None, proc)
    assert "99" in unseen
    assert "hostPID" in unseen


def test_a_gpu_without_the_engine_is_a_wrong_choice(proc: Path) -> None:
    with pytest.raises(InvalidInputError, match="--gpu: no process runs on GPU b"):
        check_processes({"a": (10,), "b": ()}, None, proc)
