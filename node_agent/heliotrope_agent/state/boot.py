"""Which boot of the node this is, and which process is which."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from heliotrope_agent.errors import StateError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROC = Path("/proc")

_START_FIELD = 19
"""Of `/proc/PID/stat` after the name in parentheses: start time in clock ticks since boot (proc(5), field 22)."""


def boot_id(path: Path = BOOT_ID) -> str:
    """The kernel's id of this boot.

    Raises:
        StateError: if the kernel does not tell.
    """
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"{path} cannot be read ({error}); it tells whether the node has rebooted") from error


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process beyond doubt: process ids are used again, and mean another process in another namespace."""

    pid: int
    start_ticks: int
    namespace: str
    """The process-id namespace in which `pid` is meant."""

    @classmethod
    def own(cls) -> "ProcessId":
        """This process."""
        pid = os.getpid()
        ticks = start_ticks(pid)
        return cls(pid, 0 if ticks is None else ticks, pid_namespace())


def pid_namespace() -> str:
    """The process-id namespace of this process; empty if the kernel does not tell."""
    try:
        return str((PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None: there is no such process, or only its remains."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _START_FIELD or fields[0] in {"Z", "X"}:
        return None
    return int(fields[_START_FIELD])


def visible(process: ProcessId) -> bool:
    """Whether its pid means the same process here."""
    return bool(process.namespace) and process.namespace == pid_namespace()


def lives(process: ProcessId) -> bool:
    """Whether it is there; only to be asked of a `visible` one."""
    return start_ticks(process.pid) == process.start_ticks


def kill(process: ProcessId) -> bool:
    """Kill a process that can be seen, and is not this one; returns whether it was.

    It executes nothing more from here on, even where it was stopped or a driver call holds it.
    """
    if not visible(process) or process.pid == os.getpid() or not lives(process):
        return False
    try:
        os.kill(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
