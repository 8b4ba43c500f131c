"""The analytic step model of one inference engine (paper carbon-slo-tension, §III-B).

An engine is one serving process with all the accelerators of its tensor-parallel group. Times are seconds, energies
joules of all its accelerators together, without host and without PUE. Inputs may be floats or numpy arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Quantity = TypeVar("Quantity", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class PrefillTime:
    """t_pre = t_tok(N) + b0 + b1·B + b2·Σn², with t_tok piecewise linear: flat slope below the knee, steep above."""

    knee_tokens: float
    seconds_per_token_below: float
    seconds_per_token_above: float
    base_seconds: float
    seconds_per_request: float
    seconds_per_token_squared: float


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """t_dec = a0 + a1·B + a2·B², a_j = alpha_j + beta_j·(K/B); tuples are (j=0, j=1, j=2)."""

    alpha_seconds: tuple[float, float, float]
    beta_seconds_per_token: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """E_pre = e0 + e_p·N + e_a·Σn² and E_dec = e0 + e_d·B + e_k·K, in joules of the whole engine."""

    prefill_base_joules: float
    prefill_joules_per_token: float
    prefill_joules_per_token_squared: float
    decode_base_joules: float
    decode_joules_per_request: float
    decode_joules_per_cached_token: float


@dataclass(frozen=True, slots=True)
class ClockResponse:
    """How time and dynamic power follow the SM clock f: a labelled model, not a measurement.

    With x = f / nominal: prefill time × x^-prefill_exponent, decode time × x^-decode_exponent (decode is bound by
    memory, so nearly flat), power above idle × x^power_exponent. Anchors: data/mertside-dvfs.
    """

    min_mhz: int
    max_mhz: int
    step_mhz: int
    prefill_exponent: float
    decode_exponent: float
    power_exponent: float


@dataclass(frozen=True, slots=True)
class ModelError:
    """Mean absolute relative error of the fit against its held-out points (0.05 = 5 %), used as uncertainty."""

    prefill_seconds: float
    decode_seconds: float
    step_joules: float


@dataclass(frozen=True, slots=True)
class EngineModel:
    """One model on one accelerator configuration: step times, step energy, standing power and memory."""

    name: str
    model: str
    accelerator: str
    tensor_parallel: int
    prefill: PrefillTime
    decode: DecodeTime
    energy: StepEnergy
    clock: ClockResponse
    error: ModelError
    idle_watts: float
    """Power of all accelerators with the model loaded and nothing in flight."""
    sleep_watts: float
    """Power of all accelerators while the engine sleeps (weights offloaded, CUDA context alive)."""
    host_watts: float
    """This engine's share of its node's host power; drawn always."""
    kv_bytes_per_token: int
    kv_capacity_tokens: int
    """Tokens whose KV fits into what the weights leave of the memory."""
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    clock_mhz: int
    """The SM clock that the coefficients hold for."""

    def prefill_seconds(
        self, tokens: Quantity, requests: Quantity | float = 1.0, sum_squares: Quantity | None = None
    ) -> Quantity:
        """Time of one prefill step.

        Args:
            tokens: N, uncached prompt tokens in the step.
            requests: B, how many prompts they belong to.
            sum_squares: Σ n_i² over the prompts; by default one prompt, N².

        Returns:
            Seconds, of the shape of `tokens`; 0 where there are no tokens.
        """
        p = self.prefill
        squares = tokens * tokens if sum_squares is None else sum_squares
        below = np.minimum(tokens, p.knee_tokens)
        above = tokens - below
        seconds = (
            p.seconds_per_token_below * below
            + p.seconds_per_token_above * above
            + p.base_seconds
            + p.seconds_per_request * requests
            + p.seconds_per_token_squared * squares
        )
        return np.where(tokens > 0, seconds, 0.0)[()]  # type: ignore[return-value]

    def decode_seconds(self, batch: Quantity, kv_tokens: Quantity) -> Quantity:
        """Time of one decode step of B sequences that hold K cached tokens together; 0 where B is 0."""
        a, b = self.decode.alpha_seconds, self.decode.beta_seconds_per_token
        per_request = kv_tokens / np.maximum(batch, 1.0)
        seconds = (
            a[0]
            + b[0] * per_request
            + (a[1] + b[1] * per_request) * batch
            + (a[2] + b[2] * per_request) * batch * batch
        )
        return np.where(batch > 0, seconds, 0.0)[()]  # type: ignore[return-value]

    def prefill_joules(self, tokens: Quantity, sum_squares: Quantity | None = None) -> Quantity:
        """Energy of one prefill step; arguments as in `prefill_seconds`."""
        e = self.energy
        squares = tokens * tokens if sum_squares is None else sum_squares
        joules = (
            e.prefill_base_joules + e.prefill_joules_per_token * tokens + e.prefill_joules_per_token_squared * squares
        )
        return np.where(tokens > 0, joules, 0.0)[()]  # type: ignore[return-value]

    def decode_joules(self, batch: Quantity, kv_tokens: Quantity) -> Quantity:
        """Energy of one decode step; arguments as in `decode_seconds`."""
        e = self.energy
        joules = (
            e.decode_base_joules + e.decode_joules_per_request * batch + e.decode_joules_per_cached_token * kv_tokens
        )
        return np.where(batch > 0, joules, 0.0)[()]  # type: ignore[return-value]

    def at_clock(self, mhz: int) -> "EngineModel":
        """The same engine at another SM clock, by its `ClockResponse`; clamped to the device's range.

        Step energy follows power × time: above idle it scales with power and time, the idle part with time alone.
        """
        mhz = min(max(mhz, self.clock.min_mhz), self.clock.max_mhz)
        if mhz == self.clock_mhz:
            return self
        x = mhz / self.clock_mhz
        prefill_scale = x**-self.clock.prefill_exponent
        decode_scale = x**-self.clock.decode_exponent
        power_scale = x**self.clock.power_exponent
        return replace(
            self,
            clock_mhz=mhz,
            prefill=_scaled_prefill(self.prefill, prefill_scale),
            decode=_scaled_decode(self.decode, decode_scale),
            energy=self._scaled_energy(prefill_scale, decode_scale, power_scale),
        )

    def _scaled_energy(self, prefill_scale: float, decode_scale: float, power_scale: float) -> StepEnergy:
        p, d, e, idle = self.prefill, self.decode, self.energy, self.idle_watts

        def scaled(joules: float, seconds: float, time_scale: float) -> float:
            standing = idle * seconds
            return (joules - standing) * power_scale * time_scale + standing * time_scale

        return StepEnergy(
            prefill_base_joules=scaled(e.prefill_base_joules, p.base_seconds + p.seconds_per_request, prefill_scale),
            prefill_joules_per_token=scaled(e.prefill_joules_per_token, p.seconds_per_token_above, prefill_scale),
            prefill_joules_per_token_squared=scaled(
                e.prefill_joules_per_token_squared, p.seconds_per_token_squared, prefill_scale
            ),
            decode_base_joules=scaled(e.decode_base_joules, d.alpha_seconds[0], decode_scale),
            decode_joules_per_request=scaled(e.decode_joules_per_request, d.alpha_seconds[1], decode_scale),
            decode_joules_per_cached_token=scaled(
                e.decode_joules_per_cached_token, d.beta_seconds_per_token[1], decode_scale
            ),
        )

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "EngineModel":
        """Build a model from the shape that `to_mapping` writes (the profile files).

        Raises:
            KeyError, TypeError: if a coefficient is missing or unknown.
        """
        values = dict(data)
        decode = values.pop("decode")
        return cls(
            prefill=PrefillTime(**values.pop("prefill")),
            decode=DecodeTime(
                alpha_seconds=tuple(decode["alpha_seconds"]),
                beta_seconds_per_token=tuple(decode["beta_seconds_per_token"]),
            ),
            energy=StepEnergy(**values.pop("energy")),
            clock=ClockResponse(**values.pop("clock")),
            error=ModelError(**values.pop("error")),
            **values,
        )


def _scaled_prefill(p: PrefillTime, scale: float) -> PrefillTime:
    return PrefillTime(
        knee_tokens=p.knee_tokens,
        seconds_per_token_below=p.seconds_per_token_below * scale,
        seconds_per_token_above=p.seconds_per_token_above * scale,
        base_seconds=p.base_seconds * scale,
        seconds_per_request=p.seconds_per_request * scale,
        seconds_per_token_squared=p.seconds_per_token_squared * scale,
    )


def _scaled_decode(d: DecodeTime, scale: float) -> DecodeTime:
    a, b = d.alpha_seconds, d.beta_seconds_per_token
    return DecodeTime(
        alpha_seconds=(a[0] * scale, a[1] * scale, a[2] * scale),
        beta_seconds_per_token=(b[0] * scale, b[1] * scale, b[2] * scale),
    )
