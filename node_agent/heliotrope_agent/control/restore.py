"""Puts GPUs back as they were: the one way, for releases, ends, starts, the watchdog and people."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from heliotrope_agent.driver.interface import Device, Driver
from heliotrope_agent.errors import DeviceUnknownError, DriverError, FencedError, UnsupportedError
from heliotrope_agent.state.records import Knob, Levels, Ownership

_logger = logging.getLogger(__name__)

ORDER = (Knob.SM_CLOCK, Knob.MEMORY_CLOCK, Knob.POWER_LIMIT)
"""Of putting back: what asks the driver for one call only comes first, for it may hang in the next."""


class Result(StrEnum):
    """What became of one GPU."""

    RESTORED = "restored"
    FORGOTTEN = "forgotten"
    """The node has rebooted since: the driver began anew, and what is set now is somebody else's."""
    FAILED = "failed"
    HANGS = "hangs"
    """The driver has not answered in time."""


@dataclass(frozen=True, slots=True)
class Restored:
    """One GPU."""

    uuid: str
    result: Result
    problem: str = ""

    @property
    def done(self) -> bool:
        """Whether nothing of Heliotrope is left on it."""
        return self.result in {Result.RESTORED, Result.FORGOTTEN}


def turn(driver: Driver, uuid: str, knob: Knob, level: int | None) -> None:
    """Set one knob; None lets the device choose its clock.

    Raises:
        DriverError: if the driver refuses.
    """
    match knob, level:
        case Knob.SM_CLOCK, None:
            driver.reset_sm_clock(uuid)
        case Knob.SM_CLOCK, int():
            driver.lock_sm_clock(uuid, level)
        case Knob.MEMORY_CLOCK, None:
            driver.reset_memory_clock(uuid)
        case Knob.MEMORY_CLOCK, int():
            driver.lock_memory_clock(uuid, level)
        case Knob.POWER_LIMIT, int():
            driver.set_power_limit(uuid, level)
        case _:
            raise UnsupportedError(f"{uuid}: there is no power limit to put back")


def turn_watched(driver: Driver, owned: Ownership, knob: Knob, level: int | None, check: Callable[[], None]) -> None:
    """Set one knob, and take it back if somebody took over while the driver had the call.

    Whoever took over may have put it back before the call did anything.

    Args:
        driver: of the node.
        owned: the GPU, with what it goes back to.
        knob: the knob.
        level: in MHz or mW; None: what the device chooses.
        check: raises if this process must not write any more.

    Raises:
        FencedError: from `check`; then the knob is as it was found.
        DriverError: if the driver refuses.
    """
    check()
    try:
        turn(driver, owned.uuid, knob, level)
    finally:
        try:
            check()
        except FencedError:
            try:
                turn(driver, owned.uuid, knob, owned.original.of(knob))
            except DriverError as error:
                problem = "%s was set while somebody took over, and cannot be put back: %s"
                _logger.error(problem, owned.uuid, error)  # noqa: TRY400 - it says what happened
            raise


def put_back(
    driver: Driver, owned: Ownership, check: Callable[[], None], *, left: frozenset[Knob] = frozenset()
) -> None:
    """Put one GPU back and read back what can be read; all knobs are tried, whatever one of them does.

    Args:
        driver: of the node.
        owned: the GPU.
        check: called before each write to the device; raises if this process must not write any more.
        left: knobs that somebody else has set since.

    Raises:
        DriverError: if something of it is not as it was.
    """
    problems: list[DriverError] = []
    for knob in ORDER:
        if knob in owned.touched - left:
            try:
                _put_back(driver, owned, knob, check)
            except UnsupportedError:
                continue  # what the device cannot do was never done to it
            except DriverError as error:
                problems.append(error)
    if problems:
        raise problems[0]


def _put_back(driver: Driver, owned: Ownership, knob: Knob, check: Callable[[], None]) -> None:
    original = owned.original.of(knob)
    if knob is not Knob.POWER_LIMIT:
        check()
        turn(driver, owned.uuid, knob, original)
        return
    if original is None or driver.read(owned.uuid).power_limit_milliwatts == original:
        return
    level = _put_limit_back(driver, owned.uuid, original, check)
    found = driver.read(owned.uuid).power_limit_milliwatts
    if found != level:
        raise DriverError(f"{owned.uuid}: the power limit is {found} mW after it was set to {level} mW")


def _put_limit_back(driver: Driver, uuid: str, milliwatts: int, check: Callable[[], None]) -> int:
    """Set a power limit that was read once, or the nearest that the driver allows since; returns which."""
    check()
    try:
        turn(driver, uuid, Knob.POWER_LIMIT, milliwatts)
    except UnsupportedError:
        raise
    except DriverError:
        bounds = next(
            ((each.milliwatts_min, each.milliwatts_max) for each in driver.devices() if each.uuid == uuid), None
        )
        if bounds is None or bounds[0] is None or bounds[1] is None or bounds[0] <= milliwatts <= bounds[1]:
            raise
        nearest = min(max(milliwatts, bounds[0]), bounds[1])
        check()
        turn(driver, uuid, Knob.POWER_LIMIT, nearest)
        _logger.warning(
            "%s: the power limit was %d mW, which the driver allows no more: it is %d mW now", uuid, milliwatts, nearest
        )
        return nearest
    return milliwatts


