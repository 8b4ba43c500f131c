"""The GPUs' energy counters and states over a stretch of time, read by a thread so that no request delays them."""

import threading
import time
from collections.abc import Sequence

from heliotrope.units import joules_from_millijoules
from heliotrope_agent.calibrate.errors import CalibrationError, NoEnergyCounterError
from heliotrope_agent.calibrate.pace import Pace
from heliotrope_agent.calibrate.window import Look, Trace
from heliotrope_agent.driver.interface import Driver
from heliotrope_agent.errors import DriverError

PERIOD_S = 0.02
"""Engine seconds between two readings of the counters; NVML's move every 20 to 100 ms."""
LEAST_PERIOD_S = 0.002
LOOK_PERIOD_S = 0.5
"""Engine seconds between two looks at clocks, temperatures and reasons."""
LEAST_LOOK_PERIOD_S = 0.05
STOP_SECONDS = 10.0
"""A driver that does not answer for so long hangs."""


class Counters:
    """Reads while its block lasts.

    Raises:
        CalibrationError: at the end of the block if the driver failed or hung meanwhile.
        NoEnergyCounterError: at the end of the block if a GPU has no counter.
    """

    def __init__(self, driver: Driver, uuids: Sequence[str], pace: Pace) -> None:
        self._driver, self._uuids, self._pace = driver, tuple(uuids), pace
        self._samples: list[tuple[list[float], list[float]]] = [([], []) for _ in uuids]
        self._last: dict[str, float] = {}
        self._looks: list[Look] = []
        self._problem: CalibrationError | None = None
        self._read_at_s = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="energy counters", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def check(self) -> None:
        """See that the driver answers; cheap, to be asked often.

        Raises:
            CalibrationError: as the class says.
        """
        if self._problem is not None:
            raise self._problem
        if time.monotonic() - self._read_at_s > STOP_SECONDS:
            raise CalibrationError(f"the GPU driver has not answered for {STOP_SECONDS:g} s")

    def stop(self) -> None:
        """End; blocks for one reading.

        Raises:
            CalibrationError: as the class says.
        """
        self._stop.set()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            raise CalibrationError(f"the GPU driver has not answered for {STOP_SECONDS:g} s")
        if self._problem is not None:
            raise self._problem

    @property
    def traces(self) -> list[Trace]:
        """Of each GPU, in order."""
        return [Trace(times_s, joules) for times_s, joules in self._samples]

    @property
    def looks(self) -> list[Look]:
        """At all of them, in order of time."""
        return self._looks

    def _run(self) -> None:
        period = self._pace.wall_seconds(PERIOD_S, LEAST_PERIOD_S)
        look_period = self._pace.wall_seconds(LOOK_PERIOD_S, LEAST_LOOK_PERIOD_S)
        look_due = 0.0
        try:
            while not self._stop.is_set():
                for uuid, (times_s, joules) in zip(self._uuids, self._samples, strict=True):
                    self._read(uuid, times_s, joules)
                    self._read_at_s = time.monotonic()
                if time.monotonic() >= look_due:
                    look_due = time.monotonic() + look_period
                    readings = tuple(self._driver.read(uuid) for uuid in self._uuids)
                    self._looks.append(Look(self._pace.now_s(), readings))
                self._stop.wait(period)
        except DriverError as error:
            self._problem = CalibrationError(f"the GPU driver failed: {error}")
            self._problem.__cause__ = error
        except CalibrationError as error:
            self._problem = error

    def _read(self, uuid: str, times_s: list[float], joules: list[float]) -> None:
        millijoules = self._driver.energy_millijoules(uuid)
        if millijoules is None:
            raise NoEnergyCounterError(f"GPU {uuid} has no energy counter")
        value = joules_from_millijoules(float(millijoules))
        # When the first value came about is unknown; from then on a new one is as old as a period at most.
        last = self._last.setdefault(uuid, value)
        if value < last:
            raise CalibrationError(f"the energy counter of GPU {uuid} went back: was the driver loaded anew?")
        if value > last:
            self._last[uuid] = value
            times_s.append(self._pace.now_s())
            joules.append(value)
