"""How each shipped profile is calibrated: which measurements, fitted how, and what the fit is worth."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine_calibration import measurements
from heliotrope.engine import calibration, leastsquares
from heliotrope.engine.calibration import EnergyRun, PowerFit, TimedRun, TimeFit
from heliotrope.engine.leastsquares import Array, Prior
from heliotrope.engine.model import EngineModel, ModelError
from heliotrope.engine.roofline import (
    A100_40GB,
    A100_80GB,
    H100_80GB,
    LLAMA_2_7B,
    LLAMA_2_70B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    MIXTRAL_8X7B,
    QWEN_2_7B,
    Accelerator,
    Architecture,
)

HOST_WATTS_PER_ACCELERATOR = 300.0 / 8
"""Paper carbon-slo-tension, §III-B: 300 W per node of eight."""
MAX_NUM_SEQS = 64
"""The largest batch among the measured generations (32 for 70B on A100). Beyond what was measured step times are
extrapolated, and only bounded: the time per sequence does not grow (`calibration.time_prior`)."""
MAX_NUM_BATCHED_TOKENS = 8192
EXCHANGED_NOISE = 0.05
"""Of generations measured on another model."""
MIXTRAL_LEAST_BATCH = 16
"""Smaller batches read fewer of the experts, which no coefficient tells; the fit holds for those that read all."""
PRIOR_PREFILL_ERROR = 0.3
"""Where no prefill was measured: the deviation of the prior."""
PRIOR_DOMINATED = 0.5
NOT_ISOLATED = ("energy.prefill_joules_per_token_squared", "energy.decode_joules_per_cached_token")
"""No run tells attention's energy from the rest: it is the power model applied to attention's FLOPs, bytes and time."""
RESAMPLES = 100
SEED = 20260914

Seconds = list[tuple[int, int, float]]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A profile, with what the report says of it."""

    profile: EngineModel
    time_runs: list[TimedRun]
    energy_runs: list[EnergyRun]
    time: TimeFit
    power: PowerFit
    time_held_out: Array
    energy_held_out: Array
    form_error: float
    intervals: dict[str, tuple[float, float]]
    prior_share: dict[str, float]
    notes: tuple[str, ...]

    @property
    def prior_only(self) -> tuple[str, ...]:
        """Coefficients that rest on the roofline: measurements narrow its variance by less than half, or not at all."""
        return (*(name for name, share in self.prior_share.items() if share > PRIOR_DOMINATED), *NOT_ISOLATED)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One profile to calibrate."""

    name: str
    served_model: str
    model: Architecture
    accelerator: Accelerator
    gpu: str
    tensor_parallel: int
    time_runs: Callable[[], list[TimedRun]]
    notes: tuple[str, ...] = ()
    max_num_seqs: int = MAX_NUM_SEQS

    @property
    def time_prior(self) -> Prior:
        """Step times that the data sheet implies, up to the largest batch."""
        return calibration.time_prior(self.model, self.accelerator, self.tensor_parallel, self.max_num_seqs)


def _single_step(measured: Seconds) -> float:
    length, _, seconds = min(row for row in measured if row[1] == 1)
    return seconds / length


def _llama_8b_a100() -> list[TimedRun]:
    capacity = LLAMA_3_8B.kv_capacity_tokens(A100_40GB, 1)
    measured = measurements.generations("A100", 1, "Meta-Llama-3-8B", "vLLM", capacity)
    return [
        *measurements.generation_runs(measured),
        *measurements.first_token_runs("A100", "meta-llama/Meta-Llama-3-8B"),
        *measurements.operator_runs(
            "a100", "meta-llama/Meta-Llama-3-8B", 1, LLAMA_3_8B, A100_40GB, _single_step(measured)
        ),
    ]


def _llama_8b_h100() -> list[TimedRun]:
    capacity = LLAMA_3_8B.kv_capacity_tokens(H100_80GB, 1)
    measured = measurements.generations("H100", 1, "Meta-Llama-3-8B", "vLLM", capacity)
    scale = LLAMA_3_8B.layer_parameters / LLAMA_2_7B.layer_parameters
    return [
        *measurements.generation_runs(measured),
        *measurements.first_token_runs("H100", "meta-llama/Meta-Llama-3-8B"),
        *measurements.operator_runs(
            "h100", "meta-llama/Llama-2-7b-hf", 1, LLAMA_3_8B, H100_80GB, _single_step(measured), scale
        ),
    ]


def _llama_70b_h100() -> list[TimedRun]:
    capacity = LLAMA_3_70B.kv_capacity_tokens(H100_80GB, 4)
    measured = measurements.generations("H100", 4, "Meta-Llama-3-70B", "vLLM", capacity)
    return [
        *measurements.generation_runs(measured),
        *measurements.operator_runs(
            "h100", "meta-llama/Llama-2-70b-hf", 4, LLAMA_3_70B, H100_80GB, _single_step(measured)
        ),
    ]


def _llama_70b_a100() -> list[TimedRun]:
    # Beside 70B weights four 40 GB devices hold few tokens; runs near that limit already preempt.
    capacity = LLAMA_2_70B.kv_capacity_tokens(A100_40GB, 4) / 2
    measured = measurements.on_faster_memory(
        measurements.generations("A100", 4, "Llama-2-70b-hf", "vLLM", capacity), LLAMA_2_70B, 4, A100_40GB, A100_80GB
    )
    return [
        *measurements.generation_runs(measured),
        *measurements.operator_runs(
            "a100", "meta-llama/Meta-Llama-3-70B", 4, LLAMA_3_70B, A100_80GB, _single_step(measured)
        ),
    ]


def _qwen_7b_a100() -> list[TimedRun]:
    capacity = LLAMA_3_8B.kv_capacity_tokens(A100_40GB, 1)
    llama = measurements.generations("A100", 1, "Meta-Llama-3-8B", "vLLM", capacity)
    measured = measurements.of_another_model(llama, LLAMA_3_8B, QWEN_2_7B, A100_40GB)
    scale = QWEN_2_7B.layer_parameters / QWEN_2_7B.layers / (LLAMA_3_8B.layer_parameters / LLAMA_3_8B.layers)
    return [
        *measurements.generation_runs(measured, EXCHANGED_NOISE),
        *measurements.operator_runs(
            "a100", "meta-llama/Meta-Llama-3-8B", 1, QWEN_2_7B, A100_40GB, _single_step(measured), scale
        ),
    ]


def _mixtral_a100() -> list[TimedRun]:
    capacity = MIXTRAL_8X7B.kv_capacity_tokens(A100_40GB, 4)
    measured = measurements.vllm_generations(
        "A100", 4, "mistralai/Mixtral-8x7B-v0.1", capacity, least_batch=MIXTRAL_LEAST_BATCH
    )
    return measurements.generation_runs(measured)


RECIPES = (
    Recipe(
        "llama-3.1-8b-a100-40gb",
        "meta-llama/Llama-3.1-8B-Instruct",
        LLAMA_3_8B,
        A100_40GB,
        "A100",
        1,
        _llama_8b_a100,
    ),
    Recipe(
        "llama-3.1-8b-h100",
        "meta-llama/Llama-3.1-8B-Instruct",
        LLAMA_3_8B,
        H100_80GB,
        "H100",
        1,
        _llama_8b_h100,
        ("prefill operators measured on Llama-2-7B, scaled by layer parameters",),
    ),
    Recipe(
        "llama-3.1-70b-h100-tp4",
        "meta-llama/Llama-3.1-70B-Instruct",
        LLAMA_3_70B,
        H100_80GB,
        "H100",
        4,
        _llama_70b_h100,
        (
            "prefill operators measured on Llama-2-70B (same layers); no whole prefill was measured",
            "time on the links in prefill from their bandwidth",
        ),
    ),
    Recipe(
        "llama-3.1-70b-a100-80gb-tp4",
        "meta-llama/Llama-3.1-70B-Instruct",
        LLAMA_3_70B,
        A100_80GB,
        "A100",
        4,
        _llama_70b_a100,
        (
            "decode measured on four A100-40GB with Llama-2-70B (same layers) up to batch 32",
            "its time for the bytes moved exchanged for that of the 80 GB device's bandwidth",
            "no whole prefill was measured; time on the links in prefill from their bandwidth",
        ),
    ),
    Recipe(
        "qwen-2.5-7b-a100-40gb",
        "Qwen/Qwen2.5-7B-Instruct",
        QWEN_2_7B,
        A100_40GB,
        "A100",
        1,
        _qwen_7b_a100,
        (
            "no run of this model on one A100 is public: decode is Llama-3-8B's, with the time of its bytes exchanged",
            "prefill operators measured on Llama-3-8B, scaled by parameters per layer",
        ),
    ),
    Recipe(
        "mixtral-8x7b-a100-40gb-tp4",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
        MIXTRAL_8X7B,
        A100_40GB,
        "A100",
        4,
        _mixtral_a100,
        (
            "decode measured for batches of 16 to 64; a step of one sequence is twice too long",
            "beyond 64 the same line goes on: not measured, only bounded (time per sequence never grows up to 400)",
            "prefill only within whole generations: no prefill of its own and no operator was measured",
        ),
        max_num_seqs=400,
    ),
)


def calibrate_all() -> list[Calibrated]:
    """Every shipped profile, in the order of `RECIPES`."""
    times = {recipe.name: calibration.fit_time(recipe.time_runs(), recipe.time_prior) for recipe in RECIPES}
    energy = {
        "A100": [
            *measurements.argonne_energy("A100", A100_40GB),
            *measurements.leaderboard_energy("A100", "8B", times["llama-3.1-8b-a100-40gb"], A100_40GB),
            *measurements.splitwise_energy(times["llama-3.1-70b-a100-80gb-tp4"], LLAMA_2_70B, A100_80GB),
            measurements.saturated_prefill_energy(A100_40GB, times["llama-3.1-8b-a100-40gb"]),
        ],
        "H100": [
            *measurements.argonne_energy("H100", H100_80GB),
            *measurements.leaderboard_energy("H100", "8B", times["llama-3.1-8b-h100"], H100_80GB),
            *measurements.leaderboard_energy("H100", "70B", times["llama-3.1-70b-h100-tp4"], H100_80GB),
            measurements.saturated_prefill_energy(H100_80GB, times["llama-3.1-8b-h100"]),
        ],
    }
    mixtral = "mixtral-8x7b-a100-40gb-tp4"
    own = {mixtral: [*energy["A100"], *measurements.mixtral_energy("A100", times[mixtral], A100_40GB)]}
    return [_calibrate(recipe, times[recipe.name], own.get(recipe.name, energy[recipe.gpu])) for recipe in RECIPES]


def _calibrate(recipe: Recipe, time: TimeFit, energy_runs: list[EnergyRun]) -> Calibrated:
    time_runs = recipe.time_runs()
    power_prior = calibration.power_prior(recipe.accelerator)
    power = calibration.fit_power(energy_runs, power_prior)
    energy, form_error = calibration.step_energy(time, power, recipe.model, recipe.tensor_parallel, recipe.max_num_seqs)
    time_held_out = leastsquares.held_out(
        time_runs,
        lambda run: run.group,
        lambda seen, unseen: calibration.fit_time(seen, recipe.time_prior).predict(unseen),
    )
    energy_held_out = leastsquares.held_out(
        energy_runs,
        lambda run: run.group,
        lambda seen, unseen: calibration.fit_power(seen, power_prior).predict(unseen),
    )
    error = ModelError(
        prefill_seconds=_prefill_error(time_runs, time_held_out),
        decode_seconds=phase_mape(time_runs, time_held_out, "decode"),
        step_joules=leastsquares.mape(energy_held_out, np.array([run.joules for run in energy_runs])),
    )
    single_seconds = time.fit.coefficients[5]
    share, saved = measurements.clock_anchor(recipe.gpu)
    profile = calibration.engine_model(
        recipe.name,
        recipe.served_model,
        recipe.model,
        recipe.accelerator,
        recipe.tensor_parallel,
        time,
        energy,
        calibration.clock_response(
            recipe.accelerator,
            energy.decode_base_joules / single_seconds / recipe.tensor_parallel,
            share,
            saved,
        ),
        error,
        host_watts=HOST_WATTS_PER_ACCELERATOR * recipe.tensor_parallel,
        max_num_seqs=recipe.max_num_seqs,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
    )
    prior_share = dict(zip(calibration.TIME_COEFFICIENTS, map(float, time.fit.prior_share), strict=True))
    prior_share |= dict(zip(calibration.POWER_COEFFICIENTS, map(float, power.fit.prior_share), strict=True))
    return Calibrated(
        profile=profile,
        time_runs=time_runs,
        energy_runs=energy_runs,
        time=time,
        power=power,
        time_held_out=time_held_out,
        energy_held_out=energy_held_out,
        form_error=form_error,
        intervals=_intervals(recipe, time_runs, energy_runs),
        prior_share=prior_share,
        notes=recipe.notes,
    )


def _prefill_error(runs: Sequence[TimedRun], held_out: Array) -> float:
    measured = phase_mape(runs, held_out, "prefill")
    return PRIOR_PREFILL_ERROR if math.isnan(measured) else measured


def phase_mape(runs: Sequence[TimedRun], predicted: Array, phase: str) -> float:
    """The error over the runs of one phase; NaN where there is none."""
    chosen = [index for index, run in enumerate(runs) if run.phase == phase]
    if not chosen:
        return math.nan
    return leastsquares.mape(predicted[chosen], np.array([runs[index].seconds for index in chosen]))


def _intervals(
    recipe: Recipe, time_runs: list[TimedRun], energy_runs: list[EnergyRun]
) -> dict[str, tuple[float, float]]:
    """90 % bootstrap intervals of the coefficients: time runs, energy runs and prior means redrawn together."""
    time_prior = recipe.time_prior
    power_prior = calibration.power_prior(recipe.accelerator)
    names = (
        "prefill.knee_tokens",
        *calibration.TIME_COEFFICIENTS,
        *calibration.POWER_COEFFICIENTS,
        *calibration.ENERGY_COEFFICIENTS,
    )

    def estimate(drawn: Sequence[TimedRun | EnergyRun], random: np.random.Generator) -> Array:
        time = calibration.fit_time([run for run in drawn if isinstance(run, TimedRun)], time_prior.drawn(random))
        power = calibration.fit_power([run for run in drawn if isinstance(run, EnergyRun)], power_prior.drawn(random))
        energy, _ = calibration.step_energy(time, power, recipe.model, recipe.tensor_parallel, recipe.max_num_seqs)
        steps = [
            energy.prefill_base_joules,
            energy.prefill_joules_per_token,
            energy.prefill_joules_per_token_squared,
            energy.decode_base_joules,
            energy.decode_joules_per_request,
            energy.decode_joules_per_cached_token,
        ]
        return np.array([time.knee_tokens, *time.fit.coefficients, *power.fit.coefficients, *steps])

    runs: list[TimedRun | EnergyRun] = [*time_runs, *energy_runs]
    low, high = leastsquares.bootstrap(runs, lambda run: f"{type(run).__name__} {run.group}", estimate, RESAMPLES, SEED)
    return {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}


def to_file(calibrated: Calibrated) -> dict[str, Any]:
    """The shape of a profile file, rounded to the digits that mean something."""
    time_runs, energy_runs = calibrated.time_runs, calibrated.energy_runs
    measured = np.array([run.joules for run in energy_runs])
    in_sample = calibrated.time.predict(time_runs)
    return {
        "model": _rounded(calibrated.profile.to_mapping(), 5),
        "fit": _rounded(
            {
                "command": "uv run python bench/calibrate_engines.py",
                "points": {
                    "prefill": sum(run.phase == "prefill" for run in time_runs),
                    "decode": sum(run.phase == "decode" for run in time_runs),
                    "energy": len(energy_runs),
                },
                "sources": {
                    "time": sorted({run.group.split(" 2^")[0] for run in time_runs}),
                    "energy": sorted({run.group for run in energy_runs}),
                },
                "mape_in_sample": _known(
                    prefill_seconds=phase_mape(time_runs, in_sample, "prefill"),
                    decode_seconds=phase_mape(time_runs, in_sample, "decode"),
                    step_joules=leastsquares.mape(calibrated.power.predict(energy_runs), measured),
                ),
                "mape_held_out": _known(
                    prefill_seconds=phase_mape(time_runs, calibrated.time_held_out, "prefill"),
                    decode_seconds=calibrated.profile.error.decode_seconds,
                    step_joules=calibrated.profile.error.step_joules,
                ),
                "step_energy_form_error": calibrated.form_error,
                "power_per_accelerator": dict(
                    zip(
                        calibration.POWER_COEFFICIENTS,
                        map(float, calibrated.power.fit.coefficients),
                        strict=True,
                    )
                ),
                "intervals_90": {name: list(interval) for name, interval in calibrated.intervals.items()},
                "prior_only": list(calibrated.prior_only),
                "notes": list(calibrated.notes),
            },
            4,
        ),
    }


def _known(**errors: float) -> dict[str, float]:
    return {name: error for name, error in errors.items() if not math.isnan(error)}


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    return value
