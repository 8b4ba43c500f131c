"""The GPUs in a calibration's hands: the same lock, file of originals, fence and heartbeat as the agent's.

So a calibration and an agent refuse each other. A calibration that is dead, or leaves no sign of life, has its GPUs put
back by the watchdog that it starts for itself, or one that shares the folder; else by whoever comes next: the next
start, `heliotrope agent --restore`, an agent.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from heliotrope_agent.calibrate.errors import CalibrationError
from heliotrope_agent.calibrate.guard import Guard
from heliotrope_agent.clock import boottime_s
from heliotrope_agent.control.restore import put_back_all, turn_watched
from heliotrope_agent.driver.interface import Driver
from heliotrope_agent.errors import AnotherAgentError, CorruptStateError, StateError
from heliotrope_agent.state.boot import ProcessId, boot_id
from heliotrope_agent.state.fence import Fence
from heliotrope_agent.state.heartbeat import AGENT, Heartbeat
from heliotrope_agent.state.lock import Lock, Role
from heliotrope_agent.state.records import Knob, Levels, Ownership
from heliotrope_agent.state.store import Store

BEAT_SECONDS = 1.0
STEP_SECONDS = 30.0
"""A step of the sweep takes less: the driver has 20 s for a call, the engine 15 s for a page. After so long without one
there are no more signs of life, whatever else of the process is alive."""
WATCHDOG_SECONDS = 15.0
RESTORE_SECONDS = 10.0
"""How long the driver may take to put all GPUs back."""

logger = logging.getLogger(__name__)


class Custody:
    """Holds a node's GPUs for the time of a block; at its end everything is as it was before.

    Args:
        driver: of the GPUs.
        folder: the agent's state folder, which says who has the GPUs; it must exist.
        original_mhz: SM clock that GPUs of this node are locked to at rest; None: not locked.
        watchdog_s: without a sign of life for so long its watchdog takes this process for dead or hung.

    Raises:
        AnotherAgentError: if an agent, its watchdog or another calibration has them.
        StateError: if the folder cannot be used.
        CalibrationError: if GPUs that a killed calibration or agent left cannot be put back, or no watchdog starts.
    """

    def __init__(
        self,
        driver: Driver,
        folder: Path,
        *,
        original_mhz: int | None = None,
        watchdog_s: float = WATCHDOG_SECONDS,
        clock: Callable[[], float] = boottime_s,
    ) -> None:
        self._driver = driver
        self._folder = folder
        self._original_mhz = original_mhz
        self._lock = Lock(folder, Role.CALIBRATE, time.time)
        self._boot_id = boot_id()
        self._guard = Guard(folder, watchdog_s, original_mhz)
        self._beat_s = min(BEAT_SECONDS, watchdog_s / 4.0)
        self._clock = clock
        self._step_until_s = clock() + STEP_SECONDS
        self._set = threading.Event()
        """Whether the driver has no call that sets a clock."""
        self._set.set()
        self.put_back: tuple[str, ...] = ()
        """GPUs that were found changed at the start, and are no more."""

    def __enter__(self) -> Self:
        try:
            self._lock.take()
        except AnotherAgentError as error:
            raise AnotherAgentError(
                f"{error}; drain the node and take its agent off it first (docs/calibrate.md)", error.holder
            ) from None
        try:
            self._fence = Fence(self._folder)
            self._store = Store(self._folder, self._fence.check)
            self._heartbeat = Heartbeat(
                self._folder / AGENT, ProcessId.own(), self._boot_id, self._clock, every_s=self._beat_s
            )
            self._take_over()
            self.progressed()
            self._guard.ensure()
        except BaseException:
            self._guard.end()
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._step_until_s = self._clock() + STEP_SECONDS
        if not self._settled():
            # Whatever is put back now, that call may change again: only a dead process sets nothing more. The watchdog
            # kills this one, for want of signs of life, and puts back.
            logger.error("the driver has not answered yet and may still set a clock: the watchdog puts it back soon")
            self._guard.leave()
            return
        failed: dict[str, str] | None = None
        try:
            failed = self._give_back()
        finally:
            self._guard.leave() if failed is None or failed else self._guard.end()
            self._lock.release()
        if failed:
            before = "" if error is None or not str(error) else f"{error}. After that "
            raise CalibrationError(
                f"{before}GPUs {', '.join(failed)} could not be put back ({'; '.join(failed.values())}); it is tried "
                "again for ten minutes: then run heliotrope agent --restore, or nvidia-smi -rgc"
            ) from error

    def progressed(self) -> None:
        """The sweep has got on: `beat` leaves signs of life for another `STEP_SECONDS`.

        Raises:
            StateError: if the state folder was removed or replaced: another calibration or agent may be at work.
        """
        self._lock.check()
        self._step_until_s = self._clock() + STEP_SECONDS
        self.beat()

    def beat(self) -> None:
        """Leave a sign of life, unless the sweep hangs; cheap, to be called often."""
        if self._clock() < self._step_until_s:
            self._heartbeat.beat()

    def lock_clock(self, uuids: Sequence[str], mhz: int) -> None:
        """Hold the SM clock of GPUs; what they were before is on disk first.

        Raises:
            DriverError: if the driver refuses.
            FencedError: if somebody took over.
            StateError: if the disk refuses; then nothing is changed.
            CalibrationError: if there is no watchdog; then nothing is changed.
        """
        self._guard.ensure()
        now_s = time.time()
        records = [
            Ownership(
                uuid=uuid,
                original=Levels(sm_clock_mhz=self._original_mhz),
                set=Levels(sm_clock_mhz=mhz),
                touched=frozenset({Knob.SM_CLOCK}),
                namespace="",
                pod="",
                pod_uid="",
                since_unix_s=now_s,
                boot_id=self._boot_id,
            )
            for uuid in uuids
        ]
        self._store.save(records)
        self._set.clear()
        try:
            for record in records:
                turn_watched(self._driver, record, Knob.SM_CLOCK, mhz, self._fence.check)
        finally:
            self._set.set()

    def _settled(self) -> bool:
        """Wait for a call that sets a clock, which goes on when its caller was cancelled; whether it has ended."""
        ends_s = time.monotonic() + RESTORE_SECONDS
        while not self._set.wait(BEAT_SECONDS / 4.0):
            self.beat()
            if time.monotonic() >= ends_s:
                return False
        return True

    def _take_over(self) -> None:
        try:
            found = self._store.load()
        except CorruptStateError as error:
            raise StateError(
                f"{error}; run heliotrope agent --restore --defaults, which puts GPUs to their drivers' defaults"
            ) from error
        if found:
            logger.warning("GPUs %s were left changed; they are put back first", ", ".join(found))
            if failed := self._give_back():
                raise CalibrationError(f"GPUs left changed cannot be put back: {'; '.join(failed.values())}")
            self.put_back = tuple(found)

    def _give_back(self) -> dict[str, str]:
        """Put everything back; why not, by UUID."""
        found = put_back_all(
            self._driver, self._store.records.values(), self._boot_id, self._fence.check, RESTORE_SECONDS, self.beat
        )
        failed = {each.uuid: each.problem for each in found if not each.done}
        if done := [each.uuid for each in found if each.done]:
            self._store.forget(done)
        if not failed:
            self._heartbeat.remove()
        return failed
