"""The loops of `regimes_of` and `kinds_of`. Import it where it is first needed: see `heliotrope.compiled`."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.predict.features import Matrix, column_of

_RUNNING = column_of("running")
_WAITING = column_of("waiting")
_KV_USE = column_of("kv_use")
_DUTY = column_of("prefill_duty")
_MAX_NUM_SEQS = column_of("max_num_seqs")


@compiled
def _load(row: NDArray[np.float64]) -> float:
    load = (row[_RUNNING] + row[_WAITING] + 1.0) / row[_MAX_NUM_SEQS]
    for other in (row[_KV_USE], row[_DUTY]):
        if other > load or load != load:
            load = other
    return float(load)


@compiled
def write_loads(rows: Matrix, loads: NDArray[np.float64]) -> None:
    """Write the load of each request's row; NaN where nothing is known."""
    for i in range(rows.shape[0]):
        loads[i] = _load(rows[i])


@compiled
def write_regimes(rows: Matrix, around_from: float, above_from: float, regimes: NDArray[np.int64]) -> None:
    """Write 0 where the load is unknown, 1 below, 2 around and 3 above saturation."""
    for i in range(rows.shape[0]):
        load = _load(rows[i])
        regimes[i] = int(load == load) + int(load >= around_from) + int(load > above_from)


@compiled
def write_kinds(rows: Matrix, columns: NDArray[np.intp], clock_step_mhz: float, unknown: float, kinds: Matrix) -> None:
    """Write these columns of each row, the last rounded to multiples of the step, and NaN as `unknown`."""
    last = len(columns) - 1
    for i in range(rows.shape[0]):
        for j in range(len(columns)):
            value = rows[i, columns[j]]
            if j == last:
                value = np.rint(value / clock_step_mhz) * clock_step_mhz
            kinds[i, j] = unknown if value != value else value
