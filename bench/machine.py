"""What a benchmark must say of the machine it ran on, and how much of it was busy with something else."""

import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SPIN_ITERATIONS = 2_000_000


@dataclass(frozen=True, slots=True)
class Machine:
    """Identity and noise."""

    cpu: str
    cores: int
    kernel: str
    python: str
    load_average_1m: float
    spin_milliseconds: float
    """Time of a fixed busy loop; repeat it to see noise."""


def describe() -> dict[str, Any]:
    """The machine as plain data."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    machine = Machine(
        cpu=model,
        cores=os.cpu_count() or 0,
        kernel=platform.release(),
        python=platform.python_version(),
        load_average_1m=os.getloadavg()[0],
        spin_milliseconds=spin_milliseconds(),
    )
    return asdict(machine)


def spin_milliseconds() -> float:
    """Wall time of a fixed loop: more than usual means that others were running."""
    started = time.perf_counter()
    total = 0
    for i in range(SPIN_ITERATIONS):
        total += i
    return (time.perf_counter() - started) * 1000.0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_megabytes(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
