from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from heliotrope.predict.bundle import Bundle
from heliotrope.predict.drift import ALARM, ALLOWED, Drift, DriftMonitor
from heliotrope.predict.features import column_of
from heliotrope.predict.models import LearnedModels, Level, hardware_keys
from heliotrope.predict.promotion import promote
from heliotrope.predict.sample import Sample
from heliotrope.predict.schedule import SchedulePolicy, TrainingSchedule
from heliotrope.predict.targets import REQUESTS, Target
from heliotrope.predict.training import train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope.predict.window import StratifiedWindow

Make = Callable[..., TrainingSet]
Sets = tuple[TrainingSet, TrainingSet]


@pytest.fixture(scope="module")
def kept() -> dict[str, Bundle]:
    return {}


@pytest.fixture
def bundle(sets: Sets, kept: dict[str, Bundle]) -> Bundle:
    if "bundle" not in kept:
        kept["bundle"] = train(sets, seed=1, created_unix_s=0.0)
    return kept["bundle"]


def samples_of(pool: TrainingSet, start_s: float = 0.0) -> list[Sample]:
    return [Sample(REQUESTS, f"{start_s}-{i}", start_s + i, pool.rows[i], pool.labels[i]) for i in range(len(pool))]


def observe_all(monitor: DriftMonitor, models: LearnedModels, samples: list[Sample], at_once: int) -> list[Drift]:
    return [
        drift
        for begin in range(0, len(samples), at_once)
        for drift in monitor.observe(models, samples[begin : begin + at_once])
    ]


def test_as_long_as_a_model_holds_there_is_no_alarm(bundle: Bundle, make_pool: Make) -> None:
    monitor = DriftMonitor()
    assert observe_all(monitor, LearnedModels(bundle), samples_of(make_pool(5_000, seed=30)), 50) == []
    assert monitor.levels == {}


@pytest.mark.parametrize("bias", [0.6, 1.6])
def test_a_change_is_noticed_within_some_samples_and_dated(bundle: Bundle, make_pool: Make, bias: float) -> None:
    monitor, models = DriftMonitor(), LearnedModels(bundle)
    observe_all(monitor, models, samples_of(make_pool(300, seed=31, kinds=(0,))), 10)
    drifts = observe_all(monitor, models, samples_of(make_pool(60, seed=32, kinds=(0,), bias=bias), 300.0), 1)
    assert {drift.target for drift in drifts} == set(REQUESTS.targets)
    for drift in drifts:
        assert drift.at_unix_s < 320.0
        assert 295.0 <= drift.since_unix_s <= 301.0
        assert drift.error > 0.1


def test_the_batch_in_which_samples_come_does_not_matter(bundle: Bundle, make_pool: Make) -> None:
    samples = samples_of(make_pool(200, seed=33, bias=1.5))
    models = LearnedModels(bundle)
    one, other = (observe_all(DriftMonitor(), models, samples, at_once) for at_once in (1, 64))
    assert sorted(map(repr, one)) == sorted(map(repr, other))
    assert len({(drift.target, drift.hardware) for drift in one}) == 6


def test_only_the_hardware_that_changed_falls_back(bundle: Bundle, make_pool: Make) -> None:
    """The fast kind's analytic model is a fifth low: after a rise by a quarter it is right, and the learned one not."""
    monitor, models = DriftMonitor(), LearnedModels(bundle)
    changed = samples_of(make_pool(200, seed=34, kinds=(0,), bias=1.25))
    same = samples_of(make_pool(200, seed=35, kinds=(1,)))
    drifts = observe_all(monitor, models, [s for pair in zip(changed, same, strict=True) for s in pair], 8)
    fast = int(hardware_keys(changed[0].row[np.newaxis, :])[0])
    assert {drift.hardware for drift in drifts} == {fast}
    assert monitor.levels[Target.TTFT, fast] is Level.ANALYTIC
    assert {hardware for _, hardware in monitor.levels} == {fast}
    fallen = models.with_levels(monitor.levels)
    assert np.isnan(fallen.predict(changed[0].row[np.newaxis, :]).mean_of(Target.TTFT)).all()
    monitor.judged()
    assert monitor.levels == {}


def test_the_previous_model_answers_if_it_errs_less(bundle: Bundle, make_pool: Make) -> None:
    """The pool changed, was learned anew, and changes back."""
    newer = train([make_pool(1_500, seed=36, bias=1.8)], 1, 1.0)
    models = LearnedModels(bundle).promoted(newer)
    monitor = DriftMonitor()
    drifts = observe_all(monitor, models, samples_of(make_pool(200, seed=37)), 10)
    assert {(drift.before, drift.after) for drift in drifts} == {(Level.CURRENT, Level.PREVIOUS)}
    assert set(monitor.levels.values()) == {Level.PREVIOUS}
    # Then that one fails as well, and the analytic model is the nearest.
    began = {(drift.target, drift.hardware): drift.since_unix_s for drift in drifts}
    odd = samples_of(make_pool(200, seed=38, kinds=(0,), bias=1.25), 300.0)
    drifts = observe_all(monitor, models, odd, 10)
    assert all(drift.since_unix_s == began[drift.target, drift.hardware] for drift in drifts)  # the first change
    assert {(drift.before, drift.after) for drift in drifts} >= {(Level.PREVIOUS, Level.ANALYTIC)}


def test_where_nobody_errs_less_the_model_stays_and_the_alarm_is_given(bundle: Bundle, make_pool: Make) -> None:
    monitor = DriftMonitor()
    drifts = observe_all(monitor, LearnedModels(bundle), samples_of(make_pool(60, seed=39, kinds=(1,), bias=1.3)), 5)
    assert drifts  # the analytic model is a third lower still
    assert {drift.after for drift in drifts} == {Level.CURRENT}
    assert len(drifts) == len({drift.target for drift in drifts})  # said once
    assert monitor.levels == {}


