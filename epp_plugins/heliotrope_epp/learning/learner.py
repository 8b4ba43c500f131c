"""The picker's part in learning: finished requests and metered intervals go in, models for decisions come out."""

import asyncio
from random import Random
from typing import Any

from heliotrope.predict.sample import Refusal
from heliotrope.predict.walk import warm_up
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning.client import ClientSettings
from heliotrope_epp.learning.drift import DriftWatch
from heliotrope_epp.learning.folder import StateFolder
from heliotrope_epp.learning.holder import ModelHolder
from heliotrope_epp.learning.keeper import ModelKeeper
from heliotrope_epp.learning.metrics import LearningCollector
from heliotrope_epp.learning.samples import Positions, believable_steps, sample_of, step_sample_of
from heliotrope_epp.learning.settings import LearningSettings
from heliotrope_epp.learning.shared import SharedLearning
from heliotrope_epp.learning.store import Store
from heliotrope_epp.learning.trainer import Trainer
from heliotrope_epp.learning.view import LearningView, Progress, document
from heliotrope_epp.outcomes.energy import MeteredInterval, NoSteps, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

SUBFOLDER = "learning"
"""Of the state folder, which other accounts may share."""


class Learner:
    """A sink. Learns alone or, with a trainer's URL, at that trainer; decisions read `holder.current`."""

    def __init__(self, settings: LearningSettings, *, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._progress = Progress()
        self._positions = Positions()
        self._step_positions = Positions()
        self.holder = ModelHolder()
        self._folder = StateFolder(None if settings.state_dir is None else settings.state_dir / SUBFOLDER)
        keeper = ModelKeeper(self.holder, Store(self._folder))
        watch = DriftWatch(self.holder)
        self._teacher: Trainer | SharedLearning
        if settings.trainer_url is None:
            trainer = Trainer(settings.training, keeper, watch, clock=clock, random=random)
            self._teacher = trainer
            self._view = LearningView(self._progress, keeper, watch, clock, trainer=trainer)
        else:
            shared = SharedLearning(ClientSettings(settings.trainer_url), keeper, watch, random=random)
            self._teacher = shared
            self._view = LearningView(self._progress, keeper, watch, clock, client=shared.client)

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        """Learn from a finished request, or count why not."""
        position = self._positions.next(request.endpoint)
        outcome = sample_of(request, energy, position, self._clock.unix())
        if isinstance(outcome, Refusal):
            self._progress.refused[outcome.value] += 1
            return
        self._progress.accepted += 1
        self._teacher.add((outcome,))

    def metered(self, interval: MeteredInterval) -> None:
        """Learn from the mean step of an interval, or count why not."""
        steps = believable_steps(interval)
        if isinstance(steps, NoSteps):
            self._progress.refused_intervals[steps.value] += 1
            return
        position = self._step_positions.next(interval.endpoint)
        outcome = step_sample_of(interval, steps, position, self._clock.unix())
        if isinstance(outcome, Refusal):
            self._progress.refused_intervals[outcome.value] += 1
            return
        self._progress.accepted += 1
        self._progress.steps += 1
        self._teacher.add((outcome,))

    async def prepare(self) -> None:
        """Compile what predicts, before requests come: it takes seconds of CPU that they would wait for."""
        await asyncio.to_thread(warm_up)

    async def run(self) -> None:
        """Load, learn and save until cancelled."""
        self._progress.running = True
        try:
            await self._teacher.run()
        finally:
            self._progress.running = False
            self._folder.close()

    def collector(self) -> LearningCollector:
        """For the picker's registry."""
        return LearningCollector(self._view)

    def document(self) -> dict[str, Any]:
        """For `/debug/state`."""
        return document(self._view)
