"""NVIDIA's GPUs, through NVIDIA's own library and its binding nvidia-ml-py."""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from typing import Any

import pynvml

from heliotrope_agent.driver.interface import Device, Reading
from heliotrope_agent.driver.nvml_errors import LASTING, SILENT, translate
from heliotrope_agent.errors import DeviceGoneError, DriverError, DriverMissingError

_LOGGER = logging.getLogger(__name__)


class Nvml:
    """The `Driver` of NVIDIA GPUs. Threads may use it at once, as they may NVML.

    NVML is initialised once. When the driver was reloaded or a GPU has fallen off the bus, handles are worth nothing:
    calls raise until the next `devices()`, which initialises anew.
    """

    def __init__(self) -> None:
        """Connect to the driver.

        Raises:
            DriverMissingError: if there is none.
        """
        self._connecting = threading.Lock()
        self._handles: dict[str, Any] = {}
        self._fixed: dict[str, Device] = {}
        self._left_out: dict[int, str] = {}
        self._initialised = False
        self._epoch = 0  # changes with every connection, so that an error in an earlier one is none of this one
        self._stale_epoch = -1
        self._connect()

    def devices(self) -> tuple[Device, ...]:
        """The GPUs that there are now, by index. Those that do not answer are left out, and the log says why.

        Raises:
            DriverError: if the driver as a whole does not answer.
        """
        with self._connecting:
            if self._stale_epoch == self._epoch or not self._initialised:
                self._connect()
            try:
                found, failed = self._enumerate()
            except DriverMissingError:
                self._connect()
                found, failed = self._enumerate()
            if any(isinstance(failed[index], DeviceGoneError) for index in failed.keys() - self._left_out.keys()):
                # A GPU that was reset comes back only for those who initialise anew.
                self._connect()
                found, failed = self._enumerate()
            for index, error in failed.items():
                if self._left_out.get(index) != str(error):
                    _LOGGER.warning("GPU %d is left out until it answers: %s", index, error)
            self._left_out = {index: str(error) for index, error in failed.items()}
            return found

    def read(self, uuid: str) -> Reading:
        """Everything about one of them; what it cannot tell is None."""
        handle = self._handle(uuid)
        utilization = self._value(uuid, pynvml.nvmlDeviceGetUtilizationRates, handle)
        return Reading(
            sm_clock_mhz=self._value(uuid, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._value(uuid, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            power_limit_milliwatts=self._value(uuid, pynvml.nvmlDeviceGetPowerManagementLimit, handle),
            power_milliwatts=self._value(uuid, pynvml.nvmlDeviceGetPowerUsage, handle),
            energy_millijoules=self._value(uuid, pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            utilization_percent=None if utilization is None else utilization.gpu,
            temperature_celsius=self._value(uuid, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            clock_event_reasons=self._clock_event_reasons(uuid, handle),
            power_violation_nanoseconds=self._violation(uuid, handle, pynvml.NVML_PERF_POLICY_POWER),
            thermal_violation_nanoseconds=self._violation(uuid, handle, pynvml.NVML_PERF_POLICY_THERMAL),
            processes=self._processes(uuid, handle),
        )

    def energy_millijoules(self, uuid: str) -> int | None:
        """The energy counter alone."""
        value: int | None = self._value(uuid, pynvml.nvmlDeviceGetTotalEnergyConsumption, self._handle(uuid))
        return value

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        """Those with a compute context on it, alone."""
        return self._processes(uuid, self._handle(uuid))

    def lock_sm_clock(self, uuid: str, mhz: int) -> None:
        """Hold the SM clock here; NVML takes a clock that is not supported to one beside it."""
        self._call(uuid, pynvml.nvmlDeviceSetGpuLockedClocks, self._handle(uuid), mhz, mhz)

    def reset_sm_clock(self, uuid: str) -> None:
        """Let the device choose its SM clock again."""
        self._call(uuid, pynvml.nvmlDeviceResetGpuLockedClocks, self._handle(uuid))

    def lock_memory_clock(self, uuid: str, mhz: int) -> None:
        """Hold the memory clock here."""
        self._call(uuid, pynvml.nvmlDeviceSetMemoryLockedClocks, self._handle(uuid), mhz, mhz)

    def reset_memory_clock(self, uuid: str) -> None:
        """Let the device choose its memory clock again."""
        self._call(uuid, pynvml.nvmlDeviceResetMemoryLockedClocks, self._handle(uuid))

    def set_power_limit(self, uuid: str, milliwatts: int) -> None:
        """Set the power limit, within the device's bounds."""
        self._call(uuid, pynvml.nvmlDeviceSetPowerManagementLimit, self._handle(uuid), milliwatts)

    def close(self) -> None:
        """Let go of the driver; settings stay."""
        with self._connecting:
            self._disconnect()

    def _connect(self) -> None:
        self._disconnect()
        self._call(None, pynvml.nvmlInit)
        self._epoch += 1
        self._initialised = True

    def _disconnect(self) -> None:
        self._epoch += 1
        self._handles = {}
        self._fixed = {}
        if self._initialised:
            self._initialised = False
            with contextlib.suppress(pynvml.NVMLError):  # from a driver that is gone
                pynvml.nvmlShutdown()

    def _enumerate(self) -> tuple[tuple[Device, ...], dict[int, DriverError]]:
        """The devices, and by index why others do not answer."""
        handles: dict[str, Any] = {}
        found: list[Device] = []
        failed: dict[int, DriverError] = {}
        for index in range(self._call(None, pynvml.nvmlDeviceGetCount)):
            try:
                device, handle = self._device(index)
            except DriverMissingError:
                raise
            except DriverError as error:
                failed[index] = error
                continue
            handles[device.uuid] = handle
            found.append(device)
        self._handles = handles
        return tuple(found), failed

    def _device(self, index: int) -> tuple[Device, Any]:
        name = f"GPU {index}"
        handle = self._call(name, pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid: str = self._call(name, pynvml.nvmlDeviceGetUUID, handle)
        # What a device does not say now must not be taken for what it never has: a GPU whose MIG mode is not known
        # must not be taken for a whole one.
        mode = self._value(uuid, pynvml.nvmlDeviceGetMigMode, handle, absent=LASTING)
        mig = mode is not None and pynvml.NVML_DEVICE_MIG_ENABLE in mode
        fixed = self._fixed.get(uuid)
        if fixed is None or fixed.index != index or fixed.mig != mig:
            bounds = self._value(uuid, pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle, absent=LASTING)
            memory_clocks = self._value(uuid, pynvml.nvmlDeviceGetSupportedMemoryClocks, handle, absent=LASTING) or []
            fixed = Device(
                uuid=uuid,
                index=index,
                product=self._call(uuid, pynvml.nvmlDeviceGetName, handle),
                mig=mig,
                sm_clocks_mhz=self._sm_clocks(uuid, handle, memory_clocks),
                memory_clocks_mhz=tuple(sorted(memory_clocks)),
                milliwatts_min=None if bounds is None else bounds[0],
                milliwatts_max=None if bounds is None else bounds[1],
                milliwatts_default=self._value(
                    uuid, pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle, absent=LASTING
                ),
            )
            self._fixed[uuid] = fixed
        return fixed, handle

    def _sm_clocks(self, uuid: str, handle: Any, memory_clocks: list[int]) -> tuple[int, ...]:
        """Those that go with the highest memory clock, which is the one that is used."""
        if not memory_clocks:
            return ()
        highest = max(memory_clocks)
        clocks = self._value(uuid, pynvml.nvmlDeviceGetSupportedGraphicsClocks, handle, highest, absent=LASTING)
        return tuple(sorted(clocks or ()))

    def _clock_event_reasons(self, uuid: str, handle: Any) -> int | None:
        reasons: int | None = self._value(uuid, pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if reasons is None:  # drivers before 535 know it by its earlier name
            reasons = self._value(uuid, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return reasons

    def _violation(self, uuid: str, handle: Any, policy: int) -> int | None:
        status = self._value(uuid, pynvml.nvmlDeviceGetViolationStatus, handle, policy)
        return None if status is None else int(status.violationTime)

    def _processes(self, uuid: str, handle: Any) -> tuple[int, ...] | None:
        """Those with a context of their own, and those that share one through MPS."""
        own = self._value(uuid, pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if own is None:
            return None
        # Not known now is not none: a GPU that is shared through MPS must not be taken for one process's own.
        shared = self._value(uuid, pynvml.nvmlDeviceGetMPSComputeRunningProcesses, handle, absent=LASTING) or []
        return tuple(sorted({process.pid for process in (*own, *shared)}))

    def _handle(self, uuid: str) -> Any:
        handle = self._handles.get(uuid)
        return self._call(uuid, pynvml.nvmlDeviceGetHandleByUUID, uuid) if handle is None else handle

    def _value(self, uuid: str, function: Callable[..., Any], *arguments: Any, absent: Collection[int] = SILENT) -> Any:
        """What a getter says; None if it gives one of the codes `absent`."""
        epoch = self._epoch
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value in absent:
                return None
            raise self._translated(error, function, uuid, epoch) from error
        except pynvml.NVMLLibraryMismatchError:
            return None

    def _call(self, uuid: str | None, function: Callable[..., Any], *arguments: Any) -> Any:
        epoch = self._epoch
        try:
            return function(*arguments)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            raise self._translated(error, function, uuid, epoch) from error

    def _translated(self, error: Exception, function: Callable[..., Any], uuid: str | None, epoch: int) -> DriverError:
        translated = translate(error, function.__name__, uuid)
        if isinstance(translated, DriverMissingError):
            self._stale_epoch = epoch
        return translated
