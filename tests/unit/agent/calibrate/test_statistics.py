import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heliotrope_agent.calibrate.statistics import (
    chi_square_95,
    half_width,
    mean,
    parabola,
    pooled_relative_deviation,
    slope,
    student_95,
    timing_half_width,
)

NUMBERS = st.floats(-1e3, 1e3)


@pytest.mark.parametrize("degrees", [*range(1, 31)])
def test_quantiles_are_those_of_the_distributions(degrees: int) -> None:
    assert student_95(degrees) == pytest.approx(stats.t.ppf(0.95, degrees), rel=1e-4)
    assert chi_square_95(degrees) == pytest.approx(stats.chi2.ppf(0.95, degrees), rel=1e-3)


def test_an_interval_of_repeats_covers_their_mean_nine_times_in_ten() -> None:
    rng = random.Random(7)
    covered = 0
    for _ in range(4_000):
        values = [rng.gauss(10.0, 0.3) for _ in range(3)]
        covered += abs(mean(values) - 10.0) <= half_width(values)
    assert 0.88 < covered / 4_000 < 0.92


def test_one_value_has_no_interval() -> None:
    assert math.isnan(half_width([1.0]))
    assert math.isnan(pooled_relative_deviation([[1.0], [2.0]]))


@given(st.lists(NUMBERS, min_size=2, max_size=20, unique=True), NUMBERS, NUMBERS, st.randoms())
def test_a_line_is_found_again_whatever_the_weights(x: list[float], a: float, b: float, rng: random.Random) -> None:
    if max(x) - min(x) < 1e-3:
        return
    weights = [rng.uniform(0.1, 10.0) for _ in x]
    assert slope(x, [a + b * each for each in x], weights) == pytest.approx(b, abs=1e-6 + 1e-6 * abs(a))


def test_the_slope_of_a_quantity_that_speeds_up_evenly_is_its_mean_rate() -> None:
    x = [float(each) for each in range(21)]
    assert slope(x, [2.0 * each + 0.05 * each**2 for each in x], [1.0] * 21) == pytest.approx(2.0 + 0.05 * 20.0)


@pytest.mark.parametrize(("x", "weights"), [([1.0], [1.0]), ([1.0, 1.0], [1.0, 1.0]), ([1.0, 2.0], [1.0, 0.0])])
def test_no_line_goes_through_too_little(x: list[float], weights: list[float]) -> None:
    with pytest.raises(ValueError, match="line"):
        slope(x, x, weights)


def test_the_timing_interval_covers_rates_whose_points_are_off_in_time() -> None:
    rng, covered = random.Random(3), 0
    deviations = [0.1 / math.sqrt(12.0)] * 15
    for _ in range(3_000):
        true = [0.7 * i for i in range(15)]
        seen = [each + rng.uniform(-0.05, 0.05) for each in true]
        rate = slope(seen, [100.0 * each for each in true], [1.0] * 15)
        covered += abs(rate / 100.0 - 1.0) <= timing_half_width(true, deviations)
    assert 0.87 < covered / 3_000 < 0.93


@given(
    NUMBERS, NUMBERS, st.floats(0.01, 1e3), st.lists(NUMBERS, min_size=3, max_size=9, unique_by=lambda x: round(x, 1))
)
def test_a_parabola_is_found_again(a: float, b: float, c: float, x: list[float]) -> None:
    fit = parabola(x, [a + b * each + c * each**2 for each in x], [1.0] * len(x))
    minimum = -b / (2.0 * c)
    assert fit.minimum is not None
    scale = max(abs(each) for each in x) + 1.0
    assert fit.at(minimum) == pytest.approx(a - b * b / (4.0 * c), abs=1e-4 * c * (scale + abs(minimum)) ** 2 + 1e-6)


def test_a_parabola_without_a_valley_has_no_minimum() -> None:
    assert parabola([1.0, 2.0, 3.0], [0.0, 1.0, 0.0], [1.0] * 3).minimum is None


def test_noise_is_explained_and_a_kink_is_not() -> None:
    x = [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert parabola(x, [4.01, 1.0, 0.01, 0.99, 4.0], [0.01] * 5).fits
    assert not parabola(x, [0.8, 0.4, 0.0, 1.5, 3.0], [0.05] * 5).fits
    assert not parabola(x[:3], [1.0, 0.0, 1.0], [1.0] * 3).fits
