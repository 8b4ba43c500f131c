import numpy as np
import pytest

from heliotrope.carbon.bootstrap import (
    MIN_BLOCKS,
    block_bootstrap,
    block_length,
    difference_of_ratios,
    ratio,
    relative_change,
    relative_change_of_ratios,
    total,
)


def series(rows: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).gamma(4.0, 2.0, size=(rows, 4))


def naive(values: np.ndarray, length: int, resamples: int, seed: int) -> np.ndarray:
    """The same draws, block by block and row by row."""
    rows = len(values)
    blocks = -(-rows // length)
    rng = np.random.default_rng(seed)
    totals = []
    for starts in rng.integers(0, rows, size=(resamples, blocks)):
        picked = [(start + k) % rows for start in starts for k in range(length)][:rows]
        totals.append(values[picked].sum(axis=0))
    return np.array(totals)


@pytest.mark.parametrize(("rows", "length"), [(20, 1), (20, 4), (23, 4), (24, 3)])
def test_interval_is_the_percentile_interval_of_circular_blocks(rows: int, length: int) -> None:
    values = series(rows)
    interval = block_bootstrap(values, ratio, block_length=length, resamples=300, seed=5, confidence=0.9)
    drawn = naive(values, length, 300, 5)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.05, 0.95])
    assert interval.estimate == pytest.approx(values[:, 0].sum() / values[:, 1].sum())
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.blocks == -(-rows // length)


def test_equal_seeds_give_equal_intervals_and_others_do_not() -> None:
    values = series(50)
    first, again = (block_bootstrap(values, ratio, block_length=5, seed=3) for _ in range(2))
    assert first == again
    assert first != block_bootstrap(values, ratio, block_length=5, seed=4)


def test_independent_rows_give_the_interval_of_the_normal_theory() -> None:
    values = np.random.default_rng(2).normal(10.0, 2.0, size=(400, 1))
    interval = block_bootstrap(values, total, confidence=0.95)
    half = 1.96 * 2.0 * np.sqrt(400)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.1)


def test_longer_blocks_widen_the_interval_of_correlated_rows() -> None:
    rng = np.random.default_rng(3)
    noise, rows = rng.normal(size=2_000), []
    level = 0.0
    for step in noise:
        level = 0.95 * level + step
        rows.append([level + 50.0])
    values = np.array(rows)
    widths = [(i := block_bootstrap(values, total, block_length=length)).high - i.low for length in (1, 100)]
    assert widths[1] > 2.0 * widths[0]


def test_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    hits = 0
    for trial in range(100):
        values = np.column_stack([rng.gamma(4.0, 1.0, 100), np.ones(100)])
        interval = block_bootstrap(values, ratio, resamples=400, seed=trial, confidence=0.9)
        hits += interval.low <= 4.0 <= interval.high
    assert 80 <= hits <= 97


def test_few_blocks_carry_no_interval() -> None:
    interval = block_bootstrap(series(MIN_BLOCKS * 3 - 3), ratio, block_length=3)
    assert np.isfinite(interval.estimate)
    assert not interval.known
    assert np.isnan(interval.low)
    assert block_bootstrap(series(MIN_BLOCKS * 3), ratio, block_length=3).known


def test_a_statistic_without_meaning_is_unknown_and_does_not_warn() -> None:
    values = np.zeros((20, 2))
    assert np.isnan(block_bootstrap(values, ratio).estimate)
    values[0] = 1.0  # two thirds of the resamples draw it, the others are 0 / 0
    interval = block_bootstrap(values, ratio)
    assert interval.estimate == 1.0
    assert not interval.known


def test_an_empty_matrix_is_unknown() -> None:
    assert not block_bootstrap(np.empty((0, 2)), ratio).known


@pytest.mark.parametrize(
    ("rows", "seconds", "expected"),
    [
        (24 * 365, 3600.0, 120),  # a year of hours: 73 blocks of five days
        (24 * 20, 3600.0, 24),  # twenty days: days
        (12 * 24, 300.0, 12),  # a day of five minutes: hours
        (12, 300.0, 1),  # an hour: five minutes
        (0, 300.0, 1),
    ],
)
def test_blocks_fit_the_span(rows: int, seconds: float, expected: int) -> None:
    assert block_length(rows, seconds) == expected


def test_statistics() -> None:
    totals = np.array([[8.0, 4.0, 5.0, 2.0]])
    assert total(totals)[0] == 8.0
    assert ratio(totals)[0] == 2.0
    assert relative_change(totals)[0] == 1.0
    assert difference_of_ratios(totals)[0] == -0.5
    assert relative_change_of_ratios(totals)[0] == pytest.approx(-0.2)


def test_ten_thousand_resamples_of_a_year_are_drawn_in_bounded_memory() -> None:
    interval = block_bootstrap(series(8_760), relative_change_of_ratios, block_length=120)
    assert interval.known
    assert interval.blocks == 73
