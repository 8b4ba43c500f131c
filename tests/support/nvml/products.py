"""GPUs as their data sheets and `nvidia-smi -q -d SUPPORTED_CLOCKS,POWER` describe them.

Idle powers are those of `heliotrope.engine.roofline`, where their sources are.
"""

from dataclasses import dataclass
from enum import IntFlag


class Lack(IntFlag):
    """What a GPU answers NOT_SUPPORTED to."""

    NOTHING = 0
    SM_LOCK = 1
    MEMORY_LOCK = 2
    POWER_LIMIT = 4
    ENERGY = 8
    PROCESSES = 16


@dataclass(frozen=True, slots=True)
class Product:
    """A type of GPU."""

    name: str
    memory_bytes: int
    lowest_mhz: int
    highest_mhz: int
    step_mhz: int
    memory_mhz: tuple[int, ...]
    """Memory clocks, descending."""
    unloaded_milliwatts: int
    """Nothing on it, at the lowest clock."""
    idle_milliwatts: int
    """No work, at the highest clock, as with a CUDA context."""
    full_milliwatts: int
    """Full load at the highest clock."""
    limit_lowest_milliwatts: int
    limit_highest_milliwatts: int
    limit_default_milliwatts: int
    lacks: Lack = Lack.NOTHING

    @property
    def sm_clocks_mhz(self) -> tuple[int, ...]:
        """Supported SM clocks, ascending."""
        return tuple(range(self.lowest_mhz, self.highest_mhz + 1, self.step_mhz))


A100_40GB = Product(
    name="NVIDIA A100-SXM4-40GB",
    memory_bytes=40 * 2**30,
    lowest_mhz=210,
    highest_mhz=1410,
    step_mhz=15,
    memory_mhz=(1215,),
    unloaded_milliwatts=45_700,
    idle_milliwatts=72_000,
    full_milliwatts=400_000,
    limit_lowest_milliwatts=100_000,
    limit_highest_milliwatts=400_000,
    limit_default_milliwatts=400_000,
    lacks=Lack.MEMORY_LOCK,
)
A100_80GB = Product(
    name="NVIDIA A100-SXM4-80GB",
    memory_bytes=80 * 2**30,
    lowest_mhz=210,
    highest_mhz=1410,
    step_mhz=15,
    memory_mhz=(1593,),
    unloaded_milliwatts=45_700,
    idle_milliwatts=72_000,
    full_milliwatts=400_000,
    limit_lowest_milliwatts=100_000,
    limit_highest_milliwatts=400_000,
    limit_default_milliwatts=400_000,
    lacks=Lack.MEMORY_LOCK,
)
H100_SXM = Product(
    name="NVIDIA H100 80GB HBM3",
    memory_bytes=80 * 2**30,
    lowest_mhz=345,
    highest_mhz=1980,
    step_mhz=15,
    memory_mhz=(2619, 1593),
    unloaded_milliwatts=71_800,
    idle_milliwatts=121_700,
    full_milliwatts=700_000,
    limit_lowest_milliwatts=200_000,
    limit_highest_milliwatts=700_000,
    limit_default_milliwatts=700_000,
)
