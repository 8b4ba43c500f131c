import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.predict.conformal import MIN_GROUP, calibrate, conformal_quantile
from heliotrope.predict.regimes import Regime


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60))
def test_the_quantile_is_the_rank_of_split_conformal_prediction(values: list[float]) -> None:
    residuals = np.array(values)
    rank = min(math.ceil(0.9 * (len(values) + 1)), len(values))
    assert conformal_quantile(residuals, np.ones(len(values))) == sorted(values)[rank - 1]


def test_a_residual_with_a_weight_of_two_counts_as_two() -> None:
    residuals = np.arange(100.0)
    weights = np.where(residuals < 50.0, 1.0, 2.0)
    # 150 and the next one's 2 in all, so 136.8 below: 50 + 2 · 43.4
    assert conformal_quantile(residuals, weights) == 93.0


def test_coverage_holds_on_average_whatever_the_distribution() -> None:
    rng = np.random.default_rng(1)
    covered = [
        np.mean(rng.pareto(2.0, 200) <= conformal_quantile(rng.pareto(2.0, 99), np.ones(99))) for _ in range(400)
    ]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.01)


def test_regimes_have_tables_of_their_own_once_they_have_samples() -> None:
    rng = np.random.default_rng(2)
    regimes = np.repeat([Regime.BELOW, Regime.AROUND, Regime.ABOVE], [400, 400, MIN_GROUP - 1]).astype(np.int64)
    residuals = rng.normal(0.0, 1.0, len(regimes)) * np.array([np.nan, 0.01, 0.1, 1.0])[regimes]
    table = calibrate(residuals, regimes)
    assert table.residuals == (0, 400, 400, MIN_GROUP - 1)
    assert table.q90[Regime.BELOW] == pytest.approx(0.0128, rel=0.2)
    assert table.q90[Regime.AROUND] == pytest.approx(0.128, rel=0.2)
    assert table.spread[Regime.BELOW] == pytest.approx(0.01, rel=0.15)
    assert (
        table.q90[Regime.ABOVE] == table.q90[Regime.UNKNOWN] == conformal_quantile(residuals, np.ones(len(residuals)))
    )


def test_the_mean_is_the_mean_and_the_typical_value_errs_least() -> None:
    residuals = np.random.default_rng(3).normal(0.2, 0.5, 20_000)
    table = calibrate(residuals, np.full(20_000, int(Regime.BELOW)))
    assert math.exp(table.mean[Regime.BELOW]) == pytest.approx(np.exp(residuals).mean(), rel=0.02)
    observed, factors = np.exp(residuals), np.exp(np.linspace(-0.5, 0.6, 111))
    errors = [float(np.abs(factor / observed - 1.0).mean()) for factor in factors]
    best = factors[int(np.argmin(errors))]
    assert math.exp(table.typical[Regime.BELOW]) == pytest.approx(best, rel=0.02)
    # Of a log-normal distribution it is exp(mean - variance).
    assert table.typical[Regime.BELOW] == pytest.approx(0.2 - 0.25, abs=0.02)


def test_one_residual_is_enough_not_to_fail() -> None:
    table = calibrate(np.array([0.5]), np.array([1]))
    assert table.q90 == (0.5,) * 4
    assert table.spread == (0.0,) * 4


def test_what_counts_little_moves_little() -> None:
    residuals = np.concatenate([np.zeros(500), np.full(500, 2.0)])
    weights = np.concatenate([np.full(500, 1e-3), np.ones(500)])
    table = calibrate(residuals, np.ones(1_000, dtype=np.int64), weights)
    assert table.mean[Regime.BELOW] == pytest.approx(2.0, abs=0.01)
    assert table.spread[Regime.BELOW] < 0.1
