"""How soon models hold again after the world has changed, with the picker's own windows, drift monitor and schedule."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heliotrope.predict.bundle import Bundle
from heliotrope.predict.drift import DriftMonitor
from heliotrope.predict.features import with_output_tokens
from heliotrope.predict.models import LearnedModels, hardware_keys
from heliotrope.predict.promotion import promote
from heliotrope.predict.sample import Sample
from heliotrope.predict.schedule import TrainingSchedule
from heliotrope.predict.targets import ANALYTIC_COLUMN, REQUESTS, Target
from heliotrope.predict.training import train
from heliotrope.predict.window import StratifiedWindow
from heliotrope_sim.evaluation.rows import Requests
from heliotrope_sim.evaluation.training import request_set

ROLLING = 100
"""Requests over which an error is averaged."""
BACK_UNDER = 0.10
NEAR_STEADY = 1.1
"""Within this factor of the error in the last third of the stream counts as recovered."""
TRAINING_SECONDS = 5.0
"""From the start of a training to the swap."""
START_S = 1e6


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one target after one change. Counts of requests since the change; None: not within the stream."""

    first_error: float
    """Over the first `ROLLING` requests."""
    steady_error: float
    """Over the last third."""
    under_10_percent: int | None
    near_steady: int | None
    trainings: int


def recovery(before: Requests, after: Requests, seed: int) -> Mapping[Target, Recovery]:
    """Train on `before`, then let requests of the changed world come in, in the order of their ends.

    Args:
        before: what the models are first trained on.
        after: the stream, of one run.
        seed: of LightGBM.
    """
    learner = _Learner(before, seed)
    errors = learner.follow(after)
    return {target: _recovered(errors[i], learner.trainings) for i, target in enumerate(REQUESTS.targets)}


class _Learner:
    def __init__(self, before: Requests, seed: int) -> None:
        self._seed = seed
        self._window = StratifiedWindow(REQUESTS)
        self._monitor = DriftMonitor()
        self._schedule = TrainingSchedule()
        self._models = LearnedModels()
        self._pending: tuple[float, Bundle] | None = None
        self.trainings = 0
        known = request_set(before)
        for sample in known.samples():
            self._window.add(Sample(REQUESTS, sample.key, 0.0, sample.row, sample.labels))
        for key in hardware_keys(before.rows).tolist():
            self._schedule.sampled(key)
        self._models = LearnedModels(train([self._window.training_set()], seed, 0.0))
        self._schedule.started(START_S)

    def follow(self, after: Requests) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """The error of each target at each request, shape (targets, n), NaN where there is none."""
        samples = list(request_set(after).samples())
        keys = hardware_keys(after.rows)
        errors = np.full((len(REQUESTS.targets), len(samples)), np.nan)
        for i, sample in enumerate(samples):
            now_s = START_S + float(after.ended_s[i])
            self._swap(now_s)
            errors[:, i] = self._errors(after, i)
            dated = Sample(REQUESTS, f"after-{i}", now_s, sample.row, sample.labels)
            self._window.add(dated)
            self._schedule.sampled(int(keys[i]))
            for drift in self._monitor.observe(self._models, [dated]):
                self._schedule.drifted(drift)
            self._models = self._models.with_levels(self._monitor.levels)
            self._train(now_s)
        return errors

    def _errors(self, after: Requests, i: int) -> list[float]:
        """Latencies as the decision sees them, energy at the given length; the analytic estimate where none answers."""
        decided = after.rows[i : i + 1]
        given = with_output_tokens(decided, after.output_tokens[i])
        errors = []
        for target, rows, label in (
            (Target.TTFT, decided, after.ttft_seconds[i]),
            (Target.TPOT, decided, after.tpot_seconds[i]),
            (Target.REQUEST_ENERGY, given, after.joules[i]),
        ):
            value = float(self._models.predict(rows).typical_of(target)[0])
            if math.isnan(value):
                value = float(rows[0, ANALYTIC_COLUMN[target]])
            errors.append(abs(value / label - 1.0))
        return errors

    def _train(self, now_s: float) -> None:
        if self._pending is not None:
            return
        plan = self._schedule.due(now_s)
        if plan is None:
            return
        self._schedule.started(now_s)
        samples = self._window.training_set().without_before(plan.cuts)
        candidate = train([samples], self._seed, now_s)
        self._pending = now_s + TRAINING_SECONDS, promote(self._models.current, candidate, [samples]).bundle
        self.trainings += 1

    def _swap(self, now_s: float) -> None:
        if self._pending is None or self._pending[0] > now_s:
            return
        bundle = self._pending[1]
        self._pending = None
        if bundle is not self._models.current:
            self._models = self._models.promoted(bundle)
        self._monitor.judged()


def _recovered(errors: np.ndarray[tuple[int], np.dtype[np.float64]], trainings: int) -> Recovery:
    steady = float(np.nanmean(errors[-(len(errors) // 3) :]))
    return Recovery(
        first_error=float(np.nanmean(errors[:ROLLING])),
        steady_error=steady,
        under_10_percent=_first_below(errors, BACK_UNDER),
        near_steady=_first_below(errors, steady * NEAR_STEADY),
        trainings=trainings,
    )


def _first_below(errors: np.ndarray[tuple[int], np.dtype[np.float64]], limit: float) -> int | None:
    """Requests until the rolling error is at most the limit."""
    recent: deque[float] = deque(maxlen=ROLLING)
    for i, error in enumerate(errors):
        if not math.isnan(error):
            recent.append(float(error))
        if len(recent) == ROLLING and sum(recent) / ROLLING <= limit:
            return i + 1
    return None
