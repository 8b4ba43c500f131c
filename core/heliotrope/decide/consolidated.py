"""The rows of models with each endpoint at the batch at which energy is shared. Import it where it is first needed."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.predict.features import column_of

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]

_PROMPT = column_of("prompt_tokens")
_RUNNING = column_of("running")
_BATCH = column_of("batch")
_KV_TOKENS = column_of("kv_tokens")
_KV_USE = column_of("kv_use")
_KV_CAPACITY = column_of("kv_capacity_tokens")
_ANALYTIC_JOULES = column_of("analytic_request_joules")
_NOT_WAITING = (
    column_of("waiting"),
    column_of("waiting_tokens"),
    column_of("oldest_waiting_seconds"),
    column_of("prefill_tokens_in_flight"),
)


@compiled
def write_consolidated(features: Matrix, batch: Row, energy: Row, rows: Matrix) -> None:
    """Write the same rows with nobody waiting and the batch as given.

    Args:
        features: shape (n, F), as `heliotrope.predict.features.request_rows` builds them.
        batch: this request included.
        energy: what the analytic model says at that batch.
        rows: of the shape of `features`, written to.
    """
    for i in range(features.shape[0]):
        row = rows[i]
        row[:] = features[i]
        # Each sequence holds as much as those there hold on average; where none runs, what this one brings.
        held = row[_KV_TOKENS] / row[_RUNNING] if row[_RUNNING] > 0.0 else row[_PROMPT]
        row[_RUNNING] = batch[i] - 1.0
        row[_BATCH] = batch[i]
        row[_KV_TOKENS] = held * (batch[i] - 1.0)
        row[_KV_USE] = row[_KV_TOKENS] / row[_KV_CAPACITY]
        row[_ANALYTIC_JOULES] = energy[i]
        for column in _NOT_WAITING:
            if row[column] == row[column]:
                row[column] = 0.0
