"""The loop behind `heliotrope.predict.models`: what some models of a table answer, in one call.

Import it where it is first needed: see `heliotrope.compiled`. It calls compiled functions of other files.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from heliotrope.compiled import compiled
from heliotrope.predict.base import write_bases
from heliotrope.predict.classes import write_kinds, write_regimes
from heliotrope.predict.costs import CLOCK_STEP_MHZ, KIND_COLUMNS, UNKNOWN
from heliotrope.predict.questions import write_columns, write_sums
from heliotrope.predict.regimes import ABOVE_FROM, AROUND_FROM, Regime

MAX_LOG_RATIO = 20.0
"""Trees that say more than e^20 times the base say nonsense; the bound keeps it finite."""
_BELOW = int(Regime.BELOW)
_KIND_FEATURES = len(KIND_COLUMNS)

_SIGNATURE = (
    "void(float64[:, ::1], int64[::1], boolean, int32[::1], int32[::1], int32[::1], int32[::1], float64[::1],"
    " uint8[::1], int32[::1], int64[::1], float64[::1], int32[::1], uint8[::1], int32[::1], int32[::1], uint32[::1],"
    " int64[::1], int64[::1], float64[:, ::1], float64[:, ::1], int64[::1], float64[::1], float64[:, :, ::1],"
    " int64[::1], float64[:, :, ::1])"
)


@cache
def write_answers() -> Callable[..., None]:
    """The function below, compiled at the first call: some seconds without kept machine code."""
    return compiled(_write_answers, _SIGNATURE)


def _write_answers(
    rows: Any,
    ends: Any,
    queues: Any,
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
    laws: Any,
    cost_begins: Any,
    fitted_kinds: Any,
    coefficients: Any,
    analytic_columns: Any,
    scales: Any,
    factors: Any,
    places: Any,
    out: Any,
) -> None:
    """Means, typical values, quantiles and spreads.

    Args:
        rows: (n, F), n above 0.
        ends: of each model, how many of the first rows it is asked about; the others stay as they are in `out`.
        queues: whether rows are requests, which may meet a queue; else all are of the regime below saturation.
        begins: of the models' trees, as `heliotrope.predict.questions.write_sums` takes them; so are the next eight.
        questions_end: see there.
        words_end: see there.
        column_of: see there.
        threshold: see there.
        nan_right: see there.
        word_of: see there.
        kept: see there.
        value: see there.
        source: as `heliotrope.predict.questions.write_columns` takes it; so are the next four.
        derived: see there.
        bits_begin: see there.
        bits_words: see there.
        bits: see there.
        laws: of each model, as `heliotrope.predict.base.write_bases` takes them; so are the next three.
        cost_begins: see there.
        fitted_kinds: see there.
        coefficients: see there.
        analytic_columns: of each model, the column of its analytic base, where it has no refitted one; -1: none.
        scales: of each model, its base where neither is known.
        factors: (mean | typical | q90 | spread, models, regimes): of e^log and the base, and the spread itself.
        places: of each model, its line in `out`.
        out: (mean | typical | q90 | spread, targets, n), written to.
    """
    count, models = rows.shape[0], len(places)
    columns = np.empty((rows.shape[1] + len(source), count))
    bounds = np.empty((3, len(columns)))
    write_columns(rows, source, derived, bits_begin, bits_words, bits, columns, bounds)
    logs = np.empty((models, count))
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
        logs,
    )
    regimes = np.empty(count, dtype=np.int64)
    regimes[:] = _BELOW
    if queues:
        write_regimes(rows, AROUND_FROM, ABOVE_FROM, regimes)
    bases = np.empty((models, count))
    bases[:] = np.nan
    if laws.max() >= 0:
        kinds = np.empty((count, _KIND_FEATURES))
        write_kinds(rows, KIND_COLUMNS, CLOCK_STEP_MHZ, UNKNOWN, kinds)
        for model in range(models):
            one, lines, end = laws[model : model + 1], cost_begins[model : model + 2], ends[model]
            base_of = bases[model : model + 1, :end]
            write_bases(rows[:end], kinds[:end], one, lines, fitted_kinds, coefficients, base_of)
    for model in range(models):
        place, column = places[model], analytic_columns[model]
        for i in range(ends[model]):
            base = bases[model, i]
            if not 0.0 < base < np.inf and column >= 0:
                base = rows[i, column]
            if not 0.0 < base < np.inf:
                base = scales[model]
            middle = base * np.exp(min(max(logs[model, i], -MAX_LOG_RATIO), MAX_LOG_RATIO))
            regime = regimes[i]
            out[0, place, i] = middle * factors[0, model, regime]
            out[1, place, i] = middle * factors[1, model, regime]
            out[2, place, i] = middle * factors[2, model, regime]
            out[3, place, i] = factors[3, model, regime]
