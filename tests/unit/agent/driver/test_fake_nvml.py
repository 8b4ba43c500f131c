"""The stand-in as plain clients of NVML see it, through nvidia-ml-py."""

import ctypes
import re
from pathlib import Path

import pynvml
import pytest
from tests.support.nvml.node import Code, FakeNode, Partition
from tests.support.nvml.products import A100_80GB, H100_SXM, Lack

from heliotrope_agent.driver.nvml import Nvml

MIG = ("MIG-9d2f5c1e-0000-5000-8000-000000000001", "MIG-9d2f5c1e-0000-5000-8000-000000000002")


def handle(index: int = 0) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def test_identity(node: FakeNode, driver: Nvml) -> None:
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000
    for index, product in enumerate((A100_80GB, H100_SXM)):
        device = handle(index)
        assert pynvml.nvmlDeviceGetIndex(device) == index
        assert pynvml.nvmlDeviceGetMinorNumber(device) == index
        assert pynvml.nvmlDeviceGetName(device) == product.name
        uuid = pynvml.nvmlDeviceGetUUID(device)
        assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
        pci = pynvml.nvmlDeviceGetPciInfo(device)
        assert pci.busId == f"00000000:{0x10 + index:02X}:00.0"
        assert pci.busIdLegacy == f"0000:{0x10 + index:02x}:00.0"
        assert (pci.domain, pci.bus, pci.device) == (0, 0x10 + index, 0)
        for again in (pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml.nvmlDeviceGetHandleByPciBusId(pci.busId)):
            assert pynvml.nvmlDeviceGetUUID(again) == uuid
        assert pynvml.nvmlDeviceGetMemoryInfo(device).total == product.memory_bytes
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        handle(2)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-0")


def test_clocks(node: FakeNode, driver: Nvml) -> None:
    device = handle(1)
    assert pynvml.nvmlDeviceGetSupportedMemoryClocks(device) == [2619, 1593]
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(device, 2619) == list(range(1980, 344, -15))
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetSupportedGraphicsClocks(device, 2000)
    assert pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_SM) == 1980
    assert pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_MEM) == 2619
    pynvml.nvmlDeviceSetGpuLockedClocks(device, 990, 1200)
    for kind in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_GRAPHICS):
        assert pynvml.nvmlDeviceGetClockInfo(device, kind) == 990
    assert pynvml.nvmlDeviceGetPerformanceState(device) == pynvml.NVML_PSTATE_8
    node.processes([1], 1)
    assert pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM) == 1200
    assert pynvml.nvmlDeviceGetPerformanceState(device) == pynvml.NVML_PSTATE_0
    unlimited = pynvml.NVML_CLOCK_LIMIT_ID_UNLIMITED
    for low, high in ((1200, 990), (990, unlimited), (pynvml.NVML_CLOCK_LIMIT_ID_TDP, 1200)):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetGpuLockedClocks(device, low, high)
    assert node.read(1).sm_lock_mhz == (990, 1200)
    pynvml.nvmlDeviceSetGpuLockedClocks(device, unlimited, unlimited)
    assert node.read(1).sm_lock_mhz is None


def test_power_limits_outside_the_constraints_are_refused(node: FakeNode, driver: Nvml) -> None:
    device = handle(0)
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(device) == [100_000, 400_000]
    for milliwatts in (0, 99_999, 400_001):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetPowerManagementLimit(device, milliwatts)
    for milliwatts in (100_000, 400_000, 250_123):
        pynvml.nvmlDeviceSetPowerManagementLimit(device, milliwatts)
        assert pynvml.nvmlDeviceGetPowerManagementLimit(device) == milliwatts
        assert pynvml.nvmlDeviceGetEnforcedPowerLimit(device) == milliwatts
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(device) == 400_000


