"""The step costs of an engine model at its clock, as plain numbers for one engine's inner loop."""

from dataclasses import dataclass

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine.fixed_point import nanoseconds, picojoules


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What one step takes (ns) and draws (pJ), with the energy split into the terms that requests cause.

    The arithmetic is that of `EngineModel`, on scalars instead of arrays: a step costs a microsecond of ours, not
    ten. Energies are whole picojoules, so that a step's energy is exactly the sum of its parts.
    """

    knee_tokens: float
    prefill_seconds_below: float
    prefill_seconds_above: float
    prefill_seconds_base: float
    prefill_seconds_per_request: float
    prefill_seconds_per_square: float
    decode_alpha: tuple[float, float, float]
    decode_beta: tuple[float, float, float]
    prefill_base_picojoules: int
    prefill_picojoules_per_token: int
    prefill_picojoules_per_square: int
    decode_base_picojoules: int
    decode_picojoules_per_request: int
    decode_picojoules_per_cached_token: int

    @classmethod
    def of(cls, model: EngineModel) -> "StepCosts":
        """The costs of a model at the clock that its coefficients hold for."""
        p, e = model.prefill, model.energy
        return cls(
            knee_tokens=p.knee_tokens,
            prefill_seconds_below=p.seconds_per_token_below,
            prefill_seconds_above=p.seconds_per_token_above,
            prefill_seconds_base=p.base_seconds,
            prefill_seconds_per_request=p.seconds_per_request,
            prefill_seconds_per_square=p.seconds_per_token_squared,
            decode_alpha=model.decode.alpha_seconds,
            decode_beta=model.decode.beta_seconds_per_token,
            prefill_base_picojoules=picojoules(e.prefill_base_joules),
            prefill_picojoules_per_token=picojoules(e.prefill_joules_per_token),
            prefill_picojoules_per_square=picojoules(e.prefill_joules_per_token_squared),
            decode_base_picojoules=picojoules(e.decode_base_joules),
            decode_picojoules_per_request=picojoules(e.decode_joules_per_request),
            decode_picojoules_per_cached_token=picojoules(e.decode_joules_per_cached_token),
        )

    def prefill_ns(self, tokens: int, requests: int, squares: int) -> int:
        """Time of a prefill step of N tokens that belong to B prompts; `squares` is Σn² (see `EngineModel`)."""
        below = min(tokens, self.knee_tokens)
        return nanoseconds(
            self.prefill_seconds_below * below
            + self.prefill_seconds_above * (tokens - below)
            + self.prefill_seconds_base
            + self.prefill_seconds_per_request * requests
            + self.prefill_seconds_per_square * squares
        )

    def decode_ns(self, batch: int, kv_tokens: int) -> int:
        """Time of a decode step of B sequences that hold K cached tokens together."""
        a, b = self.decode_alpha, self.decode_beta
        length = kv_tokens / batch
        return nanoseconds(
            a[0] + b[0] * length + (a[1] + b[1] * length) * batch + (a[2] + b[2] * length) * batch * batch
        )
