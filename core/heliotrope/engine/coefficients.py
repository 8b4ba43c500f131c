"""An engine model as one row of numbers, for code that goes through many endpoints at once."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heliotrope.engine.model import EngineModel


class Coefficient(IntEnum):
    """Position in a row; names as in `EngineModel` and its parts, units seconds, joules, watts and tokens."""

    KNEE_TOKENS = 0
    PREFILL_PER_TOKEN_BELOW = 1
    PREFILL_PER_TOKEN_ABOVE = 2
    PREFILL_BASE = 3
    PREFILL_PER_REQUEST = 4
    PREFILL_PER_TOKEN_SQUARED = 5
    DECODE_ALPHA_0 = 6
    DECODE_ALPHA_1 = 7
    DECODE_ALPHA_2 = 8
    DECODE_BETA_0 = 9
    DECODE_BETA_1 = 10
    DECODE_BETA_2 = 11
    PREFILL_BASE_JOULES = 12
    PREFILL_JOULES_PER_TOKEN = 13
    PREFILL_JOULES_PER_TOKEN_SQUARED = 14
    DECODE_BASE_JOULES = 15
    DECODE_JOULES_PER_REQUEST = 16
    DECODE_JOULES_PER_CACHED_TOKEN = 17
    PREFILL_ERROR = 18
    DECODE_ERROR = 19
    STEP_JOULES_ERROR = 20
    IDLE_WATTS = 21
    KV_CAPACITY_TOKENS = 22
    MAX_NUM_SEQS = 23
    MAX_NUM_BATCHED_TOKENS = 24


def unknown_coefficients() -> NDArray[np.float64]:
    """The row of an endpoint without a step model: NaN throughout."""
    return np.full(len(Coefficient), np.nan)


def coefficients(engine: EngineModel) -> NDArray[np.float64]:
    """The row of an engine, shape (C,); read-only. It changes with the engine only, so callers keep it per endpoint."""
    p, d, e, error = engine.prefill, engine.decode, engine.energy, engine.error
    row = np.array(
        [
            p.knee_tokens,
            p.seconds_per_token_below,
            p.seconds_per_token_above,
            p.base_seconds,
            p.seconds_per_request,
            p.seconds_per_token_squared,
            *d.alpha_seconds,
            *d.beta_seconds_per_token,
            e.prefill_base_joules,
            e.prefill_joules_per_token,
            e.prefill_joules_per_token_squared,
            e.decode_base_joules,
            e.decode_joules_per_request,
            e.decode_joules_per_cached_token,
            error.prefill_seconds,
            error.decode_seconds,
            error.step_joules,
            engine.idle_watts,
            engine.kv_capacity_tokens,
            engine.max_num_seqs,
            engine.max_num_batched_tokens,
        ],
        dtype=np.float64,
    )
    row.setflags(write=False)
    return row