def test_the_fields_that_dcgm_reads(node: FakeNode, driver: Nvml) -> None:
    with node.time_stands_still():
        node.load(1000)
        node.advance(10**9)
        energy, power, limit, unknown = pynvml.nvmlDeviceGetFieldValues(
            handle(0),
            [
                pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
                pynvml.NVML_FI_DEV_POWER_INSTANT,
                pynvml.NVML_FI_DEV_POWER_MAX_LIMIT,
                1,
            ],
        )
        assert energy.value.ullVal == node.read().energy_millijoules > 400_000
    assert power.value.uiVal == 400_000
    assert limit.value.uiVal == 400_000
    assert unknown.nvmlReturn == Code.NOT_SUPPORTED
    node.lack(Lack.ENERGY)
    (energy,) = pynvml.nvmlDeviceGetFieldValues(handle(0), [pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION])
    assert energy.nvmlReturn == Code.NOT_SUPPORTED


def test_processes(node: FakeNode, driver: Nvml) -> None:
    device = handle(0)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(device) == []
    node.processes(range(1, 33), used_bytes=2**30)
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    assert [process.pid for process in found] == list(range(1, 33))
    assert {process.usedGpuMemory for process in found} == {2**30}
    assert pynvml.nvmlDeviceGetMemoryInfo(device).used == 32 * 2**30
    assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(device) == []
    node.processes([])
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(device) == []


def test_violations(node: FakeNode, driver: Nvml) -> None:
    device = handle(0)
    with node.time_stands_still():
        node.load(1000)
        node.advance(5)
        node.foreign_power_limit(200_000)
        node.advance(7_000)
        node.slow_down(1000)
        node.advance(11_000_000)
        node.slow_down(300)
        node.advance(13_000_000_000)
        power = pynvml.nvmlDeviceGetViolationStatus(device, pynvml.NVML_PERF_POLICY_POWER)
        thermal = pynvml.nvmlDeviceGetViolationStatus(device, pynvml.NVML_PERF_POLICY_THERMAL)
        assert node.read().sm_mhz == 300
    assert power.violationTime == 7_000 + 11_000_000, "at 300 MHz the limit holds nothing down"
    assert thermal.violationTime == 11_000_000 + 13_000_000_000
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetViolationStatus(device, pynvml.NVML_PERF_POLICY_SYNC_BOOST)


def test_partitions(node: FakeNode, driver: Nvml) -> None:
    device = handle(0)
    assert pynvml.nvmlDeviceGetMigMode(device) == [0, 0]
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)
    node.mig([Partition(MIG[0], 1), Partition(MIG[1], 2)])
    assert pynvml.nvmlDeviceGetMigMode(device) == [1, 1]
    for index, uuid in enumerate(MIG):
        partition = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        assert pynvml.nvmlDeviceIsMigDeviceHandle(partition).value == 1
        assert pynvml.nvmlDeviceGetUUID(partition) == uuid
        assert pynvml.nvmlDeviceGetGpuInstanceId(partition) == index + 1
        assert pynvml.nvmlDeviceGetComputeInstanceId(partition) == 0
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(partition)
        assert pynvml.nvmlDeviceGetUUID(parent) == node.uuid(0)
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceSetGpuLockedClocks(partition, 810, 810)
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetTotalEnergyConsumption(partition)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(device).value == 0
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 2)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetGpuInstanceId(device)
    assert node.read(0).sm_lock_mhz is None


def test_processes_on_partitions(node: FakeNode, driver: Nvml) -> None:
    partitions = [Partition(MIG[0], 1), Partition(MIG[1], 2)]
    node.mig(partitions)
    node.processes([31, 32], partition=partitions[1])
    devices = {"whole": handle(0)} | {uuid: pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in MIG}
    found = {}
    for name, device in devices.items():
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        found[name] = [(process.pid, process.gpuInstanceId, process.computeInstanceId) for process in processes]
    assert found == {"whole": [(31, 2, 0), (32, 2, 0)], MIG[0]: [], MIG[1]: [(31, 2, 0), (32, 2, 0)]}


def test_mig_mode_that_waits_for_a_reboot(node: FakeNode, driver: Nvml) -> None:
    node.mig_pending(True)
    assert pynvml.nvmlDeviceGetMigMode(handle(0)) == [0, 1]
    node.reboot()
    driver.devices()
    assert pynvml.nvmlDeviceGetMigMode(handle(0)) == [1, 1]


