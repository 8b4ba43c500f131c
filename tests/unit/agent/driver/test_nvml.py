"""The agent's NVML driver on the real nvidia-ml-py, above the stand-in for NVIDIA's driver."""

import threading
import time
from collections.abc import Callable

import pytest
from tests.support.nvml.node import Code, FakeNode, Partition
from tests.support.nvml.products import A100_80GB, H100_SXM, Lack

from heliotrope_agent.driver.interface import Driver, Vendor
from heliotrope_agent.driver.nvml import Nvml
from heliotrope_agent.errors import (
    DeviceGoneError,
    DriverError,
    DriverMissingError,
    UnsupportedError,
)

SW_POWER_CAP = 0x4


def test_devices_are_what_the_driver_says(node: FakeNode, driver: Nvml) -> None:
    a100, h100 = driver.devices()
    assert (a100.uuid, a100.index, a100.product) == (node.uuid(0), 0, "NVIDIA A100-SXM4-80GB")
    assert (h100.uuid, h100.index, h100.product) == (node.uuid(1), 1, "NVIDIA H100 80GB HBM3")
    assert a100.vendor is Vendor.NVIDIA
    assert a100.sm_clocks_mhz == A100_80GB.sm_clocks_mhz
    assert h100.sm_clocks_mhz == H100_SXM.sm_clocks_mhz
    assert h100.memory_clocks_mhz == (1593, 2619)
    assert (h100.milliwatts_min, h100.milliwatts_max, h100.milliwatts_default) == (200_000, 700_000, 700_000)
    assert not a100.mig


def test_everything_is_read(node: FakeNode, driver: Nvml) -> None:
    node.processes([41, 17], 1)
    node.load(1000, 1)
    driver.set_power_limit(node.uuid(1), 300_000)
    reading = driver.read(node.uuid(1))
    held = node.read(1)
    assert reading.sm_clock_mhz == held.sm_mhz < 1980
    assert reading.memory_clock_mhz == 2619
    assert reading.power_limit_milliwatts == 300_000
    assert reading.power_milliwatts == held.power_milliwatts <= 300_000
    assert reading.energy_millijoules is not None
    assert reading.energy_millijoules <= held.energy_millijoules
    assert reading.utilization_percent == 100
    assert reading.temperature_celsius == held.temperature_celsius
    assert reading.clock_event_reasons == SW_POWER_CAP
    assert reading.processes == (17, 41)
    assert reading.power_violation_nanoseconds is not None
    assert reading.power_violation_nanoseconds > 0
    assert reading.thermal_violation_nanoseconds == 0


def test_settings_reach_the_driver_and_go_again(node: FakeNode, driver: Nvml) -> None:
    h100 = node.uuid(1)
    driver.lock_sm_clock(h100, 1005)
    driver.lock_memory_clock(h100, 1593)
    driver.set_power_limit(h100, 250_000)
    held = node.read(1)
    assert (held.sm_lock_mhz, held.memory_lock_mhz) == ((1005, 1005), (1593, 1593))
    assert held.power_limit_milliwatts == 250_000
    assert node.read(0).sm_lock_mhz is None

    driver.reset_sm_clock(h100)
    driver.reset_memory_clock(h100)
    driver.set_power_limit(h100, 700_000)
    held = node.read(1)
    assert (held.sm_lock_mhz, held.memory_lock_mhz, held.power_limit_milliwatts) == (None, None, 700_000)


def test_settings_outlive_the_driver_that_made_them(node: FakeNode) -> None:
    first = Nvml()
    first.lock_sm_clock(node.uuid(0), 810)
    first.close()
    assert node.read(0).sm_lock_mhz == (810, 810)
    second = Nvml()
    second.reset_sm_clock(node.uuid(0))
    second.close()
    assert node.read(0).sm_lock_mhz is None


@pytest.mark.parametrize(
    ("lacks", "field"),
    [
        (Lack.ENERGY, "energy_millijoules"),
        (Lack.POWER_LIMIT, "power_limit_milliwatts"),
        (Lack.PROCESSES, "processes"),
    ],
)
def test_what_a_gpu_does_not_tell_is_unknown_and_not_zero(
    node: FakeNode, driver: Nvml, lacks: Lack, field: str
) -> None:
    node.lack(lacks)
    reading = driver.read(node.uuid(0))
    assert getattr(reading, field) is None
    assert reading.sm_clock_mhz is not None


