import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.epp.learning.builders import NOW_UNIX, samples

from heliotrope.predict.models import Level
from heliotrope.predict.schedule import SchedulePolicy
from heliotrope.predict.targets import Target
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning import jobs
from heliotrope_epp.learning.drift import DriftWatch
from heliotrope_epp.learning.folder import StateFolder
from heliotrope_epp.learning.holder import ModelHolder
from heliotrope_epp.learning.keeper import ModelKeeper
from heliotrope_epp.learning.process import JobError, JobProcess
from heliotrope_epp.learning.settings import TrainingSettings
from heliotrope_epp.learning.store import Store
from heliotrope_epp.learning.trainer import Trainer

EAGER = SchedulePolicy(first_after=250, every=100, after_drift=100, min_interval_seconds=0.0)
FAST: dict[str, Any] = {
    "schedule": EAGER,
    "tick_s": 0.01,
    "first_retry_s": 0.02,
    "longest_retry_s": 0.05,
    "snapshot_interval_s": 0.02,
}


class InThread(JobProcess):
    """Trains for real, but in this process; `faults` are raised first, one per job."""

    def __init__(self, *faults: JobError | bytes) -> None:
        super().__init__(10.0)
        self.faults = list(faults)
        self.jobs = 0

    def run(self, job: bytes) -> bytes:
        self.jobs += 1
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, JobError):
                raise fault
            return fault
        return jobs.run(job)


class Hanging(JobProcess):
    """A training that does not end before it is stopped."""

    def __init__(self) -> None:
        super().__init__(10.0)
        self.stopped = threading.Event()
        self.runs = threading.Event()

    def run(self, job: bytes) -> bytes:
        self.runs.set()
        self.stopped.wait(20.0)
        raise JobError("stopped", "stopped")

    def stop(self) -> None:
        self.stopped.set()


class Running:
    """A trainer and what belongs to it."""

    def __init__(self, path: Path | None, process: JobProcess | None, **changes: Any) -> None:
        self.holder = ModelHolder()
        self.keeper = ModelKeeper(self.holder, Store(StateFolder(path)))
        self.watch = DriftWatch(self.holder)
        self.now = NOW_UNIX
        self.trainer = Trainer(
            TrainingSettings(**FAST | changes),
            self.keeper,
            self.watch,
            clock=Clock(unix=lambda: self.now),
            random=Random(1),
            process=process,
        )

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator["Running"]:
        task = asyncio.create_task(self.trainer.run())
        try:
            async with asyncio.timeout(10.0):
                await self.trainer.loaded.wait()
            yield self
        finally:
            task.cancel()
            outcome = await asyncio.gather(task, return_exceptions=True)
            self.keeper.store.folder.close()
        assert isinstance(outcome[0], asyncio.CancelledError), outcome


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def test_it_trains_when_there_is_enough_and_the_models_survive_a_restart(tmp_path: Path) -> None:
    async with Running(tmp_path, InThread()).started() as running:
        running.trainer.add(samples(249))
        await asyncio.sleep(0.1)
        assert not running.trainer.runs
        running.trainer.add(samples(60, seed=2))
        await until(lambda: running.trainer.runs["promoted"] == 1)
        models = running.holder.current
        assert models.targets == {Target.TTFT, Target.TPOT, Target.REQUEST_ENERGY}
        scores = models.current.models[Target.TTFT].scores
        assert scores.mape < 0.1 < scores.analytic_mape
        (record,) = running.keeper.records
        assert (record.occasion, record.result, record.samples) == ("first", "promoted", 309)
        assert {each.target for each in record.targets if each.promoted} == {each.value for each in models.targets}
    async with Running(tmp_path, InThread()).started() as again:
        assert again.holder.current.current.digest == models.current.digest
        assert again.trainer.window_sizes == {"requests": 309, "steps": 0}
        assert list(again.keeper.records) == [record]
        await asyncio.sleep(0.1)
        assert not again.trainer.runs, "nothing is new"


async def test_samples_without_models_are_trained_on_after_a_restart(tmp_path: Path) -> None:
    first = Running(tmp_path, Hanging())
    async with first.started():
        first.trainer.add(samples(300))
    async with Running(tmp_path, InThread()).started() as again:
        await until(lambda: again.trainer.runs["promoted"] == 1)


async def test_a_model_that_is_no_better_is_not_promoted() -> None:
    async with Running(None, InThread()).started() as running:
        running.trainer.add(samples(400))
        await until(lambda: running.trainer.runs.total() == 1)
        before = running.holder.current.current
        running.trainer.add(samples(100, seed=1))
        await until(lambda: running.trainer.runs.total() == 2)
    if running.trainer.runs["kept"]:
        assert running.holder.current.current is before
    for record in running.keeper.records:
        assert (record.result == "promoted") == any(each.promoted for each in record.targets)


