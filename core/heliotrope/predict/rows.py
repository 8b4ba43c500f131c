"""The loop that builds rows of requests for `heliotrope.predict.features`.

Import it where it is first needed: see `heliotrope.compiled`. NaN is unknown.
"""

import numpy as np

from heliotrope.compiled import compiled
from heliotrope.predict.features import FEATURE_COUNT, HARDWARE_FEATURES, FloatColumn, Matrix, column_of

_HARDWARE = column_of("accelerator")
_KV_CAPACITY = column_of("kv_capacity_tokens", HARDWARE_FEATURES)
_MAX_NUM_SEQS = column_of("max_num_seqs", HARDWARE_FEATURES)


@compiled
def write_request_rows(
    prompt_tokens: float,
    expected_output_tokens: float,
    reasoning_budget_tokens: float,
    reasoning_effort: float,
    hardware: Matrix,
    kv_capacity_tokens: FloatColumn,
    cached_tokens: FloatColumn,
    running: FloatColumn,
    waiting: FloatColumn,
    waiting_tokens: FloatColumn,
    oldest_waiting_seconds: FloatColumn,
    kv_tokens: FloatColumn,
    prefill_tokens_in_flight: FloatColumn,
    decode_tokens_in_flight: FloatColumn,
    prefill_duty: FloatColumn,
    seconds_since_piece: FloatColumn,
    recent_running: FloatColumn,
    recent_prompt_tokens_per_second: FloatColumn,
    waiting_squared_tokens: FloatColumn,
    step_seconds: FloatColumn,
    step_prefills: FloatColumn,
    sm_clock_mhz: FloatColumn,
    power_watts: FloatColumn,
    analytic_ttft_seconds: FloatColumn,
    analytic_tpot_seconds: FloatColumn,
    analytic_request_joules: FloatColumn,
    analytic_prefill_joules: FloatColumn,
    rows: Matrix,
) -> None:
    """Write a row per endpoint, shape (n, F); the arguments are the fields of the inputs."""
    for i in range(rows.shape[0]):
        capacity = kv_capacity_tokens[i] if np.isfinite(kv_capacity_tokens[i]) else hardware[i, _KV_CAPACITY]
        uncached = prompt_tokens - cached_tokens[i]
        batch = running[i] + waiting[i] + 1.0
        # The cap may be unknown while the batch is not; an unknown batch stays unknown.
        batch = hardware[i, _MAX_NUM_SEQS] if batch > hardware[i, _MAX_NUM_SEQS] else batch
        rows[i, 0] = prompt_tokens
        rows[i, 1] = cached_tokens[i]
        rows[i, 2] = 0.0 if uncached < 0.0 else uncached
        rows[i, 3] = expected_output_tokens
        rows[i, 4] = reasoning_budget_tokens
        rows[i, 5] = reasoning_effort
        rows[i, 6] = running[i]
        rows[i, 7] = waiting[i]
        rows[i, 8] = waiting_tokens[i]
        rows[i, 9] = oldest_waiting_seconds[i]
        rows[i, 10] = kv_tokens[i]
        rows[i, 11] = kv_tokens[i] / capacity
        rows[i, 12] = prefill_tokens_in_flight[i]
        rows[i, 13] = decode_tokens_in_flight[i]
        rows[i, 14] = prefill_duty[i]
        rows[i, 15] = batch
        rows[i, 16] = seconds_since_piece[i]
        rows[i, 17] = recent_running[i]
        rows[i, 18] = recent_prompt_tokens_per_second[i]
        rows[i, 19] = waiting_squared_tokens[i]
        rows[i, 20] = step_seconds[i]
        rows[i, 21] = step_prefills[i]
        rows[i, 22] = sm_clock_mhz[i]
        rows[i, 23] = power_watts[i]
        rows[i, 24] = analytic_ttft_seconds[i]
        rows[i, 25] = analytic_tpot_seconds[i]
        rows[i, 26] = analytic_request_joules[i]
        rows[i, 27] = analytic_prefill_joules[i]
        for j in range(_HARDWARE, FEATURE_COUNT):
            rows[i, j] = hardware[i, j - _HARDWARE]
        rows[i, _HARDWARE + _KV_CAPACITY] = capacity
