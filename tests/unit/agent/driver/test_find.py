"""Which driver a node has, by what answers and what is on the bus."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.nvml.node import FakeNode

from heliotrope_agent.driver.find import find_driver
from heliotrope_agent.driver.interface import Reading, Vendor
from heliotrope_agent.driver.nvml import Nvml
from heliotrope_agent.driver.unsupported import Unsupported
from heliotrope_agent.errors import DeviceGoneError, DriverMissingError, UnsupportedError

INSTINCT = {"vendor": "0x1002", "device": "0x74a1", "class": "0x120000", "unique_id": "52a1e8b3f00d4c1e"}
GAUDI_GPU = {"vendor": "0x8086", "device": "0x0bd5", "class": "0x038000"}
H100 = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}
NOT_GPUS = {
    "0000:00:02.0": {"vendor": "0x8086", "device": "0x4680", "class": "0x038000"},  # on the processor's own chip
    "0000:02:00.0": {"vendor": "0x1a03", "device": "0x2000", "class": "0x030000"},  # a server's console
    "0000:03:00.0": {"vendor": "0x8086", "device": "0x1592", "class": "0x020000"},  # a network card
    "0000:04:00.0": {"vendor": "0x1002", "device": "0xab28", "class": "0x040300"},  # sound
    "0000:05:00.0": {"vendor": "garbage", "device": "0x1", "class": "0x038000"},
    "0000:06:00.0": {"vendor": "0x1002"},
}


def bus(folder: Path, **devices: dict[str, str]) -> Path:
    """A folder like /sys/bus/pci/devices; keys are addresses with _ for : and a trailing .0."""
    root = folder / "devices"
    rows = {f"{name.replace('_', ':')}.0": files for name, files in devices.items()} | NOT_GPUS
    for address, files in rows.items():
        path = root / address.removeprefix("x")
        path.mkdir(parents=True)
        for name, text in files.items():
            (path / name).write_text(text + "\n")
    return root


def test_nvidia_is_found(node: FakeNode, tmp_path: Path) -> None:
    driver = find_driver(bus(tmp_path, x0000_41_00=H100))
    assert isinstance(driver, Nvml)
    assert [device.uuid for device in driver.devices()] == [node.uuid(0), node.uuid(1)]
    driver.close()


def test_others_beside_nvidia_are_told_of(node: FakeNode, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        driver = find_driver(bus(tmp_path, x0000_41_00=INSTINCT))
    assert isinstance(driver, Nvml)
    assert "amd at 0000:41:00.0" in caplog.text
    driver.close()


def test_other_vendors_are_listed_and_left_alone(
    node: FakeNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node.unload()
    with caplog.at_level(logging.WARNING):
        driver = find_driver(bus(tmp_path, x0000_41_00=INSTINCT, x0001_c1_00=GAUDI_GPU))
    assert "amd at 0000:41:00.0, intel at 0001:c1:00.0" in caplog.text
    amd, intel = driver.devices()
    assert (amd.uuid, amd.vendor, amd.index) == ("AMD-52a1e8b3f00d4c1e", Vendor.AMD, 0)
    assert amd.product == "amd GPU 0x74a1 at 0000:41:00.0"
    assert (intel.uuid, intel.vendor, intel.index) == ("PCI-0001-c1-00-0", Vendor.INTEL, 1)
    assert (amd.sm_clocks_mhz, amd.memory_clocks_mhz, amd.milliwatts_min, amd.milliwatts_max) == ((), (), None, None)
    assert driver.read(amd.uuid) == Reading()
    assert driver.energy_millijoules(amd.uuid) is None
    for change in (
        lambda: driver.lock_sm_clock(amd.uuid, 1000),
        lambda: driver.reset_sm_clock(amd.uuid),
        lambda: driver.lock_memory_clock(amd.uuid, 1000),
        lambda: driver.reset_memory_clock(amd.uuid),
        lambda: driver.set_power_limit(amd.uuid, 300_000),
    ):
        with pytest.raises(UnsupportedError, match=r"0000:41:00\.0.*node selector"):
            change()
    with pytest.raises(DeviceGoneError, match="AMD-1"):
        driver.read("AMD-1")
    driver.close()


def test_nvidia_without_its_driver_is_not_passed_over(node: FakeNode, tmp_path: Path) -> None:
    """A node with both vendors whose NVIDIA driver is broken must not run as if it had AMD's alone."""
    node.unload()
    with pytest.raises(DriverMissingError, match=r"NVIDIA GPUs at 0000:c1:00\.0 have no driver that answers.*NVML 9"):
        find_driver(bus(tmp_path, x0000_41_00=INSTINCT, x0000_c1_00=H100))


def test_no_gpu_at_all(node: FakeNode, tmp_path: Path) -> None:
    node.unload()
    with pytest.raises(DriverMissingError, match=r"no GPU found.*libnvidia-ml\.so\.1"):
        find_driver(bus(tmp_path))
    with pytest.raises(DriverMissingError, match="no GPU found"):
        find_driver(tmp_path / "nowhere")


def test_no_library_at_all(tmp_path: Path) -> None:
    """As in an image without the NVIDIA container runtime."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from heliotrope_agent.driver.find import find_driver\n"
        "from heliotrope_agent.errors import DriverMissingError\n"
        "try:\n"
        "    find_driver(Path(sys.argv[1]))\n"
        "except DriverMissingError as error:\n"
        "    print(error)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    said = subprocess.run(
        [sys.executable, "-c", program, str(bus(tmp_path))], env=environment, capture_output=True, text=True, check=True
    ).stdout
    if "libnvidia-ml" in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout:
        pytest.skip("this machine has NVIDIA's library")
    assert "no GPU found" in said
    assert "Shared Library Not Found (NVML 12)" in said


def test_an_empty_bus_makes_an_empty_driver() -> None:
    assert Unsupported(()).devices() == ()