def put_back_after_reboot(driver: Driver, owned: Ownership, check: Callable[[], None]) -> None:
    """Put back the rest of a boot before this one.

    The driver has begun anew without our locks, so a lock that is there now is somebody else's. A power limit is ours
    only where it reads exactly what we had set, as a driver that keeps limits would leave it. A GPU that the driver
    does not know any more was taken out of the machine.

    Raises:
        DriverError: if it could not be found out or put back.
    """
    ours, original = owned.set.power_limit_milliwatts, owned.original.power_limit_milliwatts
    if Knob.POWER_LIMIT not in owned.touched or ours is None or ours == original:
        return
    try:
        present = driver.read(owned.uuid).power_limit_milliwatts
    except DeviceUnknownError:
        return
    if present == ours:
        _put_back(driver, owned, Knob.POWER_LIMIT, check)


def put_back_all(
    driver: Driver,
    records: Iterable[Ownership],
    boot_id: str,
    check: Callable[[], None],
    bound_s: float,
    beat: Callable[[], None] = lambda: None,
) -> tuple[Restored, ...]:
    """Put many GPUs back, each on a thread of its own, so that one that hangs keeps no other waiting.

    Args:
        driver: of the node; safe for threads.
        records: the GPUs.
        boot_id: of this boot.
        check: as for `put_back`.
        bound_s: how long to try and to wait for the driver, all GPUs together.
        beat: called while waiting.

    Returns:
        What became of each, by UUID.

    Raises:
        FencedError: from `check`.
    """
    ends_s = time.monotonic() + bound_s

    def once(owned: Ownership) -> Result:
        if owned.boot_id == boot_id:
            put_back(driver, owned, check)
            return Result.RESTORED
        put_back_after_reboot(driver, owned, check)
        return Result.FORGOTTEN

    def work(owned: Ownership) -> Result:
        while True:
            try:
                return once(owned)
            except DriverError:
                if time.monotonic() + _RETRY_S >= ends_s:
                    raise
            time.sleep(_RETRY_S)
            with contextlib.suppress(DriverError):  # connects anew to a driver that was reloaded
                driver.devices()

    return _side_by_side({each.uuid: partial(work, each) for each in records}, bound_s, beat)


_RETRY_S = 0.25
"""Between attempts at a GPU that fails, as long as there is time."""


def devices_in_time(
    driver: Driver, bound_s: float, beat: Callable[[], None] = lambda: None
) -> tuple[Device, ...] | None:
    """The GPUs, and a driver that is connected anew where it was reloaded.

    One GPU that hangs while the driver tells of it keeps no other from being put back: those are known by their UUIDs.

    Args:
        driver: of the node.
        bound_s: how long to wait.
        beat: called while waiting.

    Returns:
        None if the driver has not answered in time.

    Raises:
        DriverError: if it says that it cannot.
    """
    answers: list[tuple[Device, ...] | BaseException] = []

    def ask() -> None:
        try:
            answers.append(driver.devices())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            answers.append(error)

    thread = threading.Thread(target=ask, name="devices", daemon=True)
    thread.start()
    ends_s = time.monotonic() + bound_s
    while thread.is_alive() and time.monotonic() < ends_s:
        beat()
        thread.join(_STEP_S)
    if not answers:
        return None
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


def to_defaults(
    driver: Driver, devices: Iterable[Device], original: Levels, check: Callable[[], None], bound_s: float
) -> tuple[Restored, ...]:
    """Put GPUs to what the driver starts with, for want of knowing what they were.

    Args:
        driver: of the node.
        devices: the GPUs.
        original: clock locks that the administrator says GPUs have at rest.
        check: as for `put_back`.
        bound_s: how long to wait for the driver.

    Raises:
        FencedError: from `check`.
    """

    def work(device: Device) -> Result:
        levels = Levels(original.sm_clock_mhz, original.memory_clock_mhz, device.milliwatts_default)
        put_back(driver, Ownership(device.uuid, levels, Levels(), frozenset(Knob), "", "", "", 0.0, ""), check)
        return Result.RESTORED

    return _side_by_side({each.uuid: partial(work, each) for each in devices}, bound_s, lambda: None)


_STEP_S = 0.05


def _side_by_side(
    works: Mapping[str, Callable[[], Result]], bound_s: float, beat: Callable[[], None]
) -> tuple[Restored, ...]:
    results: dict[str, Restored] = {}
    strange: list[BaseException] = []

    def run(uuid: str, work: Callable[[], Result]) -> None:
        try:
            results[uuid] = Restored(uuid, work())
        except DriverError as error:
            results[uuid] = Restored(uuid, Result.FAILED, str(error))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            strange.append(error)

    # Daemons: a driver call that never returns must not keep the process from ending.
    threads = [
        threading.Thread(target=run, args=each, name=f"restore-{each[0]}", daemon=True) for each in works.items()
    ]
    for thread in threads:
        thread.start()
    left_s = bound_s
    for thread in threads:
        thread.join(_STEP_S)
        while thread.is_alive() and left_s > 0:
            beat()
            thread.join(_STEP_S)
            left_s -= _STEP_S
    if strange:
        raise strange[0]
    problem = f"the driver has not answered within {bound_s:g} s"
    return tuple(results.get(uuid, Restored(uuid, Result.HANGS, problem)) for uuid in sorted(works))
