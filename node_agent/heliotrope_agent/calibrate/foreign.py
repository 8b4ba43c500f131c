"""Whose the processes on the engine's GPUs are: nothing can be measured beside somebody else's work."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from heliotrope.errors import InvalidInputError
from heliotrope_agent.calibrate.errors import NodeInUseError

PROC = Path("/proc")
_MAX_BYTES = 64 * 1024


def check_processes(
    processes: Mapping[str, tuple[int, ...] | None], engine_pid: int | None, proc: Path = PROC
) -> tuple[str, ...]:
    """Refuse GPUs that others use too.

    Args:
        processes: with a compute context, by GPU; None: the driver does not tell.
        engine_pid: a process whose descendants alone may be there; None: they must all be of one container, which is of
            one cgroup.
        proc: where the kernel tells of processes.

    Returns:
        Sentences about what could not be verified.

    Raises:
        NodeInUseError: if there are processes of others.
        InvalidInputError: if the engine has no process on one of them.
    """
    unknown = tuple(
        f"the driver does not tell which processes run on GPU {uuid}: make sure yourself that only the engine does"
        for uuid, pids in processes.items()
        if pids is None
    )
    for uuid, pids in processes.items():
        if pids == ():
            raise InvalidInputError(
                "--gpu", f"no process runs on GPU {uuid}; name the GPUs of the engine, by UUID or index"
            )
    running = {pid for each in processes.values() for pid in each or ()}
    if engine_pid is not None:
        if foreign := sorted(pid for pid in running if not _descends(pid, engine_pid, proc)):
            raise NodeInUseError(
                f"processes {_listed(foreign)} use the engine's GPUs and do not descend from {engine_pid}: end them"
            )
        return unknown
    groups: dict[str, list[int]] = {}
    unseen = []
    for pid in sorted(running):
        cgroup = _cgroup(pid, proc)
        if cgroup is None:
            unseen.append(pid)
        else:
            groups.setdefault(cgroup, []).append(pid)
    if len(groups) > 1:
        raise NodeInUseError(
            "processes of several containers or sessions use the engine's GPUs: "
            + "; ".join(f"{_listed(each)} of {name}" for name, each in groups.items())
            + ". End the others, or name the engine's with --engine-pid"
        )
    if unseen:
        text = f"processes {_listed(unseen)} on the GPUs are not visible here (hostPID): nobody verified whose they are"
        return (*unknown, text)
    return unknown


def _descends(pid: int, ancestor: int, proc: Path) -> bool:
    seen = set()
    while pid > 0 and pid not in seen:
        if pid == ancestor:
            return True
        seen.add(pid)
        pid = _parent(pid, proc)
    return False


def _parent(pid: int, proc: Path) -> int:
    try:
        fields = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[1])
    except (OSError, IndexError, ValueError):
        return 0


def _cgroup(pid: int, proc: Path) -> str | None:
    try:
        with (proc / str(pid) / "cgroup").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return None
    return lines[-1].split(":", 2)[-1] if lines else None


def _listed(pids: Iterable[int]) -> str:
    return ", ".join(str(pid) for pid in pids)
