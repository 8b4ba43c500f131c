"""The work space of one call of `estimate`: columns that its steps fill in. It does not leave that call."""

from dataclasses import dataclass

import numpy as np

from heliotrope.decide.candidates import BoolColumn, FloatColumn, FloatMatrix

COLUMNS = 11


@dataclass(slots=True)
class Columns:
    """One value per candidate, NaN until somebody knows it; names as in `Estimates`."""

    table: FloatMatrix
    """The columns from `ttft` down as its lines, in this order: shape (`COLUMNS`, n)."""
    kv_fits: BoolColumn
    ttft: FloatColumn
    tpot: FloatColumn
    queue_ttft: FloatColumn
    ttft_error: FloatColumn
    tpot_error: FloatColumn
    energy: FloatColumn
    energy_error: FloatColumn
    incremental: FloatColumn
    attributed: FloatColumn
    prefill_joules: FloatColumn
    batch: FloatColumn

    @classmethod
    def unknown(cls, n: int) -> "Columns":
        """Nothing is known of n candidates."""
        table = np.empty((COLUMNS, n))
        table.fill(np.nan)
        return cls(table, np.ones(n, dtype=np.bool_), *table)
