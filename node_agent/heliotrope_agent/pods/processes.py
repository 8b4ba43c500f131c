"""The second source: which pods the processes on a GPU belong to, by their cgroups."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_MAX_BYTES = 64 * 1024
_POD = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=[/:\s]|$)",
    re.IGNORECASE,
)
"""A pod's cgroup, as the kubelet names it: `kubepods-burstable-pod1234_….slice` (systemd) or `pod1234-…` (cgroupfs).
Static pods have 32 digits without dashes."""


@dataclass(frozen=True, slots=True)
class Running:
    """Whose the processes on one GPU are."""

    pods: frozenset[str] = frozenset()
    """UIDs of pods, in lower case with dashes."""
    outside: bool = False
    """Whether some are of no pod."""
    unknown: frozenset[int] = frozenset()
    """Process ids that nobody can tell of: just ended, or of another process namespace."""


def pod_uid(cgroups: str) -> str | None:
    """The UID of the pod that a process belongs to.

    The outermost pod of a path counts: below its own cgroup a container may name others as it likes.

    Args:
        cgroups: the text of `/proc/PID/cgroup`, of version 1, 2 or both.

    Returns:
        None if it is of no pod.

    Raises:
        ValueError: if it says nothing, or names two pods.
    """
    paths = [line.split(":", 2)[2] for line in cgroups.splitlines() if line.count(":") >= 2]
    if not paths:
        raise ValueError("it names no cgroup")
    found = {match[1].replace("_", "-").lower() for path in paths if (match := _POD.search(path))}
    if len(found) > 1:
        raise ValueError(f"its hierarchies name several pods: {', '.join(sorted(found))}")
    return found.pop() if found else None


class ProcessPods:
    """Reads cgroups under `/proc`. Processes of others are seen only in the host's process namespace (`hostPID`)."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc

    def running(self, pids: Iterable[int]) -> Running:
        """Whose these processes are."""
        pods: set[str] = set()
        unknown: set[int] = set()
        outside = False
        for pid in pids:
            try:
                with (self._proc / str(pid) / "cgroup").open(encoding="utf-8", errors="replace") as file:
                    uid = pod_uid(file.read(_MAX_BYTES))
            except (OSError, ValueError):
                unknown.add(pid)
                continue
            if uid is None:
                outside = True
            else:
                pods.add(uid)
        return Running(frozenset(pods), outside, frozenset(unknown))