def test_power_limits_that_cannot_be_set_have_no_bounds(node: FakeNode, driver: Nvml) -> None:
    node.lack(Lack.POWER_LIMIT)
    (device, _) = driver.devices()
    assert (device.milliwatts_min, device.milliwatts_max, device.milliwatts_default) == (None, None, None)
    with pytest.raises(UnsupportedError, match="nvmlDeviceSetPowerManagementLimit"):
        driver.set_power_limit(node.uuid(0), 200_000)


def test_every_getter_may_fail_alone(node: FakeNode, driver: Nvml) -> None:
    """Not supported is unknown; any other failure is one of the whole reading, as nobody knows what else is wrong."""
    uuid = node.uuid(0)
    fields = {
        "nvmlDeviceGetClockInfo": ("sm_clock_mhz", "memory_clock_mhz"),
        "nvmlDeviceGetPowerManagementLimit": ("power_limit_milliwatts",),
        "nvmlDeviceGetPowerUsage": ("power_milliwatts",),
        "nvmlDeviceGetTotalEnergyConsumption": ("energy_millijoules",),
        "nvmlDeviceGetUtilizationRates": ("utilization_percent",),
        "nvmlDeviceGetTemperature": ("temperature_celsius",),
        "nvmlDeviceGetCurrentClocksEventReasons": ("clock_event_reasons",),
        "nvmlDeviceGetViolationStatus": ("power_violation_nanoseconds", "thermal_violation_nanoseconds"),
        "nvmlDeviceGetComputeRunningProcesses": ("processes",),
    }
    whole = driver.read(uuid)
    names = set(type(whole).__slots__)
    assert names == {field for each in fields.values() for field in each}
    node.fail(Code.NOT_SUPPORTED, "nvmlDeviceGetCurrentClocksThrottleReasons")
    for function, unknown in fields.items():
        with node.fail(Code.NOT_SUPPORTED, function):
            reading = driver.read(uuid)
        assert {name for name in names if getattr(reading, name) is None} == set(unknown)
        with node.fail(Code.UNKNOWN, function), pytest.raises(DriverError, match=f"{function} on {uuid}"):
            driver.read(uuid)


def test_event_reasons_of_drivers_that_know_them_by_their_earlier_name(node: FakeNode, driver: Nvml) -> None:
    with node.fail(13, "nvmlDeviceGetCurrentClocksEventReasons"):
        assert driver.read(node.uuid(0)).clock_event_reasons == 0x1


def test_clients_of_mps_are_processes_too(node: FakeNode, driver: Nvml) -> None:
    node.processes([5], mps=[9, 7])
    assert driver.read(node.uuid(0)).processes == driver.processes(node.uuid(0)) == (5, 7, 9)
    with node.fail(Code.NOT_SUPPORTED, "nvmlDeviceGetMPSComputeRunningProcesses"):
        assert driver.read(node.uuid(0)).processes == (5,)
    for code in (Code.UNKNOWN, Code.NO_PERMISSION, 27):
        with node.fail(code, "nvmlDeviceGetMPSComputeRunningProcesses"), pytest.raises(DriverError):
            driver.read(node.uuid(0))


def test_the_frequent_sample_is_one_call(node: FakeNode, driver: Nvml) -> None:
    uuid = driver.devices()[0].uuid
    before = node.calls("nvmlDeviceGetHandleByUUID")
    with node.time_stands_still():
        samples = [driver.energy_millijoules(uuid)]
        node.advance(1_000_000_000)
        samples.append(driver.energy_millijoules(uuid))
    first, second = samples
    assert first is not None
    assert second is not None
    assert abs(second - first - 45_700) <= 1  # one second at 45.7 W, the counter in whole mJ
    assert node.calls("nvmlDeviceGetTotalEnergyConsumption") == 2
    assert node.calls("nvmlDeviceGetHandleByUUID") == before


def test_what_does_not_change_is_asked_once(node: FakeNode, driver: Nvml) -> None:
    driver.devices()
    before = node.calls("nvmlDeviceGetSupportedGraphicsClocks")
    driver.devices()
    assert node.calls("nvmlDeviceGetSupportedGraphicsClocks") == before


