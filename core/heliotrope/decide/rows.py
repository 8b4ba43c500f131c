"""A decision's candidates as the rows that learned models see (`heliotrope.predict.features`)."""

import numpy as np

from heliotrope.decide.candidates import Candidates, FloatColumn, Hardware
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.model import EngineModel
from heliotrope.predict.features import FEATURE_COUNT, HardwareDescription, Matrix


def describe(hardware: Hardware | None, engine: EngineModel | None) -> HardwareDescription:
    """What is known of an endpoint's hardware: from its variant, and from its step model where it has one."""
    if hardware is None:
        return HardwareDescription()
    if engine is None:
        return HardwareDescription(
            accelerator=hardware.accelerator,
            model=hardware.model,
            role=hardware.role,
            tensor_parallel=float(hardware.accelerators),
        )
    return HardwareDescription(
        accelerator=hardware.accelerator,
        model=hardware.model,
        role=hardware.role,
        tensor_parallel=float(hardware.accelerators),
        max_num_seqs=float(engine.max_num_seqs),
        max_num_batched_tokens=float(engine.max_num_batched_tokens),
        kv_capacity_tokens=float(engine.kv_capacity_tokens),
        prefill_base_seconds=engine.prefill.base_seconds,
        prefill_seconds_per_token=engine.prefill.seconds_per_token_above,
        decode_base_seconds=engine.decode.alpha_seconds[0],
        decode_seconds_per_request=engine.decode.alpha_seconds[1],
        prefill_joules_per_token=engine.energy.prefill_joules_per_token,
        decode_base_joules=engine.energy.decode_base_joules,
        decode_joules_per_request=engine.energy.decode_joules_per_request,
        idle_watts=engine.idle_watts,
    )


def decision_rows(
    request: RequestProfile,
    candidates: Candidates,
    *,
    ttft_seconds: FloatColumn,
    tpot_seconds: FloatColumn,
    attributed_joules: FloatColumn,
    prefill_joules: FloatColumn,
) -> Matrix:
    """One row per candidate; the analytic model's estimates are NaN where it has none.

    The KV capacity is what the engine says itself, else its step model's.
    """
    from heliotrope.predict.rows import write_request_rows

    rows = np.empty((len(candidates), FEATURE_COUNT))
    write_request_rows(
        float(request.prompt_tokens),
        float(request.expected_output_tokens),
        float(request.reasoning.budget),
        float(request.reasoning.effort_rank),
        candidates.hardware_rows,
        candidates.kv_capacity_tokens,
        candidates.cached_tokens,
        candidates.running,
        candidates.waiting,
        candidates.waiting_tokens,
        candidates.oldest_waiting_seconds,
        candidates.kv_tokens,
        candidates.prefill_tokens_in_flight,
        candidates.decode_tokens_in_flight,
        candidates.prefill_duty,
        candidates.seconds_since_piece,
        candidates.recent_running,
        candidates.recent_prompt_tokens_per_second,
        candidates.waiting_squared_tokens,
        candidates.step_seconds,
        candidates.step_prefills,
        candidates.sm_clock_mhz,
        candidates.power_watts,
        ttft_seconds,
        tpot_seconds,
        attributed_joules,
        prefill_joules,
        rows,
    )
    return rows
