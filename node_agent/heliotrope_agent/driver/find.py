"""The driver of this node's GPUs."""

import logging
import threading
from pathlib import Path

from heliotrope_agent.driver import pci
from heliotrope_agent.driver.interface import Driver, Vendor
from heliotrope_agent.driver.unsupported import Unsupported
from heliotrope_agent.errors import DriverMissingError

_LOGGER = logging.getLogger(__name__)

CLOSE_S = 2.0
"""How long the driver may take to let go."""


def find_driver(bus: Path = pci.BUS) -> Driver:
    """NVIDIA's driver where it answers, else a driver that only lists GPUs of other vendors.

    Args:
        bus: the kernel's list of PCI devices.

    Raises:
        DriverMissingError: if there is neither; the message says what was looked for.
    """
    # Imported when needed: the binding takes some MiB, which a node without its GPUs does not have to spend.
    from heliotrope_agent.driver.nvml import Nvml

    on_bus = pci.gpus(bus)
    others = [each for each in on_bus if each.vendor is not Vendor.NVIDIA]
    try:
        driver = Nvml()
    except DriverMissingError as error:
        nvidia = [each.address for each in on_bus if each.vendor is Vendor.NVIDIA]
        if nvidia:
            raise DriverMissingError(
                f"NVIDIA GPUs at {', '.join(nvidia)} have no driver that answers. {error}"
            ) from error
        if others:
            _LOGGER.warning("GPUs that Heliotrope sets nothing on: %s", ", ".join(_title(each) for each in others))
            return Unsupported(others)
        raise DriverMissingError(
            f"no GPU found: no NVIDIA driver answers, and {bus} lists no GPU of NVIDIA, AMD or Intel. {error}"
        ) from error
    if others:
        _LOGGER.warning("GPUs beside NVIDIA's are left alone: %s", ", ".join(_title(each) for each in others))
    return driver


def _title(gpu: pci.PciGpu) -> str:
    return f"{gpu.vendor.value} at {gpu.address}"


def close_in_time(driver: Driver) -> None:
    """Let go of the driver; one that hangs does not keep the process from ending."""
    closing = threading.Thread(target=driver.close, name="close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)