def test_mig_is_seen_when_it_is_turned_on_or_about_to_be(node: FakeNode, driver: Nvml) -> None:
    assert [device.mig for device in driver.devices()] == [False, False]
    node.mig_pending(True, 0)
    assert [device.mig for device in driver.devices()] == [True, False]
    node.mig([Partition("MIG-9d2f5c1e-0000-5000-8000-000000000001", 1)], 1)
    assert [device.mig for device in driver.devices()] == [True, True]
    node.mig(None, 0)
    node.mig(None, 1)
    assert [device.mig for device in driver.devices()] == [False, False]


def test_a_partitioned_gpu_is_read_without_its_utilization(node: FakeNode, driver: Nvml) -> None:
    node.mig([Partition("MIG-9d2f5c1e-0000-5000-8000-000000000001", 1)])
    reading = driver.read(node.uuid(0))
    assert reading.utilization_percent is None
    assert reading.energy_millijoules is not None


def test_a_lost_gpu_is_left_out_until_it_is_back(node: FakeNode, driver: Nvml) -> None:
    a100, h100 = driver.devices()
    node.lose(0)
    assert driver.devices() == (h100,)
    for call in _calls(driver, a100.uuid):
        with pytest.raises(DeviceGoneError, match=a100.uuid):
            call()
    assert driver.read(h100.uuid).power_milliwatts is not None
    initialised = node.calls("nvmlInitWithFlags")
    driver.devices()
    assert node.calls("nvmlInitWithFlags") == initialised, "initialised again although nothing is newly lost"
    node.lose(0, lost=False)
    assert driver.devices() == (a100, h100)


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.UNKNOWN, Code.NO_PERMISSION, 27])
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMigMode", "nvmlDeviceGetSupportedGraphicsClocks"]
)
def test_a_gpu_that_does_not_say_what_it_is_is_left_out_alone(
    node: FakeNode, driver: Nvml, caplog: pytest.LogCaptureFixture, function: str, code: int
) -> None:
    """Not as one without MIG, and not as one without clocks for ever."""
    with node.fail(code, function, gpu=0):
        for _ in range(3):
            assert [device.index for device in driver.devices()] == [1]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["GPU 0 is left out until it answers"], (
        "said once, not each time"
    )
    a100, _ = driver.devices()
    assert a100.sm_clocks_mhz == A100_80GB.sm_clocks_mhz


@pytest.mark.parametrize("code", [Code.NOT_SUPPORTED, 13])
def test_a_gpu_without_mig_is_a_whole_one(node: FakeNode, driver: Nvml, code: int) -> None:
    with node.fail(code, "nvmlDeviceGetMigMode"):
        assert [device.mig for device in driver.devices()] == [False, False]


def test_an_error_from_before_a_new_connection_does_not_end_it(node: FakeNode, driver: Nvml) -> None:
    """A thread that was told that the driver is gone may say so after another has connected anew."""
    uuid = driver.devices()[0].uuid
    late: list[Exception] = []
    with node.hang("nvmlDeviceGetPowerUsage") as rule:
        node.fail(Code.UNINITIALIZED, "nvmlDeviceGetPowerUsage", count=1)

        def read() -> None:
            try:
                driver.read(uuid)
            except DriverError as error:
                late.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        _until(lambda: rule.waiting == 1)
        node.reboot()
        driver.devices()
        initialised = node.calls("nvmlInitWithFlags")
    thread.join(20)
    assert [type(error) for error in late] == [DriverMissingError]
    driver.devices()
    assert node.calls("nvmlInitWithFlags") == initialised


def test_an_unknown_gpu_is_gone(driver: Nvml) -> None:
    for call in _calls(driver, "GPU-00000000-0000-4000-8000-000000000000"):
        with pytest.raises(DeviceGoneError, match="GPU-00000000"):
            call()


def test_after_the_driver_was_reloaded_devices_initialises_anew(node: FakeNode, driver: Nvml) -> None:
    devices = driver.devices()
    driver.lock_sm_clock(devices[0].uuid, 810)
    node.reboot()
    for call in _calls(driver, devices[0].uuid):
        with pytest.raises(DriverMissingError):
            call()
    assert driver.devices() == devices
    assert node.read(0).sm_lock_mhz is None
    driver.lock_sm_clock(devices[0].uuid, 810)
    assert node.read(0).sm_lock_mhz == (810, 810)


