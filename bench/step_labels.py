"""The step energies that learning takes from metered intervals, against the steps that the engine truly made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from metered_engine import UNIX_OFFSET_S, MeteredEngine

from heliotrope.predict.features import FloatColumn, Matrix, StepInputs, step_rows
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.sample import Sample
from heliotrope.predict.targets import ANALYTIC_COLUMN, STEPS, Target
from heliotrope.predict.training import train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope_epp.learning.samples import believable_steps, step_sample_of
from heliotrope_epp.outcomes.energy import MeteredInterval, MeteredSteps, NoSteps
from heliotrope_sim.engine import Phase
from heliotrope_sim.engine.fixed_point import seconds

SEED = 1


@dataclass(frozen=True, slots=True)
class StepLabels:
    """Relative errors of intervals' mean joules per step."""

    taken: int
    """Intervals that learning takes."""
    with_work: int
    """Intervals with work."""
    median: float
    """Of the absolute error; so for the next one."""
    ninetieth: float
    bias: float


@dataclass(frozen=True, slots=True)
class StepModel:
    """Mean absolute relative errors of a learned model and of the analytic one; NaN without a profile."""

    trained_on: int
    """Intervals of the training runs."""
    interval: tuple[float, float]
    """Against the labels of other runs."""
    decode: tuple[float, float]
    """Against their single decode steps; so for prefill steps."""
    prefill: tuple[float, float]


def step_labels(engine: MeteredEngine, intervals: Sequence[MeteredInterval]) -> StepLabels:
    """Compare each interval's label with the mean over the steps that ended in it.

    Raises:
        RuntimeError: if an interval counts other steps than the engine made.
    """
    ends_s = np.array([seconds(step.end_ns) for step in engine.steps])
    joules = np.cumsum([0.0, *(step.joules for step in engine.steps)])
    errors = []
    for interval, steps in _believable(intervals):
        bounds_s = [interval.start_unix_s - UNIX_OFFSET_S, interval.end_unix_s - UNIX_OFFSET_S]
        first, last = np.searchsorted(ends_s, bounds_s, side="right")
        if abs(steps.count - (last - first)) > 1.5:
            raise RuntimeError(f"{last - first} steps ended in an interval that counts {steps.count}")
        errors.append(steps.mean_joules / ((joules[last] - joules[first]) / (last - first)) - 1.0)
    found = np.array(errors or [np.nan])
    return StepLabels(
        taken=len(errors),
        with_work=sum(interval.steps is not NoSteps.IDLE for interval in intervals),
        median=float(np.median(np.abs(found))),
        ninetieth=float(np.quantile(np.abs(found), 0.9)),
        bias=float(found.mean()),
    )


def step_model(training: Sequence[MeteredEngine], others: Sequence[MeteredEngine]) -> StepModel:
    """Train on what learning takes from some runs, and judge by others.

    Args:
        training: engines that ran.
        others: more of them, whose picker knows the same of the engine.
    """
    taught = TrainingSet.of(STEPS, [sample for engine in training for sample in _samples(engine)])
    models = LearnedModels(train([taught], SEED, 0.0))
    judged = TrainingSet.of(STEPS, [sample for engine in others for sample in _samples(engine)])
    rows = np.concatenate([_single_steps(engine) for engine in others])
    joules = np.array([step.joules for engine in others for step in engine.steps])
    prefill = np.array([step.phase is Phase.PREFILL for engine in others for step in engine.steps])
    return StepModel(
        trained_on=len(taught),
        interval=_errors(models, judged.rows, judged.labels_of(Target.STEP_ENERGY)),
        decode=_errors(models, rows[~prefill], joules[~prefill]),
        prefill=_errors(models, rows[prefill], joules[prefill]),
    )


def _believable(intervals: Sequence[MeteredInterval]) -> Iterator[tuple[MeteredInterval, MeteredSteps]]:
    for interval in intervals:
        steps = believable_steps(interval)
        if isinstance(steps, MeteredSteps):
            yield interval, steps


def _samples(engine: MeteredEngine) -> list[Sample]:
    (picker,) = engine.pickers
    outcomes = [
        step_sample_of(interval, steps, position, interval.end_unix_s)
        for position, (interval, steps) in enumerate(_believable(picker.intervals))
    ]
    return [outcome for outcome in outcomes if isinstance(outcome, Sample)]


def _single_steps(engine: MeteredEngine) -> Matrix:
    """A row of each step that the engine made, with what the picker believes of such a step."""
    (picker,) = engine.pickers
    traits, steps = picker.state.traits, engine.steps
    prefills = np.array([step.phase is Phase.PREFILL for step in steps])
    tokens = np.array([float(step.tokens) for step in steps])
    participants = np.array([float(step.participants) for step in steps])
    prefill_tokens, prompts = np.where(prefills, tokens, 0.0), np.where(prefills, participants, 0.0)
    batch, squares = np.where(prefills, 0.0, participants), prefill_tokens**2 / np.maximum(prompts, 1.0)
    kv_tokens = np.array([float(step.kv_tokens) for step in steps])
    believed = traits.engine
    analytic = np.full(len(steps), np.nan)
    if believed is not None:
        analytic = believed.prefill_joules(prefill_tokens, squares) + believed.decode_joules(batch, kv_tokens)
    return step_rows(
        StepInputs(
            hardware=np.tile(traits.hardware_row, (len(steps), 1)),
            batch=batch,
            kv_tokens=kv_tokens,
            prefill_tokens=prefill_tokens,
            prefill_requests=prompts,
            prefill_squared_tokens=squares,
            sm_clock_mhz=float(engine.engine.model.clock_mhz),
            analytic_step_joules=analytic,
        )
    )


def _errors(models: LearnedModels, rows: Matrix, joules: FloatColumn) -> tuple[float, float]:
    learned = models.predict_steps(rows).typical_of(Target.STEP_ENERGY)
    analytic = rows[:, ANALYTIC_COLUMN[Target.STEP_ENERGY]]
    return float(np.mean(np.abs(learned / joules - 1.0))), float(np.mean(np.abs(analytic / joules - 1.0)))
