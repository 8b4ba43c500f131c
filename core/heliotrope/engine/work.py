"""What a measured span of serving did, as sums over its steps: time and energy are linear functions of them."""

import math
from dataclasses import dataclass

import numpy as np

from heliotrope.engine.leastsquares import Array
from heliotrope.engine.roofline import Architecture


@dataclass(frozen=True, slots=True)
class Work:
    """Prefill and decode steps of a span, summed."""

    prefill_tokens: tuple[float, ...] = ()
    """One entry per prefill step."""
    prefill_requests: float = 0.0
    prefill_squares: float = 0.0
    decode_steps: float = 0.0
    decode_sequences: float = 0.0
    """Σ B over the decode steps."""
    decode_sequences_squared: float = 0.0
    cached_per_sequence: float = 0.0
    """Σ K/B."""
    cached: float = 0.0
    """Σ K."""
    cached_sequences: float = 0.0
    """Σ K·B."""

    def time_features(self, knee: float) -> Array:
        """The factors of `calibration.TIME_COEFFICIENTS`."""
        below = sum(min(tokens, knee) for tokens in self.prefill_tokens)
        return np.array(
            [
                below,
                sum(self.prefill_tokens) - below,
                len(self.prefill_tokens),
                self.prefill_requests,
                self.prefill_squares,
                self.decode_steps,
                self.decode_sequences,
                self.decode_sequences_squared,
                self.cached_per_sequence,
                self.cached,
                self.cached_sequences,
            ],
            dtype=np.float64,
        )

    def flops(self, model: Architecture) -> float:
        """FLOPs on all accelerators together."""
        return model.prefill_flops(
            sum(self.prefill_tokens), self.prefill_requests, self.prefill_squares
        ) + model.decode_flops(self.decode_sequences, self.cached)

    def bytes_moved(self, model: Architecture) -> float:
        """Bytes read from the memories of all accelerators together."""
        return model.step_bytes(len(self.prefill_tokens) + self.decode_steps, self.cached)


def prefill_work(tokens: float, requests: float = 1.0, sum_squares: float | None = None) -> Work:
    """One prefill step; by default of one prompt."""
    squares = tokens * tokens if sum_squares is None else sum_squares
    return Work(prefill_tokens=(float(tokens),), prefill_requests=requests, prefill_squares=squares)


def generation_work(batch: float, prompt_tokens: float, output_tokens: float, token_budget: float) -> Work:
    """A batch of equal requests from first to last token: prefill in steps of the budget, then decode in lockstep.

    The first token comes from prefill, so there are output - 1 decode steps; in step i each sequence holds prompt + i
    tokens.
    """
    steps = output_tokens - 1.0
    cached_per_sequence = steps * prompt_tokens + steps * output_tokens / 2.0
    prompts = batch * prompt_tokens
    prefills = math.ceil(prompts / token_budget)
    return Work(
        prefill_tokens=(prompts / prefills,) * prefills,
        prefill_requests=batch,
        prefill_squares=batch * prompt_tokens * prompt_tokens,
        decode_steps=steps,
        decode_sequences=steps * batch,
        decode_sequences_squared=steps * batch * batch,
        cached_per_sequence=cached_per_sequence,
        cached=cached_per_sequence * batch,
        cached_sequences=cached_per_sequence * batch * batch,
    )


def decode_work(batch: float, cached_per_sequence: float) -> Work:
    """One decode step of sequences that hold so many tokens each."""
    return Work(
        decode_steps=1.0,
        decode_sequences=batch,
        decode_sequences_squared=batch * batch,
        cached_per_sequence=cached_per_sequence,
        cached=batch * cached_per_sequence,
        cached_sequences=batch * batch * cached_per_sequence,
    )
