"""Loops of `heliotrope.decide.learned`: what models are asked beside, and what becomes of their answers.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown.
"""

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
def write_consolidated(features: Matrix, running: Row, waiting: Row, table: Matrix, rows: Matrix) -> None:
    """Write the rows, and behind them the same with nobody waiting and the batch at which energy is shared.

    Where the analytic model knows no such batch, the one that the request meets is put into the table.

    Args:
        features: shape (n, F), as `heliotrope.predict.features.request_rows` builds them; of the first n plans.
        running: of all plans; so is the next.
        waiting: see there.
        table: of `heliotrope.decide.columns.Columns`; its batches are changed.
        rows: shape (2 n, F), written to.
    """
    energy, batch, n = table[5], table[10], features.shape[0]
    for i in range(n):
        if batch[i] != batch[i]:
            met = running[i] + waiting[i] + 1.0
            batch[i] = 1.0 if met < 1.0 else met
        row = rows[n + i]
        for j in range(len(row)):
            rows[i, j] = row[j] = features[i, j]
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


@compiled
def write_learned(
    asked: NDArray[np.bool_],
    means: Matrix,
    relative_errors: Matrix,
    alone: int,
    waiting: Row,
    oldest_waiting_seconds: Row,
    table: Matrix,
    known: NDArray[np.bool_],
) -> None:
    """Overwrite estimates with what models say, where they say anything.

    Args:
        asked: of TTFT, TPOT and energy, whether a model answers.
        means: of the same three and the first plans, shape (3, alone or more); the energy at which it is shared stands
            behind the first of them, if it is asked for.
        relative_errors: likewise.
        alone: how many plans these are.
        waiting: of all plans; so is the next.
        oldest_waiting_seconds: see there.
        table: of `heliotrope.decide.columns.Columns`, changed.
        known: whether a model gave the estimate, shape (3, plans), false before; written to.
    """
    ttft, tpot, queue_ttft, ttft_error, tpot_error = table[0], table[1], table[2], table[3], table[4]
    energy, energy_error, incremental, attributed = table[5], table[6], table[7], table[8]
    for i in range(alone):
        if asked[0] and np.isfinite(means[0, i]):
            known[0, i] = True
            ttft[i], ttft_error[i] = means[0, i], relative_errors[0, i]
            if queue_ttft[i] != queue_ttft[i]:
                # Without a step model nobody knows the step that those who wait will share with this request: it is
                # theirs.
                queue_ttft[i] = oldest_waiting_seconds[i] + ttft[i] if waiting[i] > 0.0 else 0.0
        if asked[1] and np.isfinite(means[1, i]):
            known[1, i] = True
            tpot[i], tpot_error[i] = means[1, i], relative_errors[1, i]
        if asked[2] and np.isfinite(means[2, i]):
            known[2, i] = True
            joules = means[2, i]
            # What the fleet draws more has no label; it is off by as much as the share that has one.
            correction = joules / attributed[i] if attributed[i] > 0.0 else np.nan
            incremental[i] = incremental[i] * correction if incremental[i] == incremental[i] else joules
            attributed[i], energy[i], energy_error[i] = joules, means[2, alone + i], relative_errors[2, i]
