"""What the agent asks of a GPU driver.

All calls are synchronous and may take milliseconds, or for ever where a driver hangs: the watchdog is for that. A GPU
is known by its UUID, which survives restarts and renumbering. What a device cannot tell is None, never 0.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Vendor(StrEnum):
    """Who makes the device."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as it is until the node reboots."""

    uuid: str
    index: int
    """The driver's number of it at this start."""
    product: str
    vendor: Vendor = Vendor.NVIDIA
    mig: bool = False
    """Whether it is partitioned (Multi-Instance GPU); its settings belong to all partitions, so it is left alone."""
    sm_clocks_mhz: tuple[int, ...] = ()
    """SM clocks that can be locked, ascending; empty: none."""
    memory_clocks_mhz: tuple[int, ...] = ()
    """Memory clocks that can be locked, ascending; empty: none."""
    milliwatts_min: int | None = None
    """Lowest power limit that can be set; None: power limits cannot be set."""
    milliwatts_max: int | None = None
    """Highest power limit that can be set."""
    milliwatts_default: int | None = None
    """The limit that it has after a reboot."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A GPU at one moment."""

    sm_clock_mhz: int | None = None
    """Clock that the SMs run at now; below a lock where the device throttles."""
    memory_clock_mhz: int | None = None
    """Clock that the memory runs at now."""
    power_limit_milliwatts: int | None = None
    """Limit that was set (not the enforced one, which may be lower)."""
    power_milliwatts: int | None = None
    """Power now."""
    energy_millijoules: int | None = None
    """Cumulative since the driver was loaded."""
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    clock_event_reasons: int | None = None
    """NVML's bits of what holds the clock down."""
    power_violation_nanoseconds: int | None = None
    """Time since the driver was loaded in which the power limit held the clock down."""
    thermal_violation_nanoseconds: int | None = None
    """The same of temperature."""
    processes: tuple[int, ...] | None = None
    """Process ids with a compute context on it, as the driver's own namespace has them; None: unknown."""


class Driver(Protocol):
    """The GPUs of this node. Methods raise `DriverError`s (`heliotrope_agent.errors`) and nothing else.

    There is no way to read a clock lock from NVML, so what is set is known from the file of originals and judged by the
    clock that the device runs at.
    """

    def devices(self) -> tuple[Device, ...]:
        """The GPUs that there are now, by index."""
        ...

    def read(self, uuid: str) -> Reading:
        """Everything about one of them."""
        ...

    def energy_millijoules(self, uuid: str) -> int | None:
        """The energy counter alone, for frequent samples; None: the device has none."""
        ...

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        """`Reading.processes` alone."""
        ...

    def lock_sm_clock(self, uuid: str, mhz: int) -> None:
        """Hold the SM clock at one of `Device.sm_clocks_mhz`."""
        ...

    def reset_sm_clock(self, uuid: str) -> None:
        """Let the device choose its SM clock again."""
        ...

    def lock_memory_clock(self, uuid: str, mhz: int) -> None:
        """Hold the memory clock at one of `Device.memory_clocks_mhz`."""
        ...

    def reset_memory_clock(self, uuid: str) -> None:
        """Let the device choose its memory clock again."""
        ...

    def set_power_limit(self, uuid: str, milliwatts: int) -> None:
        """Set the power limit, within the device's bounds."""
        ...

    def close(self) -> None:
        """Let go of the driver; settings stay."""
        ...
