"""The GPUs in a calibration's hands: the same lock, file of originals, fence and heartbeat as the agent's.

So a calibration and an agent refuse each other, and whoever finds a killed calibration's GPUs puts them back: the next
start, `heliotrope agent --restore`, an agent, or a watchdog that shares the folder.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from heliotrope_agent.calibrate.errors import CalibrationError
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
RESTORE_SECONDS = 10.0
"""How long the driver may take to put all GPUs back."""

logger = logging.getLogger(__name__)


class Custody:
    """Holds a node's GPUs for the time of a block; at its end everything is as it was before.

    Args:
        driver: of the GPUs.
        folder: the agent's state folder, which says who has the GPUs; it must exist.
        original_mhz: SM clock that GPUs of this node are locked to at rest; None: not locked.

    Raises:
        AnotherAgentError: if an agent, its watchdog or another calibration has them.
        StateError: if the folder cannot be used.
        CalibrationError: if GPUs that a killed calibration or agent left cannot be put back.
    """

    def __init__(self, driver: Driver, folder: Path, *, original_mhz: int | None = None) -> None:
        self._driver = driver
        self._folder = folder
        self._original_mhz = original_mhz
        self._lock = Lock(folder, Role.CALIBRATE, time.time)
        self._boot_id = boot_id()
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
                self._folder / AGENT, ProcessId.own(), self._boot_id, boottime_s, every_s=BEAT_SECONDS
            )
            self._take_over()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            failed = self._give_back()
        finally:
            self._lock.release()
        if failed:
            before = "" if error is None or not str(error) else f"{error}. After that "
            raise CalibrationError(
                f"{before}GPUs {', '.join(failed)} could not be put back ({'; '.join(failed.values())}): "
                "run heliotrope agent --restore, or nvidia-smi -rgc"
            ) from error

    def beat(self) -> None:
        """Leave a sign of life; cheap, to be called often while all is well."""
        self._heartbeat.beat()

    def lock_clock(self, uuids: Sequence[str], mhz: int) -> None:
        """Hold the SM clock of GPUs; what they were before is on disk first.

        Raises:
            DriverError: if the driver refuses.
            FencedError: if somebody took over.
            StateError: if the disk refuses; then nothing is changed.
        """
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
        for record in records:
            turn_watched(self._driver, record, Knob.SM_CLOCK, mhz, self._fence.check)

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
