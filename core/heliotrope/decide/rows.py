"""A decision's candidates as the rows that learned models see (`heliotrope.predict.features`)."""

import numpy as np

from heliotrope.decide.candidates import Candidates, FloatColumn, Hardware
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.model import EngineModel
from heliotrope.predict.features import (
    HARDWARE_FEATURES,
    EndpointInputs,
    HardwareDescription,
    Matrix,
    RequestInputs,
    column_of,
    request_rows,
)

_KV_CAPACITY = column_of("kv_capacity_tokens", HARDWARE_FEATURES)


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
    hardware = candidates.hardware_rows.copy()
    capacity = hardware[:, _KV_CAPACITY]
    np.copyto(capacity, candidates.kv_capacity_tokens, where=np.isfinite(candidates.kv_capacity_tokens))
    return request_rows(
        RequestInputs(
            float(request.prompt_tokens),
            request.expected_output_tokens,
            request.reasoning.budget,
            request.reasoning.effort_rank,
        ),
        EndpointInputs(
            hardware=hardware,
            running=candidates.running,
            waiting=candidates.waiting,
            waiting_tokens=candidates.waiting_tokens,
            oldest_waiting_seconds=candidates.oldest_waiting_seconds,
            kv_tokens=candidates.kv_tokens,
            prefill_duty=candidates.prefill_duty,
            cached_tokens=candidates.cached_tokens,
            sm_clock_mhz=candidates.sm_clock_mhz,
            power_watts=candidates.power_watts,
            analytic_ttft_seconds=ttft_seconds,
            analytic_tpot_seconds=tpot_seconds,
            analytic_request_joules=attributed_joules,
            analytic_prefill_joules=prefill_joules,
            prefill_tokens_in_flight=candidates.prefill_tokens_in_flight,
            decode_tokens_in_flight=candidates.decode_tokens_in_flight,
            seconds_since_piece=candidates.seconds_since_piece,
            recent_running=candidates.recent_running,
            recent_prompt_tokens_per_second=candidates.recent_prompt_tokens_per_second,
            waiting_squared_tokens=candidates.waiting_squared_tokens,
            step_seconds=candidates.step_seconds,
            step_prefills=candidates.step_prefills,
        ),
    )
