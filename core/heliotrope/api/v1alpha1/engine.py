"""The engine of a WorkloadVariant: the coefficients of `heliotrope.engine.model.EngineModel` as decimal strings.

Attribute names are those of `EngineModel`, so that `EngineModel.from_mapping` reads `coefficients.model_dump()` once
name, model, accelerator and tensor parallelism are added from the variant.
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from heliotrope.api.scalars import DecimalString
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import Decimal, Megahertz

Exponent = Annotated[float, DecimalString(maximum=5)]
RelativeError = Annotated[float, DecimalString(maximum=10)]
Seconds = Annotated[float, DecimalString(maximum=3_600)]
Polynomial = tuple[Seconds, Seconds, Seconds]


class PrefillTimeCoefficients(Struct):
    """Time of a prefill step: t = t_tok(N) + b0 + b1·B + b2·Σn², t_tok piecewise linear."""

    knee_tokens: Decimal
    """Tokens N at which the slope changes, a decimal string."""
    seconds_per_token_below: Seconds
    """Slope below the knee in seconds per token, a decimal string."""
    seconds_per_token_above: Seconds
    """Slope above the knee in seconds per token, a decimal string."""
    base_seconds: Seconds
    """b0 in seconds, a decimal string."""
    seconds_per_request: Seconds
    """b1 in seconds per prompt of the step, a decimal string."""
    seconds_per_token_squared: Seconds
    """b2 in seconds per squared token, a decimal string."""


class DecodeTimeCoefficients(Struct):
    """Time of a decode step: t = a0 + a1·B + a2·B² with a_j = alpha_j + beta_j·(K/B)."""

    alpha_seconds: Polynomial
    """alpha_0, alpha_1 and alpha_2 in seconds, decimal strings."""
    beta_seconds_per_token: Polynomial
    """beta_0, beta_1 and beta_2 in seconds per cached token, decimal strings."""


class StepEnergyCoefficients(Struct):
    """Energy of a step: prefill e0 + e_p·N + e_a·Σn², decode e0 + e_d·B + e_k·K, of the whole engine."""

    prefill_base_joules: Decimal
    """e0 of a prefill step in joules, a decimal string."""
    prefill_joules_per_token: Decimal
    """e_p in joules per token, a decimal string."""
    prefill_joules_per_token_squared: Decimal
    """e_a in joules per squared token, a decimal string."""
    decode_base_joules: Decimal
    """e0 of a decode step in joules, a decimal string."""
    decode_joules_per_request: Decimal
    """e_d in joules per sequence, a decimal string."""
    decode_joules_per_cached_token: Decimal
    """e_k in joules per cached token, a decimal string."""


class ClockResponseCoefficients(Struct):
    """How time and power follow the SM clock."""

    min_mhz: Megahertz
    """Lowest clock in MHz."""
    max_mhz: Megahertz
    """Highest clock in MHz."""
    step_mhz: Megahertz
    """Distance of selectable clocks in MHz."""
    prefill_exponent: Exponent
    """Prefill time grows as (nominal/f) to this power, a decimal string."""
    decode_exponent: Exponent
    """Decode time grows as (nominal/f) to this power, a decimal string."""
    decode_knee_mhz: Annotated[int, Field(ge=0, le=10_000)]
    """Clock below which the SMs no longer keep the memory busy and decode time also grows as knee/f, in MHz."""
    prefill_power_exponent: Exponent
    """Power above idle grows as (f/nominal) to this power in prefill, a decimal string."""
    decode_power_exponent: Exponent
    """Power above idle grows as (f/nominal) to this power in decode, a decimal string."""

    @rule("self.minMhz <= self.maxMhz", "minMhz must not exceed maxMhz", field="minMhz")
    def _ordered(self) -> bool:
        return self.min_mhz <= self.max_mhz


class ModelErrorCoefficients(Struct):
    """Mean absolute relative error of the fit on held-out points, a decimal string each ("0.05" is 5 %)."""

    prefill_seconds: RelativeError
    """Error of the prefill time."""
    decode_seconds: RelativeError
    """Error of the decode time."""
    step_joules: RelativeError
    """Error of the step energy."""


class EngineCoefficients(Struct):
    """A calibrated engine model, for an engine that no shipped profile describes."""

    prefill: PrefillTimeCoefficients
    """Time of a prefill step."""
    decode: DecodeTimeCoefficients
    """Time of a decode step."""
    energy: StepEnergyCoefficients
    """Energy of a step."""
    clock: ClockResponseCoefficients
    """How time and power follow the SM clock."""
    error: ModelErrorCoefficients
    """How far the model is off."""
    idle_watts: Decimal
    """Power of all accelerators with the model loaded and nothing in flight in watts, a decimal string."""
    sleep_watts: Decimal
    """Power of all accelerators while the engine sleeps in watts, a decimal string."""
    host_watts: Decimal
    """The engine's share of its node's host power in watts, a decimal string."""
    kv_bytes_per_token: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """KV cache of one token in bytes."""
    kv_capacity_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """Tokens whose KV cache fits into the memory that the weights leave."""
    block_size: Annotated[int, Field(ge=1, le=4_096)]
    """Tokens in a KV block."""
    max_num_seqs: Annotated[int, Field(ge=1, le=100_000)]
    """Largest batch, in sequences."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=10_000_000)]
    """Largest number of tokens in one step."""
    clock_mhz: Megahertz
    """SM clock that the coefficients hold for in MHz."""
    unloaded_watts: Decimal | None = None
    """Power of all accelerators without any process on them in watts, a decimal string; absent: unknown."""


class Engine(Struct):
    """How long steps take and what they draw: a shipped profile or coefficients, exactly one."""

    profile: (
        Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")]
        | None
    ) = None
    """Name of a shipped engine profile, for instance `llama-3.1-8b-h100`."""
    coefficients: EngineCoefficients | None = None
    """Coefficients of the analytic engine model."""
    max_num_seqs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Largest batch of this deployment in sequences (vLLM's `--max-num-seqs`); absent: that of the model above."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Largest number of tokens in one step of this deployment (vLLM's `--max-num-batched-tokens`); absent: that of
    the model above."""

    @rule("has(self.profile) != has(self.coefficients)", "set exactly one of profile, coefficients")
    def _exactly_one(self) -> bool:
        return (self.profile is None) != (self.coefficients is None)
