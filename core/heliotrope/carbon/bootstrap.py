"""Confidence intervals of totals over time by the circular block bootstrap (Politis and Romano, 1992).

Values that are close in time resemble each other: load and carbon intensity follow the day and the weather. So whole
blocks of consecutive rows are drawn with replacement, not rows (paper cleanest-grid §6: blocks of five days, 10,000
resamples). The interval says how the result varies with the times that happened to be sampled, and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
Statistic = Callable[[FloatMatrix], FloatVector]
"""From totals, (samples, columns), to one value per sample, (samples,). NaN where a value has no meaning."""

MIN_BLOCKS = 5
"""Fewer blocks carry no interval."""

_HOUR_SECONDS = 3_600.0
_DAY_SECONDS = 86_400.0
_BLOCK_SECONDS = (5.0 * _DAY_SECONDS, _DAY_SECONDS, _HOUR_SECONDS)
_ENOUGH_BLOCKS = 10
_DRAWS_AT_ONCE = 1_000_000
_MEANINGLESS_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate over all rows with its percentile interval; `low` and `high` are NaN where none can be had."""

    estimate: float
    low: float
    high: float
    confidence: float
    """Share of resamples between `low` and `high`."""
    blocks: int
    """How many blocks the rows make."""

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))


def block_bootstrap(
    values: FloatMatrix,
    statistic: Statistic,
    *,
    block_length: int = 1,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """The interval of a statistic of column totals.

    There is no interval with fewer than `MIN_BLOCKS` blocks, nor where more than 1 % of the resamples give no value.

    Args:
        values: (times, columns): what was counted in equal, consecutive stretches of time. A stretch without anything
            is a row of zeros, or blocks would join times that were far apart.
        statistic: for instance `relative_change`.
        block_length: rows of a block; 1 if rows are blocks already. Blocks wrap around at the end.
        resamples: how often as many rows as there are are drawn anew.
        seed: equal seeds give equal intervals.
        confidence: in (0, 1).
    """
    assert values.ndim == 2
    assert block_length >= 1
    assert resamples >= 1
    assert 0.0 < confidence < 1.0
    rows = values.shape[0]
    estimate = float(_evaluate(statistic, values.sum(axis=0, keepdims=True))[0])
    blocks = -(-rows // block_length)
    unknown = Interval(estimate, float("nan"), float("nan"), confidence, blocks)
    if blocks < MIN_BLOCKS or not np.isfinite(estimate):
        return unknown
    drawn = _evaluate(statistic, _resampled_totals(values, block_length, blocks, resamples, seed))
    meaningful = drawn[np.isfinite(drawn)]
    if len(meaningful) < (1.0 - _MEANINGLESS_SHARE) * resamples:
        return unknown
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(meaningful, [tail, 1.0 - tail])
    return Interval(estimate, float(low), float(high), confidence, blocks)


def block_length(rows: int, row_seconds: float) -> int:
    """Rows of a block that fits a span: five days, a day or an hour, the longest that gives at least ten blocks.

    A shorter span has blocks of one row.
    """
    for seconds in _BLOCK_SECONDS:
        if seconds >= row_seconds and rows * row_seconds >= _ENOUGH_BLOCKS * seconds:
            return round(seconds / row_seconds)
    return 1


def total(totals: FloatMatrix) -> FloatVector:
    """The total of the first column."""
    return totals[:, 0]


def ratio(totals: FloatMatrix) -> FloatVector:
    """The first column over the second, for instance grams per token."""
    return totals[:, 0] / totals[:, 1]


def difference_of_ratios(totals: FloatMatrix) -> FloatVector:
    """Columns a, b, c, d: a/b - c/d."""
    return totals[:, 0] / totals[:, 1] - totals[:, 2] / totals[:, 3]


def relative_change(totals: FloatMatrix) -> FloatVector:
    """The first column over the second, less one: -0.2 where the first is 20 % below the second."""
    return totals[:, 0] / totals[:, 1] - 1.0


def relative_change_of_ratios(totals: FloatMatrix) -> FloatVector:
    """Columns a, b, c, d: (a/b) / (c/d) - 1, for instance of grams per token in one arm against another."""
    return (totals[:, 0] / totals[:, 1]) / (totals[:, 2] / totals[:, 3]) - 1.0


def _evaluate(statistic: Statistic, totals: FloatMatrix) -> FloatVector:
    with np.errstate(divide="ignore", invalid="ignore"):
        return statistic(totals)


def _resampled_totals(values: FloatMatrix, length: int, blocks: int, resamples: int, seed: int) -> FloatMatrix:
    """(resamples, columns): totals of blocks that start anywhere; the last is cut so that every sample is as long."""
    rows = values.shape[0]
    last = rows - (blocks - 1) * length
    whole, cut = _circular_sums(values, length), _circular_sums(values, last)
    rng = np.random.default_rng(seed)
    totals = np.empty((resamples, values.shape[1]))
    step = max(1, _DRAWS_AT_ONCE // max(rows, blocks))
    for start in range(0, resamples, step):
        rows_here = slice(start, min(start + step, resamples))
        starts = rng.integers(0, rows, size=(rows_here.stop - rows_here.start, blocks))
        totals[rows_here] = _sums(starts[:, :-1], whole) + cut[starts[:, -1]]
    return totals


def _sums(starts: NDArray[np.int64], whole: FloatMatrix) -> FloatMatrix:
    """(samples, columns): the sums of the blocks that begin at the starts, the cheaper of two ways."""
    blocks = starts.shape[1]
    rows, columns = whole.shape
    if blocks * columns <= rows:
        gathered: FloatMatrix = whole[starts].sum(axis=1)
        return gathered
    return _times_drawn(starts, rows) @ whole


def _times_drawn(starts: NDArray[np.int64], rows: int) -> FloatMatrix:
    """(samples, rows): how often each row begins a block of each sample."""
    samples = len(starts)
    flat = starts + rows * np.arange(samples)[:, None]
    return np.bincount(flat.ravel(), minlength=samples * rows).reshape(samples, rows).astype(np.float64)


def _circular_sums(values: FloatMatrix, length: int) -> FloatMatrix:
    """(rows, columns): the sum of the `length` rows from each row on, around the end."""
    around = np.concatenate([values, values[: length - 1]])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(around, axis=0)])
    windows: FloatMatrix = sums[length:] - sums[:-length]
    return windows
