"""How loaded an endpoint is for a request: below, around or above saturation.

Errors differ by an order of magnitude between these regimes, so quantiles, strata and reports are kept by regime.
Load is the fullest of three resources: batch slots, KV space and time (prefill duty), with the request itself counted.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import FEATURES, FloatColumn, Matrix, column_of
from heliotrope.predict.targets import REQUESTS, Table

AROUND_FROM = 0.7
ABOVE_FROM = 1.0

_RUNNING = column_of("running", FEATURES)
_WAITING = column_of("waiting", FEATURES)
_KV_USE = column_of("kv_use", FEATURES)
_DUTY = column_of("prefill_duty", FEATURES)
_MAX_NUM_SEQS = column_of("max_num_seqs", FEATURES)


class Regime(IntEnum):
    """Index into tables by regime."""

    UNKNOWN = 0
    BELOW = 1
    AROUND = 2
    ABOVE = 3


def load_of(rows: Matrix) -> FloatColumn:
    """The load of each request's row, 1.0 where slots or KV space are just used up; NaN where nothing is known."""
    columns = rows.T
    slots = (columns[_RUNNING] + columns[_WAITING] + 1.0) / columns[_MAX_NUM_SEQS]
    load: FloatColumn = np.fmax(np.fmax(slots, columns[_KV_USE]), columns[_DUTY])
    return load


def regimes_of(rows: Matrix, table: Table = REQUESTS) -> NDArray[np.int64]:
    """The `Regime` of each row. Steps have one: their energy does not queue."""
    if table is not REQUESTS:
        return np.full(len(rows), int(Regime.BELOW), dtype=np.int64)
    load = load_of(rows)
    regimes: NDArray[np.int64] = (~np.isnan(load)).astype(np.int64) + (load >= AROUND_FROM) + (load > ABOVE_FROM)
    return regimes
