"""Training, judging and predicting on a pool whose laws are known."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from heliotrope.predict.bundle import EMPTY, Bundle
from heliotrope.predict.features import Group, column_of
from heliotrope.predict.models import Bases, LearnedModels, Level, hardware_keys
from heliotrope.predict.promotion import Reason, promote
from heliotrope.predict.regimes import Regime, regimes_of
from heliotrope.predict.scoring import held_out, relative_errors, scores_of
from heliotrope.predict.targets import REQUESTS, STEPS, Target
from heliotrope.predict.training import TrainingConfig, train
from heliotrope.predict.trainingset import TrainingSet

Sets = tuple[TrainingSet, TrainingSet]
Make = Callable[..., TrainingSet]


@pytest.fixture(scope="module")
def kept() -> dict[str, Bundle]:
    return {}


@pytest.fixture
def bundle(sets: Sets, kept: dict[str, Bundle]) -> Bundle:
    if "bundle" not in kept:
        kept["bundle"] = train(sets, seed=1, created_unix_s=5.0)
    return kept["bundle"]


def test_it_learns_what_the_analytic_model_gets_wrong(bundle: Bundle, make_pool: Make, make_steps: Make) -> None:
    fresh, fresh_steps = make_pool(600, seed=11), make_steps(600, seed=12)
    for target in Target:
        samples = fresh_steps if target is Target.STEP_ENERGY else fresh
        scores = scores_of(bundle, target, samples)
        assert scores.mape < 0.05, target
        assert scores.analytic_mape > 2.0 * scores.mape, target
        assert 0.86 < scores.coverage < 0.94, target


def test_the_same_input_gives_the_same_bundle(sets: Sets, bundle: Bundle) -> None:
    assert train(sets, seed=1, created_unix_s=5.0).to_text() == bundle.to_text()


def test_hardware_without_a_profile_is_served_by_the_same_model(sets: Sets, make_pool: Make) -> None:
    """The slow kind has no analytic estimates: the trees stand on the scale of its labels there."""

    def without_profile(samples: TrainingSet) -> TrainingSet:
        rows = samples.rows.copy()
        slow = rows[:, column_of("max_num_seqs")] == 64.0
        analytic = [i for i, feature in enumerate(REQUESTS.features) if feature.group is Group.ANALYTIC]
        rows[np.ix_(slow, analytic)] = np.nan
        return replace(samples, rows=rows)

    bundle = train([without_profile(sets[0])], seed=1, created_unix_s=0.0)
    fresh = without_profile(make_pool(600, seed=13))
    slow = np.isnan(fresh.rows[:, column_of("analytic_ttft_seconds")])
    assert 200 < slow.sum() < 400
    assert scores_of(bundle, Target.TPOT, fresh.where(slow)).mape < 0.08
    assert scores_of(bundle, Target.TPOT, fresh.where(~slow)).mape < 0.05
    assert scores_of(bundle, Target.REQUEST_ENERGY, fresh.where(slow)).mape < 0.3


def test_where_no_costs_were_fitted_the_analytic_estimate_is_the_base(bundle: Bundle, make_pool: Make) -> None:
    rows = make_pool(40, seed=21).rows
    energy, clock = column_of("analytic_request_joules"), column_of("sm_clock_mhz")
    doubled, elsewhere = rows.copy(), rows.copy()
    elsewhere[:, clock] = 990.0  # no sample had this one
    doubled[:, energy] *= 2.0
    doubled[:, clock] = 990.0
    there, twice, unknown = (
        LearnedModels(bundle).predict(each).mean_of(Target.REQUEST_ENERGY)
        for each in (elsewhere, doubled, np.where(np.arange(rows.shape[1]) == energy, np.nan, rows))
    )
    assert np.median(twice / there) > 1.5
    known = LearnedModels(bundle).predict(rows).mean_of(Target.REQUEST_ENERGY)
    assert np.median(np.abs(unknown / known - 1.0)) < 0.2


def test_groups_can_be_left_out(sets: Sets, bundle: Bundle, make_pool: Make) -> None:
    blind = train([sets[0]], 1, 0.0, TrainingConfig(without=frozenset({Group.HARDWARE, Group.ANALYTIC, Group.POWER})))
    fresh = make_pool(400, seed=14)
    assert not any(model.analytic_base for model in blind.models.values())
    assert scores_of(blind, Target.TPOT, fresh).mape > 2.0 * scores_of(bundle, Target.TPOT, fresh).mape
    changed = fresh.rows.copy()
    changed[:, column_of("idle_watts")] = 1e6
    changed[:, column_of("analytic_tpot_seconds")] = 1e6
    predictions = [LearnedModels(blind).predict(rows).mean for rows in (fresh.rows, changed)]
    np.testing.assert_array_equal(*predictions)


def test_too_few_samples_give_no_model(make_pool: Make) -> None:
    few = make_pool(100, seed=3)
    assert train([few], 1, 0.0).models == {}
    unlabelled = replace(few, labels=np.full_like(few.labels, np.nan))
    assert train([unlabelled], 1, 0.0, TrainingConfig(min_train=1, min_calibrate=1)).models == {}


def test_recent_samples_can_count_more(make_pool: Make) -> None:
    before, after = make_pool(1_000, seed=4), make_pool(200, seed=5, bias=2.0)
    both = TrainingSet(
        REQUESTS,
        np.concatenate([before.rows, after.rows]),
        np.concatenate([before.labels, after.labels]),
        np.concatenate([before.at_unix_s, after.at_unix_s + 1_000.0]),
        np.concatenate([before.splits, after.splits]),
    )
    fresh = make_pool(200, seed=6, bias=2.0)
    errors = [
        scores_of(train([both], 1, 0.0, TrainingConfig(half_life_seconds=half)), Target.TPOT, fresh).mape
        for half in (None, 30.0)
    ]
    assert errors[1] < 0.7 * errors[0]


def test_a_first_candidate_is_promoted_where_it_beats_the_analytic_model(sets: Sets, bundle: Bundle) -> None:
    promotion = promote(EMPTY, bundle, sets)
    assert promotion.changed
    assert promotion.bundle.models == bundle.models
    assert {v.reason for v in promotion.verdicts.values()} == {Reason.BETTER}
    assert all(v.candidate_where_analytic < v.candidate.analytic_mape for v in promotion.verdicts.values())


def test_a_target_whose_analytic_model_is_right_stays_analytic(make_pool: Make) -> None:
    exact = make_pool(1_000, seed=7)
    labels = exact.labels.copy()
    labels[:, 1] = exact.rows[:, column_of("analytic_tpot_seconds")]
    exact = replace(exact, labels=labels)
    promotion = promote(EMPTY, train([exact], 1, 0.0), [exact])
    verdict = promotion.verdicts[Target.TPOT]
    assert (verdict.promoted, verdict.reason, verdict.answers) == (False, Reason.WORSE_THAN_ANALYTIC, "analytic")
    assert promotion.bundle.models.keys() == {Target.TTFT, Target.REQUEST_ENERGY}


def test_a_worse_candidate_leaves_the_incumbent(sets: Sets, bundle: Bundle) -> None:
    requests = sets[:1]
    promotion = promote(bundle, train(requests, 1, 6.0, TrainingConfig(trees=2)), requests)
    assert not promotion.changed
    assert promotion.bundle is bundle
    assert {v.reason for v in promotion.verdicts.values()} <= {Reason.WORSE_THAN_INCUMBENT, Reason.WORSE_THAN_ANALYTIC}
    assert {v.answers for v in promotion.verdicts.values()} == {"incumbent"}


def test_an_equal_candidate_is_not_worth_a_swap(sets: Sets, bundle: Bundle) -> None:
    promotion = promote(bundle, train(sets, 1, 6.0), sets)
    assert promotion.bundle is bundle


def test_a_quantile_that_does_not_hold_is_not_promoted(sets: Sets, bundle: Bundle) -> None:
    model = bundle.models[Target.TPOT]
    loose = replace(model.calibration, q90=tuple(q + 1.0 for q in model.calibration.q90))
    candidate = Bundle(6.0, {Target.TPOT: replace(model, calibration=loose)})
    verdict = promote(EMPTY, candidate, sets).verdicts[Target.TPOT]
    assert (verdict.reason, verdict.answers) == (Reason.COVERAGE, "analytic")
    assert verdict.candidate.coverage == 1.0
    # …and an incumbent whose quantile no longer holds goes for one whose does.
    swapped = promote(candidate, bundle, sets)
    assert swapped.verdicts[Target.TPOT].reason is Reason.BETTER_COVERAGE
    assert swapped.bundle.models[Target.TPOT] is model


def test_an_incumbent_that_has_become_worse_than_the_analytic_model_is_dropped(bundle: Bundle, make_pool: Make) -> None:
    fixed = make_pool(400, seed=8)
    fixed = replace(fixed, labels=fixed.rows[:, [column_of(f"analytic_{t}") for t in REQUESTS.targets]])
    promotion = promote(bundle, EMPTY, [fixed])
    assert promotion.changed
    assert promotion.bundle.models.keys() == {Target.STEP_ENERGY}  # nothing was said of steps
    assert {v.answers for v in promotion.verdicts.values()} == {"analytic"}


def test_too_few_to_judge_changes_nothing(bundle: Bundle, sets: Sets, make_pool: Make) -> None:
    promotion = promote(bundle, bundle, [make_pool(40, seed=9)])
    assert promotion.bundle is bundle
    assert {v.reason for v in promotion.verdicts.values()} == {Reason.TOO_FEW_TEST_SAMPLES}
    first = promote(EMPTY, bundle, [make_pool(40, seed=9)])
    assert (first.bundle is EMPTY, first.changed) == (True, False)


def test_quantiles_hold_in_every_regime(bundle: Bundle, make_pool: Make) -> None:
    fresh = make_pool(2_000, seed=15)
    regimes = regimes_of(fresh.rows)
    predictions = LearnedModels(bundle).predict(fresh.rows)
    for regime in (Regime.BELOW, Regime.AROUND):
        there = regimes == regime
        assert there.sum() > 200
        for target in REQUESTS.targets:
            covered = np.mean(fresh.labels_of(target)[there] <= predictions.q90_of(target)[there])
            assert covered == pytest.approx(0.9, abs=0.09)  # three deviations of some 90 residuals


def test_without_models_nothing_is_predicted_and_nothing_compiled(make_pool: Make) -> None:
    rows = make_pool(3, seed=1).rows
    models = LearnedModels()
    models.warm_up()
    assert models.targets == frozenset()
    predictions = models.predict(rows)
    assert predictions.mean.shape == (3, 3)
    assert np.isnan(predictions.mean).all()
    assert np.isnan(predictions.q90).all()
    assert models.predict(rows[:0]).mean.shape == (3, 0)


def test_unknown_columns_do_not_make_predictions_unknown(bundle: Bundle, make_pool: Make) -> None:
    rows = np.full_like(make_pool(5, seed=1).rows, np.nan)
    predictions = LearnedModels(bundle).predict(rows)
    assert np.isfinite(predictions.mean).all()
    assert (predictions.mean > 0.0).all()


def test_a_prediction_is_the_base_times_the_exponential_of_the_trees(bundle: Bundle, make_pool: Make) -> None:
    """By hand, with LightGBM's own prediction."""
    import lightgbm

    fresh = make_pool(70, seed=16)
    regimes = regimes_of(fresh.rows)
    predictions = LearnedModels(bundle).predict(fresh.rows)
    for target in REQUESTS.targets:
        model = bundle.models[target]
        logs = lightgbm.Booster(model_str=model.text).predict(fresh.rows)
        base = Bases([(target, model.costs)]).of(fresh.rows)[0]
        base = np.where(np.isnan(base), fresh.rows[:, column_of(f"analytic_{target}")], base)
        for values, table in (
            (predictions.mean_of(target), model.calibration.mean),
            (predictions.typical_of(target), model.calibration.typical),
            (predictions.q90_of(target), model.calibration.q90),
        ):
            np.testing.assert_allclose(values, base * np.exp(logs + np.array(table)[regimes]), rtol=1e-12)
        np.testing.assert_array_equal(
            predictions.relative_error_of(target), np.array(model.calibration.spread)[regimes]
        )


