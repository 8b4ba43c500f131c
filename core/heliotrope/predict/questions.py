"""The loops that put a forest's questions to rows. Import it where it is first needed: see `heliotrope.compiled`.

`heliotrope.predict.forest` says what the questions are. Loops run over rows innermost, over columns that lie in one
piece, without a branch: that is what makes one instruction answer for several rows. A question to which the bounds of
a column are an answer for every row, as they are to most, is put to none.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.predict.forest import SLOT_FACTOR, SLOT_SHIFT, WORD_LEAVES, Derived

ZERO_THRESHOLD = float(np.float32(1e-35))
"""LightGBM's: values at most this far from 0 are 0."""
_CATEGORY = int(Derived.CATEGORY)
_SLOT_FACTOR, _SLOT_SHIFT, _WORD_LEAVES = int(SLOT_FACTOR), int(SLOT_SHIFT), int(WORD_LEAVES)
_LAST_SLOT = _WORD_LEAVES - 1

_SIGNATURE = (
    "void(float64[:, ::1], int32[::1], int32[::1], int32[::1], int32[::1], float64[::1], uint8[::1], int32[::1],"
    " int64[::1], float64[::1], int32[::1], uint8[::1], int32[::1], int32[::1], uint32[::1], float64[:, ::1])"
)

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]


@compiled
def write_columns(
    rows: Matrix,
    source: NDArray[np.int32],
    derived: NDArray[np.uint8],
    bits_begin: NDArray[np.int32],
    bits_words: NDArray[np.int32],
    bits: NDArray[np.uint32],
    columns: Matrix,
    bounds: Matrix,
) -> None:
    """Write the rows' columns and the derived ones, and what lies within which bounds.

    Args:
        rows: shape (n, F), n above 0.
        source: of `Forest`; so are the next four.
        derived: see there.
        bits_begin: see there.
        bits_words: see there.
        bits: see there.
        columns: shape (F + derived, n), written to.
        bounds: shape (3, F + derived), written to: the least and the greatest known value of each column (infinite
            where none is known), and how many are known.
    """
    count, width = rows.shape
    low, high, known = bounds[0], bounds[1], bounds[2]
    low[:], high[:], known[:] = np.inf, -np.inf, 0.0
    for i in range(count):
        for j in range(width):
            x = rows[i, j]
            low[j] = x if x < low[j] else low[j]
            high[j] = x if x > high[j] else high[j]
            known[j] += 1.0 if x == x else 0.0
    for i in range(count):
        for j in range(width):
            columns[j, i] = rows[i, j]
    for j in range(len(source)):
        values, column = columns[source[j]], columns[width + j]
        for i in range(count):
            x = values[i]
            if derived[j] == _CATEGORY:
                side = 1.0
                if -1.0 < x < 2147483648.0:
                    category = np.int64(x)
                    word = category >> 5
                    if word < bits_words[j] and (bits[bits_begin[j] + word] >> np.uint32(category & 31)) & 1:
                        side = 0.0
                column[i] = side
            else:
                column[i] = np.nan if abs(x) <= ZERO_THRESHOLD else x
    for j in range(width, len(columns)):
        for i in range(count):
            x = columns[j, i]
            low[j] = x if x < low[j] else low[j]
            high[j] = x if x > high[j] else high[j]
            known[j] += 1.0 if x == x else 0.0


@compiled
def write_sums(
    columns: Matrix,
    bounds: Matrix,
    ends: NDArray[np.int64],
    begins: NDArray[np.int32],
    questions_end: NDArray[np.int32],
    words_end: NDArray[np.int32],
    column_of: NDArray[np.int32],
    threshold: Row,
    nan_right: NDArray[np.uint8],
    word_of: NDArray[np.int32],
    kept: NDArray[np.int64],
    value: Row,
    sums: Matrix,
) -> None:
    """Write the sum of leaves of every target and row, added in the order of the trees.

    Args:
        columns: as `write_columns` writes them; so is the next.
        bounds: see there.
        ends: of each target, how many of the first rows it is asked about.
        begins: index of each target's first tree, and the number of trees behind the last.
        questions_end: of `Forest`; so are the next seven.
        words_end: see there.
        column_of: see there.
        threshold: see there.
        nan_right: see there.
        word_of: see there.
        kept: see there.
        value: see there.
        sums: shape (targets, n), written to.
    """
    most_words = 1
    for tree in range(begins[0], begins[-1]):
        most_words = max(most_words, words_end[tree] - (words_end[tree - 1] if tree else 0))
    every = columns.shape[1]
    sets = np.empty((most_words, every), dtype=np.int64)
    for target in range(len(begins) - 1):
        total, count = sums[target], ends[target]
        total[:] = 0.0
        for tree in range(begins[target], begins[target + 1]):
            question = questions_end[tree - 1] if tree else 0
            first_word = words_end[tree - 1] if tree else 0
            words = words_end[tree] - first_word
            sets[:words] = -1
            remaining = -1
            for q in range(question, questions_end[tree]):
                # Unsigned, so that no index is tested for being negative; no views, as one costs more than a question.
                c, w, bound, left = np.uint64(column_of[q]), np.uint64(word_of[q]), threshold[q], kept[q]
                unknown = bounds[2, c] < every
                if bounds[1, c] <= bound and not (unknown and nan_right[q]):
                    continue
                if bounds[0, c] > bound and (nan_right[q] or not unknown):
                    if words == 1:
                        remaining &= left
                    else:
                        for i in range(count):
                            sets[w, i] &= left
                elif nan_right[q]:
                    for i in range(count):
                        sets[w, i] &= -1 if columns[c, i] <= bound else left
                else:
                    for i in range(count):
                        sets[w, i] &= left if columns[c, i] > bound else -1
            begin = first_word * _WORD_LEAVES
            if words == 1:
                for i in range(count):
                    leaves = sets[0, i] & remaining
                    lowest = leaves & -leaves
                    total[i] += value[np.uint64(begin + ((lowest * _SLOT_FACTOR >> _SLOT_SHIFT) & _LAST_SLOT))]
            else:
                for i in range(count):
                    word = 0
                    while not sets[word, i] & 0xFFFFFFFF:
                        word += 1
                    lowest = sets[word, i] & -sets[word, i]
                    total[i] += value[
                        begin + word * _WORD_LEAVES + ((lowest * _SLOT_FACTOR >> _SLOT_SHIFT) & _LAST_SLOT)
                    ]


@cache
def write_walk() -> Callable[..., None]:
    """The function below, compiled at the first call: some seconds without kept machine code."""
    return compiled(_write_walk, _SIGNATURE)


def _write_walk(
    rows: Any,
    begins: Any,
    questions_end: Any,
    words_end: Any,
    column_of: Any,
    threshold: Any,
    nan_right: Any,
    word_of: Any,
    kept: Any,
    value: Any,
    source: Any,
    derived: Any,
    bits_begin: Any,
    bits_words: Any,
    bits: Any,
    sums: Any,
) -> None:
    """What `heliotrope.predict.walk.walk` does."""
    columns = np.empty((rows.shape[1] + len(source), rows.shape[0]))
    ends = np.empty(len(sums), dtype=np.int64)
    ends[:] = rows.shape[0]
    bounds = np.empty((3, len(columns)))
    write_columns(rows, source, derived, bits_begin, bits_words, bits, columns, bounds)
    write_sums(
        columns,
        bounds,
        ends,
        begins,
        questions_end,
        words_end,
        column_of,
        threshold,
        nan_right,
        word_of,
        kept,
        value,
        sums,
    )