def test_devices_notices_a_reload_that_nobody_ran_into(node: FakeNode, driver: Nvml) -> None:
    devices = driver.devices()
    node.reboot()
    assert driver.devices() == devices
    assert driver.read(devices[1].uuid).sm_clock_mhz == 345


def test_a_driver_that_was_unloaded_is_missing_until_it_is_back(node: FakeNode, driver: Nvml) -> None:
    devices = driver.devices()
    node.unload()
    for _ in range(2):
        with pytest.raises(DriverMissingError, match="Driver Not Loaded"):
            driver.devices()
    with pytest.raises(DriverMissingError):
        driver.read(devices[0].uuid)
    node.reboot()
    assert driver.devices() == devices
    assert driver.read(devices[0].uuid).power_milliwatts is not None


def test_without_a_driver_there_is_none(node: FakeNode) -> None:
    node.unload()
    with pytest.raises(DriverMissingError, match="nvmlInit"):
        Nvml()


def test_a_call_that_hangs_holds_up_no_other_thread(node: FakeNode, driver: Nvml) -> None:
    a100, h100 = (device.uuid for device in driver.devices())
    with node.hang("nvmlDeviceSetGpuLockedClocks", gpu=0) as rule:
        thread = threading.Thread(target=driver.lock_sm_clock, args=(a100, 810))
        thread.start()
        _until(lambda: rule.waiting == 1)
        driver.lock_sm_clock(h100, 1005)
        assert driver.energy_millijoules(a100) is not None
        assert len(driver.devices()) == 2
        assert (node.read(0).sm_lock_mhz, node.read(1).sm_lock_mhz) == (None, (1005, 1005))
        assert thread.is_alive()
    thread.join(10)
    assert not thread.is_alive()
    assert node.read(0).sm_lock_mhz == (810, 810)


def test_a_call_that_hung_over_a_reboot_changes_nothing(node: FakeNode, driver: Nvml) -> None:
    uuid = driver.devices()[0].uuid
    problems: list[DriverError] = []

    def lock() -> None:
        try:
            driver.lock_sm_clock(uuid, 810)
        except DriverError as error:
            problems.append(error)

    with node.hang("nvmlDeviceSetGpuLockedClocks") as rule:
        thread = threading.Thread(target=lock)
        thread.start()
        _until(lambda: rule.waiting == 1)
        node.reboot()
    thread.join(20)
    assert [type(error) for error in problems] == [DriverMissingError]
    assert node.read(0).sm_lock_mhz is None


def test_threads_may_use_it_at_once(node: FakeNode, driver: Nvml) -> None:
    uuids = [device.uuid for device in driver.devices()]
    problems: list[BaseException] = []

    def use(uuid: str) -> None:
        try:
            for mhz in (810, 1005, 1200) * 20:
                driver.lock_sm_clock(uuid, mhz)
                driver.read(uuid)
                driver.devices()
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    threads = [threading.Thread(target=use, args=(uuid,)) for uuid in uuids * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert node.write_count == 4 * 60


def test_threads_in_a_call_survive_a_reload(node: FakeNode, driver: Nvml) -> None:
    """Another thread shuts NVML down and initialises it: a call in flight answers or is refused, nothing crashes."""
    uuid = driver.devices()[0].uuid
    stop = threading.Event()
    problems: list[BaseException] = []
    answered = [0]

    def sample() -> None:
        while not stop.is_set():
            try:
                assert driver.energy_millijoules(uuid) is not None
                driver.lock_sm_clock(uuid, 810)
                answered[0] += 1
            except DriverMissingError:
                pass
            except BaseException as error:  # noqa: BLE001
                problems.append(error)

    thread = threading.Thread(target=sample)
    thread.start()
    for _ in range(50):
        _until(lambda before=answered[0]: answered[0] > before)  # type: ignore[misc]
        node.reboot()
        assert len(driver.devices()) == 2
    stop.set()
    thread.join(20)
    assert problems == []


def _calls(driver: Driver, uuid: str) -> list[Callable[[], object]]:
    """Every call on a device."""
    return [
        lambda: driver.read(uuid),
        lambda: driver.energy_millijoules(uuid),
        lambda: driver.lock_sm_clock(uuid, 810),
        lambda: driver.reset_sm_clock(uuid),
        lambda: driver.lock_memory_clock(uuid, 1593),
        lambda: driver.reset_memory_clock(uuid),
        lambda: driver.set_power_limit(uuid, 300_000),
    ]


def _until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)
