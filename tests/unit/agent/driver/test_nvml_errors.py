"""Every return code that NVML has becomes the error that somebody handles."""

import pynvml
import pytest
from tests.support.nvml.node import FakeNode

from heliotrope_agent.driver.nvml import Nvml
from heliotrope_agent.driver.nvml_errors import translate
from heliotrope_agent.errors import (
    DeniedError,
    DeviceGoneError,
    DeviceUnknownError,
    DriverError,
    DriverMissingError,
    UnsupportedError,
)

KINDS: dict[str, type[DriverError]] = {
    "UNINITIALIZED": DriverMissingError,
    "INVALID_ARGUMENT": DriverError,
    "NOT_SUPPORTED": UnsupportedError,
    "NO_PERMISSION": DeniedError,
    "ALREADY_INITIALIZED": DriverError,
    "NOT_FOUND": DeviceUnknownError,
    "INSUFFICIENT_SIZE": DriverError,
    "INSUFFICIENT_POWER": DriverError,
    "DRIVER_NOT_LOADED": DriverMissingError,
    "TIMEOUT": DriverError,
    "IRQ_ISSUE": DriverError,
    "LIBRARY_NOT_FOUND": DriverMissingError,
    "FUNCTION_NOT_FOUND": UnsupportedError,
    "CORRUPTED_INFOROM": DriverError,
    "GPU_IS_LOST": DeviceGoneError,
    "RESET_REQUIRED": DeviceGoneError,
    "OPERATING_SYSTEM": DeniedError,
    "LIB_RM_VERSION_MISMATCH": DriverMissingError,
    "IN_USE": DriverError,
    "MEMORY": DriverError,
    "NO_DATA": DriverError,
    "VGPU_ECC_NOT_SUPPORTED": UnsupportedError,
    "INSUFFICIENT_RESOURCES": DriverError,
    "FREQ_NOT_SUPPORTED": UnsupportedError,
    "ARGUMENT_VERSION_MISMATCH": UnsupportedError,
    "DEPRECATED": UnsupportedError,
    "NOT_READY": DriverError,
    "GPU_NOT_FOUND": DeviceUnknownError,
    "INVALID_STATE": DriverError,
    "RESET_TYPE_NOT_SUPPORTED": UnsupportedError,
    "UNKNOWN": DriverError,
}
UNKNOWN_VALUE = {
    "NOT_SUPPORTED",
    "FUNCTION_NOT_FOUND",
    "NO_DATA",
    "NOT_READY",
    "NO_PERMISSION",
    "DEPRECATED",
    "ARGUMENT_VERSION_MISMATCH",
}
"""A getter's value is unknown then; nothing is wrong with the device."""
CODES = {
    name.removeprefix("NVML_ERROR_"): getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")
}


def test_the_table_above_has_every_code_of_the_binding() -> None:
    assert KINDS.keys() == CODES.keys()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_write_that_fails(node: FakeNode, driver: Nvml, name: str) -> None:
    uuid = driver.devices()[0].uuid
    with node.fail(CODES[name], "nvmlDeviceSetGpuLockedClocks"), pytest.raises(DriverError) as raised:
        driver.lock_sm_clock(uuid, 810)
    assert type(raised.value) is KINDS[name]
    message = str(raised.value)
    assert f"nvmlDeviceSetGpuLockedClocks on {uuid}" in message
    assert f"(NVML {CODES[name]})" in message
    assert node.read(0).sm_lock_mhz is None


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_getter_that_fails(node: FakeNode, driver: Nvml, name: str) -> None:
    uuid = driver.devices()[0].uuid
    with node.fail(CODES[name], "nvmlDeviceGetTotalEnergyConsumption"):
        if name in UNKNOWN_VALUE:
            assert driver.energy_millijoules(uuid) is None
        else:
            with pytest.raises(KINDS[name]):
                driver.energy_millijoules(uuid)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_first_contact_that_fails(node: FakeNode, name: str) -> None:
    with node.fail(CODES[name], "nvmlInitWithFlags"), pytest.raises(KINDS[name], match="nvmlInit"):
        Nvml()


def test_a_code_that_the_binding_does_not_know(node: FakeNode, driver: Nvml) -> None:
    with node.fail(4711, "nvmlDeviceSetGpuLockedClocks"), pytest.raises(DriverError, match="NVML 4711") as raised:
        driver.lock_sm_clock(node.uuid(0), 810)
    assert type(raised.value) is DriverError


def test_a_binding_that_is_too_new_for_the_library() -> None:
    error = translate(pynvml.NVMLLibraryMismatchError("too old"), "nvmlDeviceGetComputeRunningProcesses", "GPU-1")
    assert type(error) is UnsupportedError
    assert "nvmlDeviceGetComputeRunningProcesses on GPU-1" in str(error)


def test_errors_say_what_to_do(node: FakeNode, driver: Nvml) -> None:
    denied = node.fail(CODES["NO_PERMISSION"], "nvmlDeviceSetPowerManagementLimit")
    with denied, pytest.raises(DeniedError, match="CAP_SYS_ADMIN"):
        driver.set_power_limit(node.uuid(1), 300_000)
    with node.fail(CODES["GPU_IS_LOST"]), pytest.raises(DeviceGoneError, match="dmesg"):
        driver.read(node.uuid(1))
