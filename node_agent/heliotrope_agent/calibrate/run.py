"""Runs a calibration: does the next task until none is left, and hands each result over to be kept."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope_agent.calibrate import load
from heliotrope_agent.calibrate.counters import Counters
from heliotrope_agent.calibrate.custody import Custody
from heliotrope_agent.calibrate.engine import EngineClient
from heliotrope_agent.calibrate.errors import CalibrationError, NodeInUseError
from heliotrope_agent.calibrate.foreign import check_processes
from heliotrope_agent.calibrate.gpus import call
from heliotrope_agent.calibrate.pace import Pace
from heliotrope_agent.calibrate.page import Page
from heliotrope_agent.calibrate.record import Idle, Kind, Record, Size, Window
from heliotrope_agent.calibrate.sizes import (
    PILOT_ANSWER_TOKENS,
    PILOT_PROMPTS,
    answer_tokens,
    most_answer_tokens,
    prompts,
    skipped_tokens,
)
from heliotrope_agent.calibrate.sweep import Task, Work, next_task
from heliotrope_agent.calibrate.window import (
    CLOCK_TOLERANCE_MHZ,
    Mark,
    Measured,
    WindowError,
    full_pages,
    measured,
)
from heliotrope_agent.driver.interface import Driver, Reading

CLOCK_SECONDS = 5.0
"""Wall-clock time within which a clock that was set is read back."""
ALONE_SECONDS = 1.0
"""Wall-clock time within which an engine's page no longer shows our own requests that have ended."""
LEAST_SETTLE_SECONDS = 0.05
SETTLED_CELSIUS = 1
"""Temperatures of two readings a settling time apart that differ by no more are settled."""
MOST_SETTLINGS = 6
BEAT_PERIOD_SECONDS = 0.5
PILOTS = 4
PILOT_GROWTH = 3
LOST_WINDOWS = 3
"""Windows in a row that may tell nothing before the calibration gives up."""


class Watcher(Protocol):
    """Is told how it goes."""

    def begun(self, task: Task, record: Record) -> None:
        """A task begins."""
        ...

    def kept(self, record: Record) -> None:
        """Something was measured; it is to be put on disk now."""
        ...


