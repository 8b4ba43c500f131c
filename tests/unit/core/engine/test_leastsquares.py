"""The solver against SciPy's, and what a prior, a held-out group and a bootstrap mean."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from heliotrope.engine import leastsquares
from heliotrope.engine.leastsquares import Array, Prior


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(8, 30), columns=st.integers(1, 8))
def test_the_solver_finds_what_scipy_finds(seed: int, rows: int, columns: int) -> None:
    random = np.random.default_rng(seed)
    matrix, target = random.normal(size=(rows, columns)), random.normal(size=rows)
    expected, _ = nnls(matrix, target)
    np.testing.assert_allclose(leastsquares.nonnegative(matrix, target), expected, atol=1e-8)


def test_a_target_that_only_negative_coefficients_reach_gives_zeros() -> None:
    matrix = np.array([[1.0, 0.5], [0.0, 1.0], [1.0, 1.0]])
    assert leastsquares.nonnegative(matrix, np.array([-1.0, -1.0, -2.0])).tolist() == [0.0, 0.0]


def _line(noise: float, prior: Prior) -> leastsquares.Fit:
    x = np.array([1.0, 2.0, 4.0, 8.0])
    design = np.column_stack([np.ones(4), x, np.zeros(4)])
    return leastsquares.fit(design, 3.0 + 0.5 * x, np.full(4, noise), prior)


WIDE = Prior(np.array([1.0, 1.0, 7.0]), np.array([10.0, 10.0, 2.0]))


def test_measurements_outweigh_a_wide_prior_and_say_so() -> None:
    fit = _line(0.01, WIDE)
    np.testing.assert_allclose(fit.coefficients[:2], [3.0, 0.5], rtol=1e-3)
    assert (fit.prior_share[:2] < 0.01).all()


def test_a_coefficient_that_nothing_measures_is_its_prior() -> None:
    fit = _line(0.01, WIDE)
    assert fit.coefficients[2] == pytest.approx(7.0)
    assert fit.prior_share[2] == pytest.approx(1.0)


def test_a_narrow_prior_outweighs_noisy_measurements() -> None:
    fit = _line(10.0, Prior(np.array([2.0, 1.0, 7.0]), np.array([0.01, 0.01, 0.01])))
    np.testing.assert_allclose(fit.coefficients, [2.0, 1.0, 7.0], rtol=1e-3)
    assert (fit.prior_share > 0.99).all()


def test_relative_errors_count_alike_whatever_the_size() -> None:
    # Two measurements of one factor, 1 and 2, at sizes 1 and 1,000: neither may win by its size.
    design, target = np.array([[1.0], [1000.0]]), np.array([1.0, 2000.0])
    fit = leastsquares.fit(design, target, np.array([0.1, 0.1]), Prior(np.array([1.0]), np.array([1e6])))
    # Minimises (x - 1)² + (x/2 - 1)²: x = 1.5 / 1.25.
    assert fit.coefficients[0] == pytest.approx(1.2)


def test_a_basis_bounds_one_coefficient_by_another() -> None:
    # Measured: x0 = 1, x1 = 9. Bound: x1 ≤ 2·x0, that is x = (y0 + y1/2, y1). The nearest such x lies on the bound.
    basis = np.array([[1.0, 0.5], [0.0, 1.0]])
    wide = Prior(np.array([1.0, 1.0]), np.array([1e6, 1e5]), basis)
    fit = leastsquares.fit(np.eye(2), np.array([1.0, 9.0]), np.array([0.1, 0.1]), wide)
    # Minimises (x0 - 1)² + (2·x0/9 - 1)² in relative errors.
    x0 = (1 + 2 / 9) / (1 + 4 / 81)
    np.testing.assert_allclose(fit.coefficients, [x0, 2 * x0], rtol=1e-6)
    inside = leastsquares.fit(np.eye(2), np.array([5.0, 9.0]), np.array([0.1, 0.1]), wide)
    np.testing.assert_allclose(inside.coefficients, [5.0, 9.0], rtol=1e-6)


def test_mape() -> None:
    assert leastsquares.mape(np.array([1.1, 1.8]), np.array([1.0, 2.0])) == pytest.approx(0.1)


def test_nobody_predicts_a_group_that_he_has_seen() -> None:
    items = [("a", 1.0), ("b", 2.0), ("a", 3.0), ("c", 4.0)]

    def mean_of_seen(seen: Sequence[tuple[str, float]], unseen: Sequence[tuple[str, float]]) -> Array:
        assert not {group for group, _ in seen} & {group for group, _ in unseen}
        return np.full(len(unseen), np.mean([value for _, value in seen]))

    predictions = leastsquares.held_out(items, lambda item: item[0], mean_of_seen)
    np.testing.assert_allclose(predictions, [3.0, 8 / 3, 3.0, 2.0])


def test_a_bootstrap_draws_within_groups_and_repeats_with_its_seed() -> None:
    items = [("small", float(i)) for i in range(20)] + [("large", 1000.0)]

    def mean(drawn: Sequence[tuple[str, float]], random: np.random.Generator) -> Array:
        assert sum(group == "large" for group, _ in drawn) == 1
        assert len(drawn) == len(items)
        return np.array([np.mean([value for group, value in drawn if group == "small"])])

    low, high = leastsquares.bootstrap(items, lambda item: item[0], mean, 300, 7)
    again, _ = leastsquares.bootstrap(items, lambda item: item[0], mean, 300, 7)
    assert low == again
    # The mean of 20 draws of 0..19 has a standard error of 1.29: 9.5 ± 1.645 × 1.29.
    assert low[0] == pytest.approx(7.4, abs=0.5)
    assert high[0] == pytest.approx(11.6, abs=0.5)


def test_a_drawn_prior_never_goes_below_zero() -> None:
    prior = Prior(np.array([0.0, 5.0]), np.array([1.0, 0.1]))
    random = np.random.default_rng(1)
    means = np.array([prior.drawn(random).mean for _ in range(200)])
    assert (means >= 0).all()
    assert (means[:, 0] == 0).mean() == pytest.approx(0.5, abs=0.1)
    assert means[:, 1].mean() == pytest.approx(5.0, abs=0.05)


def test_a_drawn_prior_keeps_its_bounds() -> None:
    basis = np.array([[1.0, 0.5], [0.0, 1.0]])
    assert Prior(np.ones(2), np.ones(2), basis).drawn(np.random.default_rng(1)).basis is basis
