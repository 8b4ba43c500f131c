"""The compiled walk through forests: all rows, all targets, one call.

numba is imported on the first use, so that a process without a learned model does not pay for it (about 140 MB).
Machine code is kept in numba's cache folder where one can be written, else compiled again at every start.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.predict.features import FEATURE_COUNT, Matrix
from heliotrope.predict.forest import Derived, Forest

ZERO_THRESHOLD = float(np.float32(1e-35))
"""LightGBM's: values at most this far from 0 are 0."""
ROWS_AT_ONCE = 4
"""Walked side by side: one walk waits for memory at every step, four of them wait together."""
_CATEGORY = int(Derived.CATEGORY)

MAX_LOG_RATIO = 20.0
"""Trees that say more than e^20 times the base say nonsense; the bound keeps it finite."""

_WALK = (
    "void(float64[:, ::1], int32[::1], uint32[::1], int32[::1], uint32[::1], float64[::1], uint8[::1], uint32[::1],"
    " float64[::1], int32[::1], uint8[::1], int32[::1], int32[::1], uint32[::1], float64[:, ::1], float64[:, ::1])"
)
_FINISH = (
    "void(float64[:, ::1], float64[:, ::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[:, :, ::1],"
    " float64[:, ::1], float64[:, :, ::1])"
)


def warm_up() -> None:
    """Compile now (some seconds without a cache) instead of at the first call: what classes rows, too."""
    from heliotrope.predict.costs import kinds_of
    from heliotrope.predict.regimes import regimes_of

    _compiled()
    row = np.zeros((1, FEATURE_COUNT))
    regimes_of(row)
    kinds_of(row)


def walk(rows: Matrix, forest: Forest, begins: NDArray[np.int32]) -> NDArray[np.float64]:
    """Sums of leaves.

    Args:
        rows: (n, F) with F the number of features that the forest was checked against; contiguous.
        forest: of one or more targets, `heliotrope.predict.forest.joined`.
        begins: index of each target's first tree, and the number of trees behind the last.

    Returns:
        (targets, n rounded up to a multiple of `ROWS_AT_ONCE`), exactly LightGBM's raw predictions in the first n.
    """
    padded = -(-len(rows) // ROWS_AT_ONCE) * ROWS_AT_ONCE
    wide = np.empty((padded, forest.width + len(forest.source)))
    sums = np.empty((len(begins) - 1, padded))
    _compiled()[0](
        rows,
        begins,
        forest.roots,
        forest.depths,
        forest.feature,
        forest.threshold,
        forest.nan_right,
        forest.children,
        forest.value,
        forest.source,
        forest.derived,
        forest.bits_begin,
        forest.bits_words,
        forest.bits,
        wide,
        sums,
    )
    return sums


def finish(
    rows: Matrix,
    logs: NDArray[np.float64],
    regimes: NDArray[np.int64],
    places: NDArray[np.int64],
    columns: NDArray[np.int64],
    scales: NDArray[np.float64],
    shifts: NDArray[np.float64],
    bases: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Means, typical values, quantiles and spreads from what the trees say.

    Args:
        rows: as `walk` takes them.
        logs: as `walk` returns them, one line per model.
        regimes: of each row.
        places: of each model, its line in `out`.
        columns: of each model, the column of its analytic base, where it has no refitted one; -1: it has none.
        scales: of each model, its base where neither is known.
        shifts: (mean | typical | q90 | spread, models, regimes).
        bases: (models, n), refitted; NaN where there is none.
        out: (mean | typical | q90 | spread, targets, n), written to.
    """
    _compiled()[1](rows, logs, regimes, places, columns, scales, shifts, bases, out)


@cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    return compiled(_walk, _WALK), compiled(_finish, _FINISH)


def _finish(
    rows: Any,
    logs: Any,
    regimes: Any,
    places: Any,
    columns: Any,
    scales: Any,
    shifts: Any,
    bases: Any,
    out: Any,
) -> None:
    for model in range(len(places)):
        place, column = places[model], columns[model]
        for i in range(rows.shape[0]):
            base = bases[model, i]
            if not 0.0 < base < np.inf and column >= 0:
                base = rows[i, column]
            if not 0.0 < base < np.inf:
                base = scales[model]
            log = min(max(logs[model, i], -MAX_LOG_RATIO), MAX_LOG_RATIO)
            regime = regimes[i]
            out[0, place, i] = base * np.exp(log + shifts[0, model, regime])
            out[1, place, i] = base * np.exp(log + shifts[1, model, regime])
            out[2, place, i] = base * np.exp(log + shifts[2, model, regime])
            out[3, place, i] = shifts[3, model, regime]


def _walk(
    rows: Any,
    begins: Any,
    roots: Any,
    depths: Any,
    feature: Any,
    threshold: Any,
    nan_right: Any,
    children: Any,
    value: Any,
    source: Any,
    derived: Any,
    bits_begin: Any,
    bits_words: Any,
    bits: Any,
    wide: Any,
    sums: Any,
) -> None:
    count, width = rows.shape
    for i in range(wide.shape[0]):
        for j in range(width):
            wide[i, j] = rows[i, j] if i < count else 0.0
        for j in range(len(source)):
            x = wide[i, source[j]]
            if derived[j] == _CATEGORY:
                side = 1.0
                if -1.0 < x < 2147483648.0:
                    category = np.int64(x)
                    word = category >> 5
                    if word < bits_words[j] and (bits[bits_begin[j] + word] >> np.uint32(category & 31)) & 1:
                        side = 0.0
                wide[i, width + j] = side
            else:
                wide[i, width + j] = np.nan if abs(x) <= ZERO_THRESHOLD else x

    # Unsigned, so that no index is tested for being negative.
    one, rows_at_once = np.uint64(1), np.uint64(ROWS_AT_ONCE)
    end = np.uint64(wide.shape[0])
    for target in range(len(begins) - 1):
        sums[target, :] = 0.0
        for tree in range(begins[target], begins[target + 1]):
            root = np.uint64(roots[tree])
            row = np.uint64(0)
            while row < end:
                row1 = row + one
                row2 = row1 + one
                row3 = row2 + one
                a = b = c = d = root
                for _ in range(depths[tree]):
                    xa = wide[row, feature[a]]
                    xb = wide[row1, feature[b]]
                    xc = wide[row2, feature[c]]
                    xd = wide[row3, feature[d]]
                    ra = np.uint64(xa > threshold[a]) | (np.uint64(xa != xa) & np.uint64(nan_right[a]))
                    rb = np.uint64(xb > threshold[b]) | (np.uint64(xb != xb) & np.uint64(nan_right[b]))
                    rc = np.uint64(xc > threshold[c]) | (np.uint64(xc != xc) & np.uint64(nan_right[c]))
                    rd = np.uint64(xd > threshold[d]) | (np.uint64(xd != xd) & np.uint64(nan_right[d]))
                    a = np.uint64(children[a + a + ra])
                    b = np.uint64(children[b + b + rb])
                    c = np.uint64(children[c + c + rc])
                    d = np.uint64(children[d + d + rd])
                sums[target, row] += value[a]
                sums[target, row1] += value[b]
                sums[target, row2] += value[c]
                sums[target, row3] += value[d]
                row += rows_at_once
