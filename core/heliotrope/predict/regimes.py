"""How loaded an endpoint is for a request: below, around or above saturation.

Errors differ by an order of magnitude between these regimes, so quantiles, strata and reports are kept by regime.
Load is the fullest of three resources: batch slots, KV space and time (prefill duty), with the request itself counted.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import FloatColumn, Matrix
from heliotrope.predict.targets import REQUESTS, Table

AROUND_FROM = 0.7
ABOVE_FROM = 1.0


class Regime(IntEnum):
    """Index into tables by regime."""

    UNKNOWN = 0
    BELOW = 1
    AROUND = 2
    ABOVE = 3


def load_of(rows: Matrix) -> FloatColumn:
    """The load of each request's row, 1.0 where slots or KV space are just used up; NaN where nothing is known."""
    from heliotrope.predict.classes import write_loads

    loads = np.empty(len(rows))
    write_loads(rows, loads)
    return loads


def regimes_of(rows: Matrix, table: Table = REQUESTS) -> NDArray[np.int64]:
    """The `Regime` of each row. Steps have one: their energy does not queue."""
    if table is not REQUESTS:
        return np.full(len(rows), int(Regime.BELOW), dtype=np.int64)
    from heliotrope.predict.classes import write_regimes

    regimes = np.empty(len(rows), dtype=np.int64)
    write_regimes(rows, AROUND_FROM, ABOVE_FROM, regimes)
    return regimes
