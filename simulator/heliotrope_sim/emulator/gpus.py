"""An engine and its GPUs in a driver: the engine's clock follows theirs, their counters follow its energy."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from heliotrope_sim.emulator.nvml import Draw, DriverCallError
from heliotrope_sim.engine import Engine, StepResult

logger = logging.getLogger(__name__)

EXCHANGE_SECONDS = 0.002
"""Wall-clock time between two exchanges at least: steps at high `time_scale` are shorter."""
IDLE_SECONDS = 0.02
"""Wall-clock time between two exchanges at most, also where nothing steps."""


class Group(Protocol):
    """The GPUs of a tensor-parallel group (`nvml.NvmlGroup`)."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """Of the GPUs."""
        ...

    @property
    def indices(self) -> tuple[int, ...]:
        """The driver's numbers of the same."""
        ...

    def sm_clock_mhz(self) -> int:
        """The clock that they run at."""
        ...

    def draw(self, position: int, draw: Draw) -> None:
        """Tell what one of them drew."""
        ...

    def close(self) -> None:
        """Let go of them."""
        ...


class EngineGpus:
    """Exchanges clock and energy between an engine and its GPUs, in whole millijoules and without loss.

    Where the driver fails, what it was not told is told later, and the engine keeps its clock.
    """

    def __init__(self, group: Group, engine: Engine, meter_ns: Callable[[], int]) -> None:
        """`meter_ns` is the engine time at which its meter may be read or switched now."""
        self._group = group
        self._engine = engine
        self._meter_ns = meter_ns
        self._told = [0] * len(group.uuids)
        """Millijoules of each GPU's counter that are this engine's."""
        self._busy: tuple[int, int] = (0, 0)
        """Milliwatts of one GPU during the last step, and its clock."""
        self._seen_mhz: int | None = None
        """The driver's clock at the last exchange, which may be outside of the engine's range."""
        self._last_s = float("-inf")
        self.errors = 0
        """Exchanges that the driver has failed."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """Of the GPUs, as the driver has them."""
        return self._group.uuids

    @property
    def indices(self) -> tuple[int, ...]:
        """The driver's numbers of them."""
        return self._group.indices

    def before_step(self) -> None:
        """Exchange, if the last time was long enough ago."""
        if time.monotonic() - self._last_s >= EXCHANGE_SECONDS:
            self.exchange()

    def stepping(self, result: StepResult) -> None:
        """Remember what a step draws while it runs; the driver is told with the next exchange."""
        if result.duration_ns:
            # pJ per ns are mW.
            milliwatts = result.picojoules // result.duration_ns // len(self._told)
            self._busy = (milliwatts, self._engine.model.clock_mhz)

    def exchange(self, now_ns: int | None = None) -> None:
        """Tell the driver what was drawn up to a time (now), and take the clock that it has then."""
        self._last_s = time.monotonic()
        energy = self._engine.energy
        if now_ns is None:
            now_ns = self._meter_ns()
        total, count = energy.millijoules(now_ns), len(self._told)
        milliwatts = round(energy.watts(now_ns) * 1_000 / count)
        # Between steps the meter is settled no further than now.
        stepping = energy.settled_ns > now_ns
        try:
            for i in range(count):
                share = shared_millijoules(total, i, count)
                self._group.draw(i, Draw(share - self._told[i], milliwatts, *self._busy, 100 if stepping else 0))
                self._told[i] = share
            mhz = self._group.sm_clock_mhz()
        except DriverCallError as error:
            self.errors += 1
            if self.errors == 1:
                logger.warning("the driver of %s fails: %s; counted from now on", ", ".join(self.uuids), error)
            return
        if mhz != self._seen_mhz:
            self._seen_mhz = mhz
            self._engine.set_clock(mhz, now_ns)

    async def run(self) -> None:
        """Exchange now and then, whatever the engine does."""
        while True:
            self.exchange()
            await asyncio.sleep(IDLE_SECONDS)

    def close(self) -> None:
        """Tell what was drawn to the last, and let go of the GPUs."""
        self.exchange()
        self._group.close()


def shared_millijoules(total: int, position: int, count: int) -> int:
    """One GPU's share of a group's energy: whole numbers that never shrink and add up to the total."""
    return (total + position) // count
