"""Collects samples, trains in another process when a training is due, and keeps the windows on disk."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from heliotrope.predict.sample import Sample
from heliotrope.predict.schedule import TrainingPlan, TrainingSchedule
from heliotrope.predict.targets import TABLES
from heliotrope.predict.trainingset import TrainingSet
from heliotrope.predict.walk import warm_up
from heliotrope.predict.window import StratifiedWindow
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.backoff import Backoff
from heliotrope_epp.learning import jobs
from heliotrope_epp.learning.drift import MAX_WAITING, DriftWatch
from heliotrope_epp.learning.keeper import ModelKeeper
from heliotrope_epp.learning.process import JobError, JobProcess
from heliotrope_epp.learning.settings import TrainingSettings
from heliotrope_epp.learning.verdicts import TrainingRecord

PROMOTED = "promoted"
KEPT = "kept"
MAX_ARRIVED = 500
"""Samples that wait for the next tick; at more the windows take them at once."""

_log = logging.getLogger(__name__)


class Trainer:
    """Owned by the loop's thread. The same in a picker that learns alone and in the trainer that several share."""

    def __init__(
        self,
        settings: TrainingSettings,
        keeper: ModelKeeper,
        watch: DriftWatch,
        *,
        clock: Clock,
        random: Random,
        process: JobProcess | None = None,
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._watch = watch
        self._clock = clock
        self._process = process or JobProcess(settings.timeout_s)
        self._backoff = Backoff(settings.first_retry_s, settings.longest_retry_s, random)
        self._schedule = TrainingSchedule(settings.schedule)
        self._retry: TrainingPlan | None = None
        """The training that failed last."""
        self._not_before_s = 0.0
        self._arrived: deque[Sample] = deque()
        """Samples that are not in a window yet."""
        self._windows = _empty_windows()
        self._saved: dict[str, int | None] = dict.fromkeys(TABLES, 0)
        """Samples ever added to a window when it was last written; None: it has to be written again."""
        self.runs: Counter[str] = Counter()
        """Trainings since start by result: `promoted`, `kept`, or the reason of `JobError`."""
        self.overflowed = 0
        """Samples that arrived before what was left was loaded, and found no room."""
        self.loaded = asyncio.Event()
        """Set once what an earlier process left was taken up."""

    @property
    def window_sizes(self) -> dict[str, int]:
        """Samples remembered, by table."""
        return {name: len(window) for name, window in self._windows.items()}

    @property
    def strata(self) -> dict[str, int]:
        """Strata of each window."""
        return {name: len(window.strata) for name, window in self._windows.items()}

    @property
    def training_pid(self) -> int | None:
        """Process id of the training that runs now."""
        return self._process.pid

    def add(self, samples: Iterable[Sample]) -> None:
        """Remember samples that were found believable. They are sorted in together, at the next tick."""
        self._arrived.extend(samples)
        if len(self._arrived) > MAX_ARRIVED:
            self._settle()

    def flush(self) -> int:
        """Forget all samples; returns how many there were."""
        self._settle()
        forgotten = sum(self.window_sizes.values())
        self._windows = _empty_windows()
        self._saved = dict.fromkeys(TABLES, None)
        self._schedule = TrainingSchedule(self._settings.schedule)
        self._retry = None
        return forgotten

    async def run(self) -> None:
        """Take up what was left, then train and save until cancelled; what is new is saved at the end."""
        try:
            await self._load()
            self.loaded.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._save_for_ever(), name="window to disk")
                tasks.create_task(self._watch_for_ever(), name="drift")
                tasks.create_task(self._train_for_ever(), name="training")
        finally:
            self._process.stop()
            await self.save_windows()
            await self._keeper.save()

    async def save_windows(self) -> None:
        """Write the windows that have changed."""
        self._settle()
        if self._keeper.store.folder.path is None:
            return
        for name, window in self._windows.items():
            added = window.added
            if added != self._saved[name]:
                written = await asyncio.to_thread(self._save_window, name, window.samples())
                self._saved[name] = added if written else None

    async def _load(self) -> None:
        await asyncio.to_thread(warm_up)
        learned = await self._keeper.load()
        windows = await asyncio.to_thread(_filled_windows, learned.windows)
        self._windows = windows
        self._saved = {name: window.added for name, window in windows.items()}
        if not self._keeper.current.models:
            for hardware, count in _by_hardware(windows).items():
                for _ in range(count):
                    self._schedule.sampled(hardware)

    def _settle(self) -> None:
        """Move what has arrived into the windows."""
        if not self.loaded.is_set():
            while len(self._arrived) > MAX_ARRIVED:
                self._arrived.popleft()
                self.overflowed += 1
            return
        arrived = list(self._arrived)
        self._arrived.clear()
        for name, window in self._windows.items():
            for hardware, _, _ in window.add_many([sample for sample in arrived if sample.table.name == name]):
                self._schedule.sampled(hardware)
        for sample in arrived[-MAX_WAITING:]:
            self._watch.add(sample)

    async def _save_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.snapshot_interval_s)
            await self.save_windows()

    def _save_window(self, name: str, samples: Sequence[Sample]) -> bool:
        return self._keeper.store.save_window(TrainingSet.in_time(TABLES[name], samples))

    async def _watch_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tick_s)
            self._settle()
            for drift in self._watch.observe():
                self._schedule.drifted(drift)

    async def _train_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tick_s)
            now_s = self._clock.monotonic()
            if now_s < self._not_before_s:
                continue
            plan = self._schedule.due(now_s) or self._retry
            if plan is not None:
                await self._train(plan)

    async def _train(self, plan: TrainingPlan) -> None:
        started_s = self._clock.monotonic()
        self._settle()
        self._schedule.started(started_s)
        samples = {name: window.samples() for name, window in self._windows.items()}
        detail, targets = "", []
        try:
            outcome = await asyncio.to_thread(self._train_in_process, plan, samples, self._clock.unix())
        except JobError as error:
            result, detail = error.reason, str(error)
            self._failed(plan, error)
        else:
            result, targets = KEPT if outcome.bundle is None else PROMOTED, outcome.targets
            self._succeeded()
            if outcome.bundle is not None:
                await self._keeper.promote(outcome.bundle)
            self._watch.judged()
        self.runs[result] += 1
        self._keeper.records.append(
            TrainingRecord(
                at_unix_s=self._clock.unix(),
                occasion=plan.occasion.value,
                result=result,
                detail=detail,
                samples=sum(map(len, samples.values())),
                seconds=self._clock.monotonic() - started_s,
                targets=targets,
            )
        )
        await self._keeper.save()

    def _train_in_process(
        self, plan: TrainingPlan, samples: Mapping[str, Sequence[Sample]], now_unix_s: float
    ) -> jobs.Outcome:
        sets = [TrainingSet.in_time(TABLES[name], each) for name, each in samples.items() if each]
        job = jobs.Job(sets, self._keeper.current, plan.cuts, now_unix_s)
        try:
            return jobs.outcome_from_bytes(self._process.run(jobs.job_to_bytes(job)))
        except jobs.InvalidJobError as error:
            raise JobError("invalid", f"its result cannot be used: {error}") from error

    def _failed(self, plan: TrainingPlan, error: JobError) -> None:
        wait_s = self._backoff.failed()
        self._retry = plan
        self._not_before_s = self._clock.monotonic() + wait_s
        if self._backoff.failures == 1:
            fields = {"reason": error.reason, "why": str(error), "next_try_seconds": round(wait_s, 1)}
            _log.warning("training fails; the models stay as they are", extra={"fields": fields})

    def _succeeded(self) -> None:
        if self._backoff.failures:
            _log.info("training works again")
        self._backoff.succeeded()
        self._retry = None


def _empty_windows() -> dict[str, StratifiedWindow]:
    return {name: StratifiedWindow(table) for name, table in TABLES.items()}


def _filled_windows(sets: Iterable[TrainingSet]) -> dict[str, StratifiedWindow]:
    windows = _empty_windows()
    for each in sets:
        windows[each.table.name].add_all(each)
    return windows


def _by_hardware(windows: Mapping[str, StratifiedWindow]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for window in windows.values():
        for (hardware, _, _), samples in window.strata.items():
            counts[hardware] += samples
    return counts
