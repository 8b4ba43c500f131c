"""What the kernel says about the GPUs on the bus, without any vendor's library."""

from dataclasses import dataclass
from pathlib import Path

from heliotrope_agent.driver.interface import Vendor

BUS = Path("/sys/bus/pci/devices")

_VENDORS = {0x10DE: Vendor.NVIDIA, 0x1002: Vendor.AMD, 0x8086: Vendor.INTEL}
# 3D controller, other display controller, processing accelerator. Plain VGA adapters are for screens.
_CLASSES = frozenset((0x0302, 0x0380, 0x1200))
_ON_CHIP = "0000:00:02.0"
"""Where Intel's processors have their own graphics."""


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A GPU on the bus."""

    address: str
    """Domain, bus, device and function, as in `0000:41:00.0`."""
    vendor: Vendor
    device_id: int
    unique_id: str | None = None
    """AMD's number of the chip, in hexadecimal; None: the kernel has none."""


def gpus(bus: Path = BUS) -> tuple[PciGpu, ...]:
    """The GPUs of known vendors, by address. Devices that cannot be read are left out."""
    try:
        paths = sorted(bus.iterdir())
    except OSError:
        return ()
    found = (_gpu(path) for path in paths)
    return tuple(each for each in found if each is not None)


def _gpu(path: Path) -> PciGpu | None:
    vendor_id, device_class, device_id = (_number(path / name) for name in ("vendor", "class", "device"))
    if vendor_id is None or device_class is None or device_id is None:
        return None
    vendor = _VENDORS.get(vendor_id)
    if vendor is None or device_class >> 8 not in _CLASSES:
        return None
    if vendor is Vendor.INTEL and path.name == _ON_CHIP:
        return None
    return PciGpu(path.name, vendor, device_id, _text(path / "unique_id"))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    try:
        return None if text is None else int(text, 16)
    except ValueError:
        return None
