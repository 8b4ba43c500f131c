"""GPUs that are there and whose settings Heliotrope does not know how to change: AMD's and Intel's."""

from collections.abc import Sequence
from typing import NoReturn

from heliotrope_agent.driver.interface import Device, Reading
from heliotrope_agent.driver.pci import PciGpu
from heliotrope_agent.errors import DeviceGoneError, UnsupportedError


class Unsupported:
    """A `Driver` that lists GPUs, reads nothing and refuses to set anything."""

    def __init__(self, found: Sequence[PciGpu]) -> None:
        """`found` is what is on the bus."""
        self._devices = tuple(
            Device(
                uuid=_name(each),
                index=index,
                product=f"{each.vendor.value} GPU {each.device_id:#06x} at {each.address}",
                vendor=each.vendor,
            )
            for index, each in enumerate(found)
        )
        self._by_uuid = {device.uuid: device for device in self._devices}

    def devices(self) -> tuple[Device, ...]:
        """The GPUs on the bus when the process started, without any clock or limit that could be set."""
        return self._devices

    def read(self, uuid: str) -> Reading:
        """Nothing is known."""
        self._find(uuid)
        return Reading()

    def energy_millijoules(self, uuid: str) -> int | None:
        """Not known."""
        return self.read(uuid).energy_millijoules

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        """Not known."""
        return self.read(uuid).processes

    def lock_sm_clock(self, uuid: str, mhz: int) -> None:
        """Refused."""
        self._refuse(uuid, f"an SM clock of {mhz} MHz")

    def reset_sm_clock(self, uuid: str) -> None:
        """Refused."""
        self._refuse(uuid, "the SM clock's default")

    def lock_memory_clock(self, uuid: str, mhz: int) -> None:
        """Refused."""
        self._refuse(uuid, f"a memory clock of {mhz} MHz")

    def reset_memory_clock(self, uuid: str) -> None:
        """Refused."""
        self._refuse(uuid, "the memory clock's default")

    def set_power_limit(self, uuid: str, milliwatts: int) -> None:
        """Refused."""
        self._refuse(uuid, f"a power limit of {milliwatts} mW")

    def close(self) -> None:
        """Nothing is held."""

    def _find(self, uuid: str) -> Device:
        device = self._by_uuid.get(uuid)
        if device is None:
            raise DeviceGoneError(
                f"{uuid}: no such GPU was on the bus when this process started; restart it after changes"
            )
        return device

    def _refuse(self, uuid: str, what: str) -> NoReturn:
        device = self._find(uuid)
        raise UnsupportedError(
            f"{device.product}: {what} cannot be set, as Heliotrope sets clocks and watts of NVIDIA's GPUs only; "
            "keep the agent off such nodes with its node selector, and leave smClockMhz, memoryClockMhz and watts out "
            "of the variants that run there"
        )


def _name(gpu: PciGpu) -> str:
    """A name that survives reboots: the chip's own number, else its place on the bus."""
    if gpu.unique_id is not None:
        return f"{gpu.vendor.value.upper()}-{gpu.unique_id.removeprefix('0x')}"
    return "PCI-" + gpu.address.replace(":", "-").replace(".", "-")