def test_a_fall_back_holds_for_its_target_and_hardware_only(bundle: Bundle, sets: Sets, make_pool: Make) -> None:
    older = train(sets, 1, 0.0, TrainingConfig(trees=3))
    rows = make_pool(40, seed=17).rows
    keys = hardware_keys(rows)
    fast, slow = np.unique(keys)
    models = LearnedModels(older).promoted(bundle)
    assert models.previous is older
    plain = models.predict(rows)
    levels = {(Target.TTFT, int(fast)): Level.PREVIOUS, (Target.TPOT, int(slow)): Level.ANALYTIC}
    fallen = models.with_levels(levels)
    assert models.levels == {}
    got = fallen.predict(rows)
    before = LearnedModels(older).predict(rows)
    at_fast = keys == fast
    np.testing.assert_array_equal(got.mean_of(Target.TTFT)[at_fast], before.mean_of(Target.TTFT)[at_fast])
    np.testing.assert_array_equal(got.typical_of(Target.TTFT)[at_fast], before.typical_of(Target.TTFT)[at_fast])
    np.testing.assert_array_equal(got.q90_of(Target.TTFT)[at_fast], before.q90_of(Target.TTFT)[at_fast])
    np.testing.assert_array_equal(got.mean_of(Target.TTFT)[~at_fast], plain.mean_of(Target.TTFT)[~at_fast])
    assert np.isnan(got.mean_of(Target.TPOT)[~at_fast]).all()
    np.testing.assert_array_equal(got.mean_of(Target.TPOT)[at_fast], plain.mean_of(Target.TPOT)[at_fast])
    np.testing.assert_array_equal(got.mean_of(Target.REQUEST_ENERGY), plain.mean_of(Target.REQUEST_ENERGY))
    assert fallen.promoted(bundle).levels == {}
    for each in (models, fallen, LearnedModels(), LearnedModels(older)):
        whole, part = each.predict(rows), each.predict(rows, {Target.TTFT: 5, Target.TPOT: 0})
        np.testing.assert_array_equal(part.mean_of(Target.REQUEST_ENERGY), whole.mean_of(Target.REQUEST_ENERGY))
        np.testing.assert_array_equal(part.q90_of(Target.TTFT)[:5], whole.q90_of(Target.TTFT)[:5])
        assert np.isnan(part.mean_of(Target.TTFT)[5:]).all()
        assert np.isnan(part.mean_of(Target.TPOT)).all()


def test_steps_are_predicted_from_their_own_rows(bundle: Bundle, make_steps: Make) -> None:
    samples = held_out(make_steps(400, seed=18), Target.STEP_ENERGY)
    predictions = LearnedModels(bundle).predict_steps(samples.rows)
    assert predictions.targets == STEPS.targets
    errors = relative_errors(predictions.mean_of(Target.STEP_ENERGY), samples.labels[:, 0])
    assert errors.mean() < 0.04
