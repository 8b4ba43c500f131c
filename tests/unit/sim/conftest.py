import pytest

from heliotrope.engine.model import ClockResponse, DecodeTime, EngineModel, ModelError, PrefillTime, StepEnergy


@pytest.fixture(scope="session")
def model() -> EngineModel:
    """A small engine with numbers of its own: 40 KV blocks of 4 tokens, a batch of 6, 32 tokens per prefill step."""
    return EngineModel(
        name="tiny",
        model="tiny-model",
        accelerator="test",
        tensor_parallel=2,
        prefill=PrefillTime(
            knee_tokens=16,
            seconds_per_token_below=1e-4,
            seconds_per_token_above=3e-4,
            base_seconds=0.01,
            seconds_per_request=5e-4,
            seconds_per_token_squared=1e-7,
        ),
        decode=DecodeTime(alpha_seconds=(0.02, 2e-4, 1e-6), beta_seconds_per_token=(1e-6, 3e-7, 1e-8)),
        energy=StepEnergy(
            prefill_base_joules=7.000000000003,
            prefill_joules_per_token=0.13,
            prefill_joules_per_token_squared=3e-6,
            decode_base_joules=11.000000000001,
            decode_joules_per_request=0.7,
            decode_joules_per_cached_token=0.0011,
        ),
        clock=ClockResponse(
            min_mhz=300,
            max_mhz=1200,
            step_mhz=15,
            prefill_exponent=1.0,
            decode_exponent=0.2,
            decode_knee_mhz=300,
            prefill_power_exponent=2.0,
            decode_power_exponent=1.5,
        ),
        error=ModelError(prefill_seconds=0.1, decode_seconds=0.1, step_joules=0.1),
        idle_watts=100.0,
        sleep_watts=40.0,
        host_watts=30.0,
        kv_bytes_per_token=1000,
        kv_capacity_tokens=160,
        block_size=4,
        max_num_seqs=6,
        max_num_batched_tokens=32,
        clock_mhz=1200,
        unloaded_watts=20.0,
    )
