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

from heliotrope.engine.encoder import EncoderModel
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


_PROFILE_IDLE_DEVIATION = 0.3
_GENERIC_IDLE_DEVIATION = 1.0


@dataclass(frozen=True, slots=True)
class WeightsPrior:
    """What is believed of an engine before its counters were read: a mean and a standard deviation of each."""

    weights: Prior
    """In the order of `WorkWeights`."""
    idle_watts: float
    idle_watts_deviation: float


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
    return WeightsPrior(
        Prior(mean, deviation), engine.idle_watts, _PROFILE_IDLE_DEVIATION * max(engine.idle_watts, 1.0)
    )


def generic_prior(accelerators: int) -> WeightsPrior:
    """Without any profile."""
    mean = GENERIC.array() * accelerators
    idle_watts = GENERIC_IDLE_WATTS * accelerators
    return WeightsPrior(Prior(mean, _GENERIC_DEVIATION * mean), idle_watts, _GENERIC_IDLE_DEVIATION * idle_watts)


def encoder_prior(encoder: EncoderModel, standing: WeightsPrior) -> WeightsPrior:
    """Of an engine that does nothing but encode: its prompts are images, mostly one a step.

    Args:
        encoder: what encoding draws.
        standing: what is believed of the same hardware when it serves; its idle power holds.
    """
    mean = WorkWeights(
        prompt=encoder.base_joules + encoder.joules_per_image,
        prompt_token=encoder.joules_per_token,
        prompt_square=0.0,
        step=0.0,
        token=0.0,
        cached_token=0.0,
    ).array()
    deviation = np.maximum(encoder.relative_error * mean, 1e-3 * GENERIC.array())
    return WeightsPrior(Prior(mean, deviation), standing.idle_watts, standing.idle_watts_deviation)


class OnlineWeights:
    """Weights of one kind of engine, learned from intervals by non-negative regression on the prior.

    `memory_seconds` is for how long of work an interval with work counts (by 1/e), and for how long of idling one
    without: nothing is forgotten of work while there is none. The prior never fades.
    """

    WORK_ERROR = 0.1
    """Relative standard error of an interval of one second: work and energy are not read at the same instant."""
    IDLE_ERROR = 0.02

    def __init__(self, prior: WeightsPrior, *, memory_seconds: float = 1_800.0, refit_seconds: float = 10.0) -> None:
        self._mean = np.append(prior.weights.mean, prior.idle_watts)
        self._deviation = np.append(prior.weights.deviation, prior.idle_watts_deviation)
        self._memory_seconds = memory_seconds
        self._refit_seconds = refit_seconds
        self._information = np.zeros((UNITS + 1, UNITS + 1))
        self._evidence = np.zeros(UNITS + 1)
        self._idle_information = self._idle_evidence = 0.0
        self._since_fit = refit_seconds
        self.weights = WorkWeights(*(float(value) for value in prior.weights.mean))
        self.idle_watts = prior.idle_watts
        """Standing power without work, of all accelerators."""
        self.intervals = 0
        """With work, that were learned from."""

    def idle(self, joules: float, seconds: float) -> None:
        """An interval without any work."""
        if not (isfinite(joules) and joules > 0.0 and seconds > 0.0):
            return
        keep = exp(-seconds / self._memory_seconds)
        row = seconds * float(self._deviation[-1]) / (self.IDLE_ERROR * joules)
        self._idle_information = self._idle_information * keep + row * row
        self._idle_evidence = self._idle_evidence * keep + row / self.IDLE_ERROR
        self._learned(seconds)

    def worked(self, units: Array, joules: float, seconds: float, idle_seconds: float) -> None:
        """An interval with work.

        Args:
            units: its work, in the order of `WorkWeights`.
            joules: all that it drew.
            seconds: its length.
            idle_seconds: time without work in it.
        """
        busy_s = seconds - idle_seconds
        if not (isfinite(joules) and joules > 0.0 and busy_s > 0.0 and np.isfinite(units).all() and units.any()):
            return
        keep = exp(-busy_s / self._memory_seconds)
        error = self.WORK_ERROR * max(1.0, seconds**-0.5)
        row = np.append(units, idle_seconds) * self._deviation / (error * joules)
        self._information = self._information * keep + np.outer(row, row)
        self._evidence = self._evidence * keep + row / error
        self.intervals += 1
        self._learned(seconds)

    def _learned(self, seconds: float) -> None:
        self._since_fit += seconds
        if self._since_fit >= self._refit_seconds:
            self.refit()

    def refit(self) -> None:
        """Solve for the weights now."""
        self._since_fit = 0.0
        # In units of the prior's deviations the prior is the unit matrix. With RᵀR the normal equations' matrix and b
        # their right side, |R x − R⁻ᵀ b|² has the same least point.
        information = self._information + np.eye(UNITS + 1)
        information[-1, -1] += self._idle_information
        evidence = self._evidence + self._mean / self._deviation
        evidence[-1] += self._idle_evidence
        root = np.linalg.cholesky(information).astype(np.float64)
        wanted = np.linalg.solve(root, evidence).astype(np.float64)
        *weights, idle_watts = (float(value) for value in nonnegative(root.T, wanted) * self._deviation)
        self.weights, self.idle_watts = WorkWeights(*weights), idle_watts