def test_no_estimate_is_better_than_one_that_is_wildly_wrong(bundle: Bundle, make_pool: Make) -> None:
    pool = make_pool(60, seed=40, kinds=(1,), bias=8.0)
    pool.rows[:, column_of("analytic_tpot_seconds")] = np.nan
    monitor = DriftMonitor()
    observe_all(monitor, LearnedModels(bundle), samples_of(pool), 5)
    assert {level for (target, _), level in monitor.levels.items() if target is Target.TPOT} == {Level.ANALYTIC}


def test_one_outlier_is_no_drift(bundle: Bundle, make_pool: Make) -> None:
    pool = make_pool(100, seed=41)
    pool.labels[50] *= 1_000.0
    assert observe_all(DriftMonitor(), LearnedModels(bundle), samples_of(pool), 10) == []
    assert ALARM > 4.0 * (5.0 - ALLOWED)


def test_targets_without_a_model_or_a_label_are_passed_over(make_pool: Make, bundle: Bundle) -> None:
    pool = make_pool(50, seed=42, bias=9.0)
    assert observe_all(DriftMonitor(), LearnedModels(), samples_of(pool), 10) == []
    pool.labels[:, :2] = np.nan
    drifts = observe_all(DriftMonitor(), LearnedModels(bundle), samples_of(pool), 10)
    assert {drift.target for drift in drifts} == {Target.REQUEST_ENERGY}
    assert DriftMonitor().observe(LearnedModels(bundle), []) == []


def test_models_may_be_exchanged_without_a_judgement(bundle: Bundle, make_pool: Make) -> None:
    newer = train([make_pool(1_500, seed=36, bias=1.8)], 1, 1.0)
    monitor = DriftMonitor()
    samples = samples_of(make_pool(100, seed=37))
    observe_all(monitor, LearnedModels(bundle).promoted(newer), samples, 10)
    assert set(monitor.levels.values()) == {Level.PREVIOUS}
    assert observe_all(monitor, LearnedModels(bundle), samples, 10) == []  # there is no previous one any more


def test_memory_is_bounded(bundle: Bundle, make_pool: Make) -> None:
    monitor = DriftMonitor(max_keys=5)
    pool = make_pool(40, seed=43, bias=9.0)
    pool.rows[:, column_of("accelerator")] = np.arange(40.0)
    observe_all(monitor, LearnedModels(bundle), samples_of(pool), 40)
    assert len(monitor._watches) == 5


@dataclass
class Picker:
    """What the picker does with all of it, without its processes and clocks: one request per second."""

    window: StratifiedWindow
    monitor: DriftMonitor
    schedule: TrainingSchedule
    models: LearnedModels
    trainings: int = 0

    def serve(self, samples: list[Sample]) -> list[float]:
        """Relative errors of TPOT, of whoever answered (the analytic model where none of the learned did)."""
        errors = []
        for sample in samples:
            row = sample.row[np.newaxis, :]
            predicted = self.models.predict(row).mean_of(Target.TPOT)[0]
            if np.isnan(predicted):
                predicted = row[0, column_of("analytic_tpot_seconds")]
            errors.append(abs(predicted / sample.labels[1] - 1.0))
            self._learn(sample, int(hardware_keys(row)[0]))
        return errors

    def _learn(self, sample: Sample, hardware: int) -> None:
        self.window.add(sample)
        self.schedule.sampled(hardware)
        for drift in self.monitor.observe(self.models, [sample]):
            self.schedule.drifted(drift)
            self.models = self.models.with_levels(self.monitor.levels)
        plan = self.schedule.due(sample.at_unix_s)
        if plan is None:
            return
        self.schedule.started(sample.at_unix_s)
        self.trainings += 1
        samples = self.window.training_set().without_before(plan.cuts)
        promotion = promote(self.models.current, train([samples], 1, sample.at_unix_s), [samples])
        if promotion.changed:
            self.models = self.models.promoted(promotion.bundle)
        self.monitor.judged()
        self.models = self.models.with_levels({})


@pytest.mark.slow
def test_after_a_drift_the_error_is_below_10_percent_within_1000_requests(make_pool: Make) -> None:
    policy = SchedulePolicy(min_interval_seconds=30.0)
    picker = Picker(StratifiedWindow(REQUESTS), DriftMonitor(), TrainingSchedule(policy), LearnedModels())
    picker.serve(samples_of(make_pool(2_500, seed=50)))
    before = picker.serve(samples_of(make_pool(300, seed=51), 2_500.0))
    assert np.mean(before) < 0.05
    after = picker.serve(samples_of(make_pool(1_200, seed=52, bias=1.7), 2_800.0))
    assert np.mean(after[:20]) > 0.3
    assert np.mean(after[1_000:]) < 0.05
    recovered = next(i for i in range(len(after) - 100) if np.mean(after[i : i + 100]) < 0.1)
    assert recovered < 700
    assert picker.trainings < 20


@pytest.mark.slow
def test_new_hardware_is_learned_within_1000_requests(make_pool: Make) -> None:
    picker = Picker(StratifiedWindow(REQUESTS), DriftMonitor(), TrainingSchedule(), LearnedModels())
    picker.serve(samples_of(make_pool(1_500, seed=53, kinds=(0,))))
    new = make_pool(1_200, seed=54, kinds=(1,))
    new.rows[:, [i for i, f in enumerate(REQUESTS.features) if f.name.startswith("analytic")]] = np.nan
    errors = picker.serve(samples_of(new, 1_500.0))
    assert np.mean(errors[1_000:]) < 0.1
