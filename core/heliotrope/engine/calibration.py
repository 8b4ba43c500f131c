"""Fits an `EngineModel` to measurements, on top of roofline priors.

Times come from prefill steps and from whole generations; power from energies of runs whose time, FLOPs and memory
traffic are known. Public measurements are few, so every coefficient starts at what the hardware's data sheet implies
and moves only as far as the measurements pull it; `Fit.prior_share` tells how far that was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from heliotrope.engine import leastsquares
from heliotrope.engine.leastsquares import Array, Fit, Prior
from heliotrope.engine.model import ClockResponse, DecodeTime, EngineModel, ModelError, PrefillTime, StepEnergy
from heliotrope.engine.roofline import Accelerator, Architecture
from heliotrope.engine.work import Work, decode_work, prefill_work

TIME_COEFFICIENTS = (
    "prefill.seconds_per_token_below",
    "prefill.seconds_per_token_above",
    "prefill.base_seconds",
    "prefill.seconds_per_request",
    "prefill.seconds_per_token_squared",
    "decode.alpha_seconds[0]",
    "decode.alpha_seconds[1]",
    "decode.alpha_seconds[2]",
    "decode.beta_seconds_per_token[0]",
    "decode.beta_seconds_per_token[1]",
    "decode.beta_seconds_per_token[2]",
)
POWER_COEFFICIENTS = ("active_watts", "joules_per_flop", "joules_per_byte")
ENERGY_COEFFICIENTS = (
    "energy.prefill_base_joules",
    "energy.prefill_joules_per_token",
    "energy.prefill_joules_per_token_squared",
    "energy.decode_base_joules",
    "energy.decode_joules_per_request",
    "energy.decode_joules_per_cached_token",
)
KNEES = tuple(float(n) for n in (48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512))
"""Knees of t_tok that the fit tries, in tokens."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A measured duration. Points of one group are held out together; `phase` says which error they count for."""

    group: str
    phase: Literal["prefill", "decode"]
    work: Work
    seconds: float
    noise: float
    """Relative standard error, systematic differences between sources included."""


@dataclass(frozen=True, slots=True)
class EnergyRun:
    """A measured energy of all accelerators, with the time they were at work and the work that was done in it."""

    group: str
    model: Architecture
    work: Work
    accelerator_seconds: float
    """Duration × number of accelerators."""
    joules: float
    noise: float

    def without_waiting(self, busy_accelerator_seconds: float, idle_watts: float) -> "EnergyRun":
        """The run as an engine would draw it that does the same work in less time.

        An engine whose host is slow leaves its accelerators waiting: that time is taken out at idle power. Without
        waiting (busy at least as long as the run) the run stays as it is.
        """
        waiting = max(0.0, self.accelerator_seconds - busy_accelerator_seconds)
        return replace(
            self,
            accelerator_seconds=self.accelerator_seconds - waiting,
            joules=self.joules - waiting * idle_watts,
        )


@dataclass(frozen=True, slots=True)
class TimeFit:
    """Step times of one engine."""

    knee_tokens: float
    fit: Fit

    def predict(self, runs: Sequence[TimedRun]) -> Array:
        """Seconds of each run."""
        return _time_design(runs, self.knee_tokens) @ self.fit.coefficients

    def seconds(self, work: Work) -> float:
        """Seconds of a span of work."""
        return float(work.time_features(self.knee_tokens) @ self.fit.coefficients)

    @property
    def prefill(self) -> PrefillTime:
        """The prefill part."""
        below, above, base, per_request, squared = (float(value) for value in self.fit.coefficients[:5])
        return PrefillTime(self.knee_tokens, below, above, base, per_request, squared)

    @property
    def decode(self) -> DecodeTime:
        """The decode part."""
        a0, a1, a2, b0, b1, b2 = (float(value) for value in self.fit.coefficients[5:])
        return DecodeTime((a0, a1, a2), (b0, b1, b2))


@dataclass(frozen=True, slots=True)
class PowerFit:
    """Energy of work on one type of accelerator: watts × time + J/FLOP × FLOPs + J/byte × bytes."""

    fit: Fit

    def predict(self, runs: Sequence[EnergyRun]) -> Array:
        """Joules of each run."""
        return _energy_design(runs) @ self.fit.coefficients

    def joules(self, accelerator_seconds: float, flops: float, bytes_moved: float) -> float:
        """Joules of a span of work."""
        return float(np.array([accelerator_seconds, flops, bytes_moved]) @ self.fit.coefficients)


