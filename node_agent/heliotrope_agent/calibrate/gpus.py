"""The GPUs of the engine: which they are, whether they can be measured, and their clocks."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from heliotrope.errors import InvalidInputError
from heliotrope_agent.calibrate.errors import CalibrationError, NoEnergyCounterError
from heliotrope_agent.driver.interface import Device, Driver

DRIVER_SECONDS = 20.0
"""A call of the driver that takes longer hangs."""

Answer = TypeVar("Answer")


async def call(function: Callable[..., Answer], *arguments: object) -> Answer:
    """Call the driver beside the loop, with a limit of time.

    The thread is a daemon: a call that never returns must not keep the process from ending, as an executor's would.

    Raises:
        CalibrationError: if it does not answer in time.
        DriverError: of the call.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        if not answer.done():
            result()

    def run() -> None:
        try:
            found = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            result = partial(answer.set_exception, error)
        else:
            result = partial(answer.set_result, found)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="driver", daemon=True).start()
    try:
        async with asyncio.timeout(DRIVER_SECONDS):
            return await answer
    except TimeoutError:
        raise CalibrationError(f"the GPU driver has not answered for {DRIVER_SECONDS:g} s") from None


def chosen(driver: Driver, names: Sequence[str]) -> tuple[Device, ...]:
    """The GPUs that are named by UUID or index; without names those with processes, else all.

    Raises:
        InvalidInputError: if one does not exist, or there is none.
        DriverError: if the driver fails.
    """
    devices = driver.devices()
    if not devices:
        raise InvalidInputError("--gpu", "the driver knows no GPU on this node")
    if not names:
        busy = tuple(device for device in devices if driver.read(device.uuid).processes)
        return busy or devices
    found: dict[str, Device] = {}
    for name in names:
        matching = [device for device in devices if name in (device.uuid, str(device.index))]
        if not matching:
            known = ", ".join(f"{device.index} ({device.uuid})" for device in devices)
            raise InvalidInputError("--gpu", f"there is no GPU {name}; there are {known}")
        found[matching[0].uuid] = matching[0]
    return tuple(found.values())


def check(driver: Driver, devices: Sequence[Device]) -> None:
    """Refuse GPUs that cannot be measured.

    Raises:
        InvalidInputError: if one is partitioned, has no clocks to set, or they are of different kinds.
        NoEnergyCounterError: if one counts no energy.
        DriverError: if the driver fails.
    """
    for device in devices:
        if device.mig:
            raise InvalidInputError("--gpu", f"{device.uuid} is partitioned (MIG): its clock is not one engine's alone")
        if not device.sm_clocks_mhz:
            raise InvalidInputError("--gpu", f"{device.product} {device.uuid} has no SM clocks that can be set")
        if driver.energy_millijoules(device.uuid) is None:
            raise NoEnergyCounterError(
                f"{device.product} {device.uuid} has no energy counter (NVML has it from Volta on); "
                "without one no joules can be measured"
            )
    if len({device.product for device in devices}) > 1:
        products = ", ".join(sorted({device.product for device in devices}))
        raise InvalidInputError("--gpu", f"GPUs of one engine are of one kind, these are {products}; name the engine's")


def clocks_of(devices: Sequence[Device], low_mhz: int | None, high_mhz: int | None) -> tuple[int, ...]:
    """SM clocks that all GPUs support within a range, ascending; by default from a quarter of the highest on."""
    common = set.intersection(*({*device.sm_clocks_mhz} for device in devices))
    if not common:
        return ()
    high = max(common) if high_mhz is None else high_mhz
    low = max(common) / 4.0 if low_mhz is None else low_mhz
    return tuple(sorted(mhz for mhz in common if low <= mhz <= high))
