import pytest

from heliotrope.engine.model import ClockResponse, DecodeTime, EngineModel, ModelError, PrefillTime, StepEnergy


@pytest.fixture(scope="session")
def model() -> EngineModel:
    """Two accelerators with round numbers, every coefficient different from 0."""
    return EngineModel(
        name="round",
        model="round-model",
        accelerator="test",
        tensor_parallel=2,
        prefill=PrefillTime(
            knee_tokens=100.0,
            seconds_per_token_below=1e-5,
            seconds_per_token_above=1e-4,
            base_seconds=0.01,
            seconds_per_request=0.001,
            seconds_per_token_squared=1e-8,
        ),
        decode=DecodeTime(alpha_seconds=(0.02, 1e-4, 1e-6), beta_seconds_per_token=(1e-6, 1e-7, 1e-9)),
        energy=StepEnergy(
            prefill_base_joules=5.0,
            prefill_joules_per_token=0.05,
            prefill_joules_per_token_squared=1e-5,
            decode_base_joules=8.0,
            decode_joules_per_request=0.1,
            decode_joules_per_cached_token=1e-4,
        ),
        clock=ClockResponse(
            min_mhz=200,
            max_mhz=1000,
            step_mhz=10,
            prefill_exponent=1.0,
            decode_exponent=0.1,
            decode_knee_mhz=500,
            prefill_power_exponent=2.0,
            decode_power_exponent=1.0,
        ),
        error=ModelError(prefill_seconds=0.02, decode_seconds=0.03, step_joules=0.1),
        idle_watts=100.0,
        sleep_watts=90.0,
        host_watts=75.0,
        kv_bytes_per_token=1000,
        kv_capacity_tokens=160_000,
        block_size=16,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        clock_mhz=1000,
        unloaded_watts=60.0,
    )