def time_prior(model: Architecture, accelerator: Accelerator, tensor_parallel: int, max_batch: int) -> Prior:
    """Step times that the data sheet implies: FLOPs at 70 % of peak, bytes at 80 % of bandwidth, 3 ms on the host.

    Deviations are wide (30-100 %), so that a handful of measurements outweighs them. What none outweighs:
    up to the largest batch the time per sequence does not grow with the batch (α2 ≤ α0 / max_batch², β2 ≤ β0 /
    max_batch²), as weights are read once per step and all else at most once per sequence.

    Args:
        model: what is served.
        accelerator: on what.
        tensor_parallel: number of accelerators.
        max_batch: largest decode batch that the fit shall hold for, measured or not.
    """
    flops = 0.7 * accelerator.peak_flops * tensor_parallel
    bandwidth = 0.8 * accelerator.memory_bytes_per_second * tensor_parallel
    link = model.all_reduce_seconds_per_token(accelerator, tensor_parallel)
    per_token = 2 * model.layer_parameters / flops + link
    step = model.step_weight_bytes / bandwidth + 0.003
    per_request = 2e-4
    per_pair = model.attention_flops_per_pair / 2 / (0.5 * accelerator.peak_flops * tensor_parallel)
    per_sequence = 2 * (model.layer_parameters + model.head_parameters) / flops + link
    per_cached = model.kv_bytes_per_token / bandwidth
    # The quadratic terms and those that grow with K/B alone have no cause in the roofline: 0, give or take what adds
    # a tenth of a step to the largest batch, of sequences of 1,024 tokens. (What is a tenth at the largest batch that
    # was measured would be several steps beyond it.)
    tenth = 0.1 * step
    mean = [per_token / 3, per_token, step, per_request, per_pair, step, per_sequence, 0.0, 0.0, per_cached, 0.0]
    deviation = [
        per_token / 3,
        0.3 * per_token,
        0.5 * step,
        per_request,
        0.5 * per_pair,
        0.5 * step,
        per_sequence,
        tenth / max_batch**2,
        tenth / 1024,
        0.5 * per_cached,
        tenth / 1024 / max_batch**2,
    ]
    basis = np.eye(len(mean))
    for part in ("decode.alpha_seconds", "decode.beta_seconds_per_token"):
        constant, quadratic = (TIME_COEFFICIENTS.index(f"{part}[{power}]") for power in (0, 2))
        basis[constant, quadratic] = max_batch**2
    return Prior(np.array(mean), np.array(deviation), basis)


def power_prior(accelerator: Accelerator) -> Prior:
    """Power that the data sheet implies: the TDP is reached at 70 % of peak FLOP/s; active rest 1.5 × idle.

    Memory: 60 pJ/byte at the HBM and as much on the way to the SMs, give or take half.
    """
    active = 1.5 * accelerator.idle_watts
    per_flop = (accelerator.tdp_watts - active) / (0.7 * accelerator.peak_flops)
    per_byte = 120e-12
    return Prior(np.array([active, per_flop, per_byte]), np.array([0.3 * active, 0.3 * per_flop, 0.5 * per_byte]))


def fit_time(runs: Sequence[TimedRun], prior: Prior, knees: Sequence[float] = KNEES) -> TimeFit:
    """Fit step times; the knee is the one of `knees` under which the fit is best."""
    target = np.array([run.seconds for run in runs])
    noise = np.array([run.noise for run in runs])
    fits = [TimeFit(knee, leastsquares.fit(_time_design(runs, knee), target, noise, prior)) for knee in knees]
    return min(fits, key=lambda candidate: candidate.fit.loss)


def fit_power(runs: Sequence[EnergyRun], prior: Prior) -> PowerFit:
    """Fit the power model of one type of accelerator."""
    target = np.array([run.joules for run in runs])
    noise = np.array([run.noise for run in runs])
    return PowerFit(leastsquares.fit(_energy_design(runs), target, noise, prior))


