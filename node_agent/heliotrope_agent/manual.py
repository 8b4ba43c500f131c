"""What `heliotrope agent --restore` does: puts back by hand what an agent has left."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliotrope_agent.control.restore import Restored, put_back_all, to_defaults
from heliotrope_agent.driver.interface import Driver, Reading
from heliotrope_agent.errors import AnotherAgentError, DriverError
from heliotrope_agent.state import heartbeat
from heliotrope_agent.state.boot import kill
from heliotrope_agent.state.fence import Fence
from heliotrope_agent.state.lock import Lock, Role
from heliotrope_agent.state.records import Knob, Levels, Ownership
from heliotrope_agent.state.store import Store

_logger = logging.getLogger(__name__)

_LOCK_STEP_S = 0.1


@dataclass(frozen=True, slots=True)
class ManualSettings:
    """What is to be put back, and how; times in seconds."""

    folder: Path
    """The state folder."""
    force: bool = False
    """Take over from an agent that runs."""
    dry_run: bool = False
    """Say what would be done, and do nothing."""
    defaults: bool = False
    """Put every GPU to its driver's defaults, whatever the file of originals says."""
    restore_s: float = 10.0
    resting: Levels = Levels()  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU and what became of it."""

    uuid: str
    pod: str
    """`namespace/name`; empty: not known."""
    was: Levels
    """As Heliotrope had set it."""
    back: Levels
    """As it is, or would be, put back."""
    touched: frozenset[Knob]
    reading: Reading | None
    """Before."""
    restored: Restored | None
    """None: a dry run."""


def restore(
    settings: ManualSettings,
    driver: Driver,
    boot_id: str,
    wall_clock: Callable[[], float],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Row, ...]:
    """Put back what is in the file of originals, or everything to the driver's defaults.

    Args:
        settings: what and how.
        driver: of the node.
        boot_id: of this boot.
        wall_clock: unix seconds.
        clock: monotonic seconds.
        sleep: waits.

    Raises:
        AnotherAgentError: if an agent runs and `force` is not given.
        StateError: if the file of originals cannot be read, or is of a newer version.
        DriverError: if the driver does not say which GPUs there are.
    """
    store = Store(settings.folder)
    if settings.dry_run:
        records = _records(settings, store, driver)
        return tuple(_row(each, driver, None) for each in records)
    lock = Lock(settings.folder, Role.RESTORE, wall_clock)
    _take(lock, settings, clock, sleep)
    try:
        fence = Fence(settings.folder)
        store = Store(settings.folder, fence.check)
        records = _records(settings, store, driver)
        readings = {each.uuid: _reading(driver, each.uuid) for each in records}
        if settings.defaults:
            named = {each.uuid for each in records}
            devices = [each for each in driver.devices() if each.uuid in named]
            done = to_defaults(driver, devices, settings.resting, fence.check, settings.restore_s)
            if all(each.done for each in done):
                store.set_aside()
        else:
            done = put_back_all(driver, records, boot_id, fence.check, settings.restore_s)
            store.forget(each.uuid for each in done if each.done)
    finally:
        lock.release()
    results = {each.uuid: each for each in done}
    return tuple(_row(each, driver, results[each.uuid], readings[each.uuid]) for each in records)


def _take(lock: Lock, settings: ManualSettings, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Take the lock; with `force` fence off who has it, wait for it to end, and kill it if it does not."""
    try:
        lock.take()
    except AnotherAgentError as error:
        if not settings.force:
            raise AnotherAgentError(
                f"{error}; stop it first (it puts everything back itself), or take over with --force", error.holder
            ) from None
    else:
        return
    holder = heartbeat.read(settings.folder / heartbeat.AGENT)
    Fence(settings.folder).raise_()
    ends_s = clock() + settings.restore_s
    while clock() < ends_s:
        try:
            lock.take()
        except AnotherAgentError:
            sleep(_LOCK_STEP_S)
        else:
            return
    if holder is not None and kill(holder.process):
        _logger.warning("killed the process with pid %d, which has not ended in time", holder.process.pid)


def _records(settings: ManualSettings, store: Store, driver: Driver) -> tuple[Ownership, ...]:
    if not settings.defaults:
        return tuple(store.load().values())
    return tuple(
        Ownership(
            each.uuid,
            Levels(settings.resting.sm_clock_mhz, settings.resting.memory_clock_mhz, each.milliwatts_default),
            Levels(),
            frozenset(Knob),
            "",
            "",
            "",
            0.0,
            "",
        )
        for each in driver.devices()
        if not each.mig
    )


def _row(owned: Ownership, driver: Driver, restored: Restored | None, reading: Reading | None = None) -> Row:
    pod = f"{owned.namespace}/{owned.pod}" if owned.pod else ""
    reading = reading or _reading(driver, owned.uuid)
    return Row(owned.uuid, pod, owned.set, owned.original, owned.touched, reading, restored)


def _reading(driver: Driver, uuid: str) -> Reading | None:
    try:
        return driver.read(uuid)
    except DriverError:
        return None


def failed(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Those that could not be put back."""
    return tuple(each for each in rows if each.restored is not None and not each.restored.done)