def test_initialisations_are_counted(node: FakeNode) -> None:
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 2
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlShutdown()


def test_rules_skip_count_and_end(node: FakeNode, driver: Nvml) -> None:
    def outcome(index: int) -> int:
        try:
            pynvml.nvmlDeviceGetPowerUsage(handle(index))
        except pynvml.NVMLError as error:
            return int(error.value)
        return 0

    with node.fail(Code.TIMEOUT, "nvmlDeviceGetPowerUsage", gpu=0, skip=2, count=3):
        assert [outcome(index) for index in (0, 1, 0, 1, 0, 0, 1, 0, 0)] == [0, 0, 0, 0, 10, 10, 0, 10, 0]
    with node.fail(Code.GPU_IS_LOST, gpu=1):
        assert [outcome(0), outcome(1)] == [0, 15]
        assert pynvml.nvmlDeviceGetCount() == 2
    assert [outcome(0), outcome(1)] == [0, 0]
    with pytest.raises(AssertionError, match="no function nvmlDeviceMakeCoffee"):
        node.fail(Code.UNKNOWN, "nvmlDeviceMakeCoffee")


def test_every_attempt_to_change_something_is_logged_in_order(node: FakeNode, driver: Nvml) -> None:
    device = handle(0)
    pynvml.nvmlDeviceSetGpuLockedClocks(device, 810, 900)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceSetMemoryLockedClocks(device, 1593, 1593)
    denied = node.fail(Code.NO_PERMISSION, "nvmlDeviceSetPowerManagementLimit")
    with denied, pytest.raises(pynvml.NVMLError_NoPermission):
        pynvml.nvmlDeviceSetPowerManagementLimit(handle(1), 300_000)
    pynvml.nvmlDeviceGetPowerUsage(device)
    pynvml.nvmlDeviceSetPersistenceMode(handle(1), 0)
    pynvml.nvmlDeviceResetGpuLockedClocks(device)
    log = node.writes()
    assert [(each.number, each.gpu, each.function, each.arguments, each.code) for each in log] == [
        (0, 0, "nvmlDeviceSetGpuLockedClocks", (810, 900), 0),
        (1, 0, "nvmlDeviceSetMemoryLockedClocks", (1593, 1593), 3),
        (2, 1, "nvmlDeviceSetPowerManagementLimit", (300_000, 0), 4),
        (3, 1, "nvmlDeviceSetPersistenceMode", (0, 0), 0),
        (4, 0, "nvmlDeviceResetGpuLockedClocks", (0, 0), 0),
    ]
    assert node.writes(3) == log[3:]
    assert node.writes(5) == ()
    assert [each.monotonic_ns for each in log] == sorted(each.monotonic_ns for each in log)


def test_the_log_keeps_the_newest(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", A100_80GB) as node:
        for mhz in range(16_384 + 10):
            node.foreign_sm_lock(0, mhz)
        log = node.writes()
        assert len(log) == 16_384
        assert (log[0].number, log[0].arguments) == (10, (0, 10))
        assert (log[-1].number, log[-1].arguments) == (16_393, (0, 16_393))
        assert [each.number for each in node.writes(16_390)] == list(range(16_390, 16_394))


def test_a_buffer_that_is_too_small_is_told_the_size(node: FakeNode, driver: Nvml) -> None:
    count = ctypes.c_uint(3)
    buffer = (ctypes.c_uint * 3)()
    function = pynvml.nvmlLib.nvmlDeviceGetSupportedGraphicsClocks
    assert function(handle(0), ctypes.c_uint(1593), ctypes.byref(count), buffer) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert (count.value, list(buffer)) == (81, [0, 0, 0])
    name = ctypes.create_string_buffer(4)
    assert pynvml.nvmlLib.nvmlDeviceGetName(handle(0), name, ctypes.c_uint(4)) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE


def test_a_handle_that_is_none_is_refused(node: FakeNode, driver: Nvml) -> None:
    for function in ("nvmlDeviceResetGpuLockedClocks", "nvmlDeviceResetMemoryLockedClocks"):
        assert getattr(pynvml.nvmlLib, function)(None) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert node.write_count == 0