@pytest.mark.parametrize(
    "fault", [JobError("killed", "signal 9 ended it"), JobError("timeout", "too long"), b"", b"\x80\x04pickle"]
)
async def test_a_failure_is_counted_and_tried_again(fault: JobError | bytes) -> None:
    process = InThread(fault, JobError("failed", "again"))
    async with Running(None, process).started() as running:
        running.trainer.add(samples(300))
        await until(lambda: running.trainer.runs["promoted"] == 1)
    reason = fault.reason if isinstance(fault, JobError) else "invalid"
    assert running.trainer.runs == {reason: 1, "failed": 1, "promoted": 1}
    assert [record.result for record in running.keeper.records] == [reason, "failed", "promoted"]
    assert running.keeper.records[0].detail
    assert process.jobs == 3


async def test_failures_back_off() -> None:
    process = InThread(*(JobError("failed", "x") for _ in range(1_000)))
    async with Running(None, process, first_retry_s=30.0, longest_retry_s=60.0).started() as running:
        running.trainer.add(samples(300))
        await until(lambda: running.trainer.runs["failed"] == 1)
        await asyncio.sleep(0.1)
        running.trainer.add(samples(300, seed=2))
        await asyncio.sleep(0.1)
    assert process.jobs == 1


async def test_a_training_that_runs_is_stopped_and_its_samples_are_saved(tmp_path: Path) -> None:
    process = Hanging()
    async with Running(tmp_path, process, snapshot_interval_s=600.0).started() as running:
        running.trainer.add(samples(300))
        await until(process.runs.is_set)
        running.trainer.add(samples(7, seed=2))
    assert process.stopped.is_set()
    learned = Store(StateFolder(tmp_path)).load()
    assert [len(window) for window in learned.windows] == [307]


async def test_the_window_is_written_again_and_again(tmp_path: Path) -> None:
    async with Running(tmp_path, InThread()).started() as running:
        for count in (3, 5):
            running.trainer.add(samples(count, seed=count))
            expected = running.trainer.window_sizes["requests"] + count
            await until(
                lambda expected=expected: (
                    [  # type: ignore[misc]
                        len(window) for window in Store(StateFolder(tmp_path)).load().windows
                    ]
                    == [expected]
                )
            )


async def test_a_disk_that_refuses_changes_nothing_else() -> None:
    async with Running(Path("/proc/heliotrope"), InThread()).started() as running:
        running.trainer.add(samples(300))
        await until(lambda: running.trainer.runs["promoted"] == 1)
        assert running.holder.current.targets
        assert running.keeper.store.folder.problem is not None


async def test_stopped_while_loading_it_leaves_the_disk_alone(tmp_path: Path) -> None:
    async with Running(tmp_path, InThread()).started() as running:
        running.trainer.add(samples(20))
    again = Running(tmp_path, InThread())
    task = asyncio.create_task(again.trainer.run())
    again.trainer.add(samples(2, seed=2))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [len(window) for window in Store(StateFolder(tmp_path)).load().windows] == [20]


async def test_flush_forgets_samples_also_on_disk(tmp_path: Path) -> None:
    async with Running(tmp_path, InThread()).started() as running:
        running.trainer.add(samples(20))
        await running.trainer.save_windows()
        running.trainer.add(samples(3, seed=2))
        assert running.trainer.flush() == 23
        await running.trainer.save_windows()
        assert running.trainer.window_sizes == {"requests": 0, "steps": 0}
    assert [len(window) for window in Store(StateFolder(tmp_path)).load().windows] == [0, 0]


@pytest.mark.slow
async def test_drift_makes_another_answer_and_the_next_training_learns_the_new_truth() -> None:
    async with Running(None, InThread()).started() as running:
        running.trainer.add(samples(400))
        await until(lambda: running.trainer.runs["promoted"] == 1)
        running.now += 100.0
        for seed in range(3, 30):
            running.now += 2.0
            running.trainer.add(samples(20, seed=seed, at_unix_s=running.now, slower=2.5))
            await asyncio.sleep(0.03)
            if running.watch.drifts:
                break
        assert running.watch.drifts["ttft_seconds", "analytic"] == 1
        await until(lambda: bool(running.holder.current.levels) or running.trainer.runs.total() > 1)
        assert Level.ANALYTIC in running.holder.current.levels.values() or running.trainer.runs.total() > 1
        for seed in range(30, 60):
            running.now += 2.0
            running.trainer.add(samples(20, seed=seed, at_unix_s=running.now, slower=2.5))
        await until(lambda: running.trainer.runs["promoted"] >= 2)
        assert "drift" in {record.occasion for record in running.keeper.records}
        await until(lambda: not running.holder.current.levels)


async def test_samples_that_come_before_the_state_is_loaded_wait_in_bounded_room(tmp_path: Path) -> None:
    running = Running(tmp_path, InThread())
    running.trainer.add(samples(700))
    assert running.trainer.overflowed == 200
    async with running.started():
        await until(lambda: running.trainer.window_sizes["requests"] == 500)
