"""What a unit of an engine's work draws: from its profile, refined by what its counters show.

The joules of an interval are taken to be linear in the work done in it (the step energies of `EngineModel`, summed
over steps):

    E ≈ w · (prompts, prompt tokens, Σ(q² − p²), decode steps, decoded tokens, Σ cached tokens) + P_idle · t_idle

with w ≥ 0 and the last sum over the decode steps. A profile, or a generic guess, is the prior; intervals add to the
normal equations and fade with the work that comes after them.
"""

from dataclasses import dataclass, fields
from math import exp, isfinite

import numpy as np

from heliotrope.engine.leastsquares import Array, Prior, nonnegative
from heliotrope.engine.model import EngineModel


@dataclass(frozen=True, slots=True)
class WorkWeights:
    """Joules per unit of work, all accelerators of the engine together."""

    prompt: float
    """Per prompt, whatever its length."""
    prompt_token: float
    """Per uncached prompt token."""
    prompt_square: float
    """Per unit of q² − p² of a prompt that is extended from p to q tokens."""
    step: float
    """Per decode step, shared by those who take part in it."""
    token: float
    """Per decoded token."""
    cached_token: float
    """Per token in the KV cache of a sequence and decode step."""

    def array(self) -> Array:
        """In the order of the fields."""
        return np.array([getattr(self, field.name) for field in fields(self)], dtype=np.float64)


UNITS = len(fields(WorkWeights))

_PROFILE_DEVIATION = 0.3
"""Of a coefficient from a fitted profile, relative; profiles miss step energies by about 13 % (their stated error)."""
_GENERIC_DEVIATION = 3.0
GENERIC = WorkWeights(prompt=5.0, prompt_token=0.05, prompt_square=5e-7, step=8.0, token=0.1, cached_token=2e-5)
"""Of one accelerator of the size of an H100 with a model of some 10¹⁰ parameters: an order of magnitude, no more."""
GENERIC_IDLE_WATTS = 100.0
"""Of one accelerator with a model loaded."""


@dataclass(frozen=True, slots=True)
class WeightsPrior:
    """What is believed of an engine before its counters were read."""

    weights: Prior
    idle_watts: float


def profile_prior(engine: EngineModel) -> WeightsPrior:
    """From a profile, at the clock that it holds for."""
    e = engine.energy
    mean = WorkWeights(
        prompt=e.prefill_base_joules,
        prompt_token=e.prefill_joules_per_token,
        prompt_square=e.prefill_joules_per_token_squared,
        step=e.decode_base_joules,
        token=e.decode_joules_per_request,
        cached_token=e.decode_joules_per_cached_token,
    ).array()
    floor = 1e-3 * GENERIC.array()  # a coefficient of 0 may still turn out to be something
    deviation = np.maximum(_PROFILE_DEVIATION * mean, floor)
    return WeightsPrior(Prior(mean, deviation), engine.idle_watts)


def generic_prior(accelerators: int) -> WeightsPrior:
    """Without any profile."""
    mean = GENERIC.array() * accelerators
    return WeightsPrior(Prior(mean, _GENERIC_DEVIATION * mean), GENERIC_IDLE_WATTS * accelerators)


class OnlineWeights:
    """Weights of one kind of engine, learned from intervals by non-negative regression on the prior.

    `memory_seconds` of work is how long an interval counts (by 1/e); the prior never fades. Nothing is forgotten while
    an engine has no work.
    """

    MEASUREMENT_ERROR = 0.1
    """Relative standard error of an interval of one second: work and energy are not read at the same instant."""
    IDLE_MEMORY_SECONDS = 600.0

    def __init__(self, prior: WeightsPrior, *, memory_seconds: float = 1_800.0, refit_seconds: float = 10.0) -> None:
        self._prior = prior.weights
        self._memory_seconds = memory_seconds
        self._refit_seconds = refit_seconds
        self._information = np.zeros((UNITS, UNITS))
        self._evidence = np.zeros(UNITS)
        self._since_fit = 0.0
        self._idle_seen_seconds = 0.0
        self.idle_watts = prior.idle_watts
        """Standing power without work, of all accelerators."""
        self.weights = _weights(self._prior.mean)
        self.intervals = 0
        """With work, that were learned from."""

    def idle(self, joules: float, seconds: float) -> None:
        """An interval without any work."""
        if not (isfinite(joules) and joules >= 0.0 and seconds > 0.0):
            return
        seen = min(self._idle_seen_seconds, self.IDLE_MEMORY_SECONDS)
        # The prior counts like a second of looking.
        self.idle_watts = (self.idle_watts * (seen + 1.0) + joules) / (seen + 1.0 + seconds)
        self._idle_seen_seconds = seen + seconds

    def worked(self, units: Array, joules: float, seconds: float) -> None:
        """An interval's work in the order of `WorkWeights`, the joules above idle that it took, and its busy time."""
        if not (isfinite(joules) and joules > 0.0 and seconds > 0.0 and np.isfinite(units).all() and units.any()):
            return
        keep = exp(-seconds / self._memory_seconds)
        error = self.MEASUREMENT_ERROR * max(1.0, seconds**-0.5)
        row = units * self._prior.deviation / (error * joules)
        self._information = self._information * keep + np.outer(row, row)
        self._evidence = self._evidence * keep + row / error
        self.intervals += 1
        self._since_fit += seconds
        if self._since_fit >= self._refit_seconds:
            self.refit()

    def refit(self) -> None:
        """Solve for the weights now."""
        self._since_fit = 0.0
        # |R x − R⁻ᵀ b|² has the normal equations (RᵀR) x = b; the prior is the unit matrix in its own deviations.
        root = np.linalg.cholesky(self._information + np.eye(UNITS)).astype(np.float64)
        wanted = np.linalg.solve(root, self._evidence + self._prior.mean / self._prior.deviation).astype(np.float64)
        self.weights = _weights(nonnegative(root.T, wanted) * self._prior.deviation)


def _weights(values: Array) -> WorkWeights:
    return WorkWeights(*(float(value) for value in values))