@dataclass(frozen=True, slots=True)
class Calibration:
    """One engine and its GPUs.

    Args:
        driver: of the GPUs.
        uuids: the GPUs that the engine runs on.
        client: of the engine.
        pace: the engine's time.
        custody: holds the GPUs, entered.
        watcher: told of progress.
        engine_pid: see `foreign.check_processes`.
    """

    driver: Driver
    uuids: tuple[str, ...]
    client: EngineClient
    pace: Pace
    custody: Custody
    watcher: Watcher
    engine_pid: int | None = None
    wall_clock: Callable[[], float] = time.time

    async def run(self, record: Record) -> Record:
        """Measure all that the record lacks.

        Raises:
            CalibrationError: if engine or GPUs fail or somebody else uses them; the watcher has all up to then.
            DriverError: if the driver refuses a clock.
        """
        # It beats only while the sweep has got on of late: see `Custody.progressed`.
        beating = asyncio.create_task(self._beat())
        try:
            return await self._run(record)
        finally:
            beating.cancel()

    async def _run(self, record: Record) -> Record:
        mhz: int | None = None
        lost = 0
        while (task := next_task(record.sweep, record)) is not None:
            self.custody.progressed()
            self.watcher.begun(task, record)
            if task.mhz != mhz:
                record = await self._set_clock(task.mhz, record)
                mhz = task.mhz
            await self._check_alone()
            try:
                record = await self._do(task, record)
            except WindowError as error:
                lost += 1
                record = _enlarged(record.noted(f"a window was lost: {error}"), task)
                if lost >= LOST_WINDOWS:
                    raise CalibrationError(
                        f"{lost} windows in a row tell nothing ({error}); make them longer with --window-seconds"
                    ) from None
                continue
            lost = 0
            self.watcher.kept(record)
        return record

    async def _beat(self) -> None:
        while True:
            self.custody.beat()
            await asyncio.sleep(BEAT_PERIOD_SECONDS)

    async def _do(self, task: Task, record: Record) -> Record:
        if task.work is Work.IDLE:
            return replace(record, idle=(*record.idle, await self._idle(task.mhz, record.sweep.idle_seconds)))
        assert task.phase is not None
        assert task.batch is not None
        if task.work is Work.PILOT:
            return replace(record, sizes=(*record.sizes, await self._pilot(task.phase, task.batch, record)))
        size = record.size(task.phase, task.batch)
        assert size is not None
        begun = self.wall_clock()
        found = await self._window(task.phase, task.batch, task.mhz, size.amount, record)
        kind = Kind.DRIFT if task.work is Work.DRIFT else Kind.REFINE if task.refining else Kind.SWEEP
        window = Window(task.phase, task.batch, task.mhz, kind, begun, found)
        return _noticed(replace(record, windows=(*record.windows, window)), window)

    async def _set_clock(self, mhz: int, record: Record) -> Record:
        """Set it, read it back, and wait until temperatures have settled."""
        await call(self.custody.lock_clock, self.uuids, mhz)
        self.custody.progressed()
        deadline = time.monotonic() + CLOCK_SECONDS
        while True:
            readings = await self._readings()
            clocks = [each.sm_clock_mhz for each in readings]
            if all(each is None or abs(each - mhz) <= CLOCK_TOLERANCE_MHZ for each in clocks):
                break
            if time.monotonic() >= deadline:
                record = record.noted(
                    f"the GPUs run at {', '.join(str(each) for each in clocks)} MHz while idle, {mhz} MHz were set"
                )
                break
            await asyncio.sleep(0.02)
        settle_s, before = record.sweep.settle_seconds, None
        for _ in range(MOST_SETTLINGS):
            await self._sleep(settle_s)
            now = await self._temperature()
            if now is None or (before is not None and abs(now - before) <= SETTLED_CELSIUS):
                break
            before = now
        return record

    async def _sleep(self, engine_seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait, which is what the sweep is to do; `check` may end it."""
        left_s = self.pace.wall_seconds(engine_seconds, LEAST_SETTLE_SECONDS)
        ends_s = time.monotonic() + left_s
        while left_s > 0.0:
            await asyncio.sleep(min(left_s, BEAT_PERIOD_SECONDS))
            check()
            self.custody.progressed()
            left_s = ends_s - time.monotonic()

    async def _readings(self) -> list[Reading]:
        """All GPUs, each a step of its own."""
        found = []
        for uuid in self.uuids:
            found.append(await call(self.driver.read, uuid))
            self.custody.progressed()
        return found

    async def _temperature(self) -> int | None:
        readings = await self._readings()
        known = [each.temperature_celsius for each in readings if each.temperature_celsius is not None]
        return max(known, default=None)

    async def _check_alone(self) -> None:
        page = await self.client.page()
        self.custody.progressed()
        if page.in_flight:
            await asyncio.sleep(ALONE_SECONDS)
            page = await self.client.page()
            self.custody.progressed()
        if page.in_flight:
            raise NodeInUseError(
                f"the engine serves {page.in_flight} requests that are not ours: take it out of its pool or Service, "
                "and wait until they have ended"
            )
        readings = await self._readings()
        check_processes(
            {uuid: each.processes for uuid, each in zip(self.uuids, readings, strict=True)}, self.engine_pid
        )

    async def _idle(self, mhz: int, seconds: float) -> Idle:
        counters = Counters(self.driver, self.uuids, self.pace)
        counters.start()
        try:
            await self._sleep(seconds, counters.check)
        finally:
            await asyncio.to_thread(counters.stop)
        traces = counters.traces
        low, high = max(each.covers[0] for each in traces), min(each.covers[1] for each in traces)
        if not high > low:
            raise WindowError("the energy counter did not move while the engine was idle; use --idle-seconds")
        joules = sum(each.joules_at(high) - each.joules_at(low) for each in traces)
        return Idle(mhz, joules / (high - low), high - low, await self._temperature())

    async def _pilot(self, phase: Phase, batch: int, record: Record) -> Size:
        """Run a little, to learn how much runs in a window; more of it where that tells nothing."""
        sweep = record.sweep
        room = most_answer_tokens(sweep.decode_prompt_tokens, record.subject.max_model_len)
        amount = PILOT_PROMPTS if phase is Phase.PREFILL else min(PILOT_ANSWER_TOKENS, room)
        found: Measured | None = None
        for attempt in range(PILOTS):
            try:
                found = await self._window(phase, batch, sweep.clocks[0], amount, record)
            except WindowError:
                if attempt == PILOTS - 1 and found is None:
                    raise
            else:
                if Mark.TOO_SHORT not in found.marks:
                    break
            amount = amount * PILOT_GROWTH if phase is Phase.PREFILL else min(amount * PILOT_GROWTH, room)
        assert found is not None
        rate = found.tokens_per_second
        if phase is Phase.DECODE:
            amount = min(answer_tokens(sweep.window_seconds, batch / rate), room)
        else:
            amount = prompts(sweep.window_seconds, rate, sweep.prompt_tokens, found.tokens_per_step)
        return Size(phase, batch, amount, rate)

    async def _window(self, phase: Phase, batch: int, mhz: int, amount: int, record: Record) -> Measured:
        sweep = record.sweep
        counters = Counters(self.driver, self.uuids, self.pace)
        counters.start()

        def progressed() -> None:
            counters.check()
            self.custody.progressed()

        try:
            if phase is Phase.DECODE:
                room = most_answer_tokens(sweep.decode_prompt_tokens, record.subject.max_model_len)
                ran = await load.decode(
                    self.client,
                    self.pace,
                    batch=batch,
                    prompt_tokens=sweep.decode_prompt_tokens,
                    answer_tokens=min(amount, room),
                    progressed=progressed,
                )
            else:
                ran = await load.prefill(
                    self.client,
                    self.pace,
                    in_flight=batch,
                    prompt_tokens=sweep.prompt_tokens,
                    prompts=amount,
                    progressed=progressed,
                )
        finally:
            await asyncio.to_thread(counters.stop)
        skip = skipped_tokens(amount) if phase is Phase.DECODE else 0
        pages = full_pages(phase, ran.pages, batch, skip)

        def context(page: Page) -> float:
            return sweep.decode_prompt_tokens + (page.generated_tokens - ran.before.generated_tokens) / batch

        return measured(
            phase,
            pages,
            counters.traces,
            counters.looks,
            batch=batch,
            requested_mhz=mhz,
            context_tokens=context if phase is Phase.DECODE else None,
        )


def _enlarged(record: Record, task: Task) -> Record:
    """The record with twice the work for a load whose windows tell nothing, as long as none of them is on record."""
    if any(each.phase is task.phase and each.batch == task.batch for each in record.windows):
        return record
    sizes = tuple(
        replace(each, amount=2 * each.amount) if each.phase is task.phase and each.batch == task.batch else each
        for each in record.sizes
    )
    return replace(record, sizes=sizes)


def _noticed(record: Record, window: Window) -> Record:
    """The record with a note where something held the clock down."""
    if not window.measured.marks:
        return record
    why = f" ({', '.join(window.measured.reasons)})" if window.measured.reasons else ""
    marks = ", ".join(mark.value for mark in window.measured.marks)
    return record.noted(f"{window.phase.value} at {window.mhz} MHz, batch {window.batch}: {marks}{why}")