def step_energy(
    time: TimeFit, power: PowerFit, model: Architecture, tensor_parallel: int, max_batch: int
) -> tuple[StepEnergy, float]:
    """Write time and power as the energy of steps (linear in N, Σn², B, K), and the error that this form costs.

    Args:
        time: step times of the engine.
        power: power of its accelerators.
        model: what it serves.
        tensor_parallel: number of accelerators.
        max_batch: largest decode batch that the form shall hold for.

    Returns:
        The coefficients and their mean absolute relative error on a grid of steps.
    """
    prefills = [
        prefill_work(tokens * requests, requests, tokens * tokens * requests)
        for tokens in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
        for requests in (1, 4)
    ]
    batches = [batch for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if batch <= max_batch]
    decodes = [decode_work(batch, cached) for batch in batches for cached in (64, 256, 1024, 2048, 4096)]

    def joules(work: Work) -> float:
        return power.joules(time.seconds(work) * tensor_parallel, work.flops(model), work.bytes_moved(model))

    prefill, prefill_error = _relative_fit(
        np.array([[1.0, work.prefill_tokens[0], work.prefill_squares] for work in prefills]),
        np.array([joules(work) for work in prefills]),
    )
    decode, decode_error = _relative_fit(
        np.array([[1.0, work.decode_sequences, work.cached] for work in decodes]),
        np.array([joules(work) for work in decodes]),
    )
    error = (prefill_error * len(prefills) + decode_error * len(decodes)) / (len(prefills) + len(decodes))
    return StepEnergy(*(float(value) for value in (*prefill, *decode))), error


def _relative_fit(design: Array, target: Array) -> tuple[Array, float]:
    relative = design / target[:, None]
    scale = np.linalg.norm(relative, axis=0)
    coefficients = leastsquares.nonnegative(relative / scale, np.ones(len(target))) / scale
    return coefficients, leastsquares.mape(design @ coefficients, target)


def _time_design(runs: Sequence[TimedRun], knee: float) -> Array:
    return np.array([run.work.time_features(knee) for run in runs])


def _energy_design(runs: Sequence[EnergyRun]) -> Array:
    return np.array(
        [[run.accelerator_seconds, run.work.flops(run.model), run.work.bytes_moved(run.model)] for run in runs]
    )


def clock_response(
    accelerator: Accelerator,
    decode_watts: float,
    knee_share: float,
    energy_saved: float,
    *,
    decode_exponent: float = 0.05,
) -> ClockResponse:
    """The clock model under which decode at one clock saves a given share of its energy, and no clock saves more.

    Args:
        accelerator: its clocks and standing power.
        decode_watts: power of decode at the maximum clock.
        knee_share: the measured best clock over the maximum clock; lower clocks starve decode.
        energy_saved: share of the energy saved there.
        decode_exponent: how much decode slows above the knee (assumption: 3 % at the knee of an A100).

    Prefill is bound by compute: time ∝ 1/f; its dynamic power ∝ f² (assumption: f·V² with a voltage that follows the
    clock over part of the range).
    """
    steps = round((knee_share * accelerator.max_mhz - accelerator.min_mhz) / accelerator.step_mhz)
    knee = accelerator.min_mhz + steps * accelerator.step_mhz
    share = knee / accelerator.max_mhz
    watts = (1.0 - energy_saved) * decode_watts * share**decode_exponent
    idle_watts = accelerator.unloaded_watts + (accelerator.idle_watts - accelerator.unloaded_watts) * share
    above_idle = (watts - idle_watts) / (decode_watts - accelerator.idle_watts)
    return ClockResponse(
        min_mhz=accelerator.min_mhz,
        max_mhz=accelerator.max_mhz,
        step_mhz=accelerator.step_mhz,
        prefill_exponent=1.0,
        decode_exponent=decode_exponent,
        decode_knee_mhz=knee,
        prefill_power_exponent=2.0,
        decode_power_exponent=math.log(above_idle) / math.log(share),
    )


def engine_model(
    name: str,
    served_model: str,
    model: Architecture,
    accelerator: Accelerator,
    tensor_parallel: int,
    time: TimeFit,
    energy: StepEnergy,
    clock: ClockResponse,
    error: ModelError,
    *,
    host_watts: float,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    block_size: int = 16,
) -> EngineModel:
    """Put the parts together; memory and standing power follow from the accelerator.

    A sleeping engine draws as much as an idle one: while the CUDA context lives the clocks stay up, and how much memory
    is filled changes nothing that could be measured (below 0.02 W/GB: arXiv:2605.23918).
    """
    return EngineModel(
        name=name,
        model=served_model,
        accelerator=accelerator.name,
        tensor_parallel=tensor_parallel,
        prefill=time.prefill,
        decode=time.decode,
        energy=energy,
        clock=clock,
        error=error,
        idle_watts=accelerator.idle_watts * tensor_parallel,
        sleep_watts=accelerator.idle_watts * tensor_parallel,
        unloaded_watts=accelerator.unloaded_watts * tensor_parallel,
        host_watts=host_watts,
        kv_bytes_per_token=model.kv_bytes_per_token,
        kv_capacity_tokens=model.kv_capacity_tokens(accelerator, tensor_parallel, block=block_size),
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        clock_mhz=accelerator.max_mhz,
    )
