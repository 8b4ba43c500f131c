"""The fit report as text: coefficients, errors, cross-checks, anchors, sensitivity."""

import math
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from engine_calibration import anchors, measurements
from engine_calibration.recipes import NOT_ISOLATED, Calibrated, phase_mape
from heliotrope.engine import calibration, leastsquares
from heliotrope.engine.roofline import A100_40GB, H100_80GB, LLAMA_2_70B, LLAMA_3_8B, LLAMA_3_70B

CROSS_CHECKS = (
    ("llama-3.1-8b-a100-40gb", "A100", 1, "Meta-Llama-3-8B", "TensorRT-LLM", LLAMA_3_8B, A100_40GB),
    ("llama-3.1-8b-h100", "H100", 1, "Meta-Llama-3-8B", "TensorRT-LLM", LLAMA_3_8B, H100_80GB),
    ("llama-3.1-70b-h100-tp4", "H100", 4, "Meta-Llama-3-70B", "TensorRT-LLM", LLAMA_3_70B, H100_80GB),
    ("llama-3.1-70b-h100-tp4", "H100", 4, "Llama-2-70b-hf", "vLLM", LLAMA_2_70B, H100_80GB),
)

STEP_BATCHES, STEP_LENGTH = (1.0, 64.0), 600.0


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def percent(value: float) -> str:
    """A share as percent; a dash where nothing was measured."""
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def summary(calibrated: list[Calibrated]) -> str:
    """Errors of every profile."""
    rows = []
    for item in calibrated:
        seen, error = item.time.predict(item.time_runs), item.profile.error
        measured = np.array([run.joules for run in item.energy_runs])
        points = [sum(run.phase == phase for run in item.time_runs) for phase in ("prefill", "decode")]
        errors = (
            (phase_mape(item.time_runs, seen, "prefill"), error.prefill_seconds),
            (phase_mape(item.time_runs, seen, "decode"), error.decode_seconds),
            (leastsquares.mape(item.power.predict(item.energy_runs), measured), error.step_joules),
        )
        rows.append(
            (
                item.profile.name,
                " / ".join(map(str, [*points, len(item.energy_runs)])),
                *(f"{percent(in_sample)} / {percent(held_out)}" for in_sample, held_out in errors),
            )
        )
    header = (
        "profile",
        "points (prefill / decode / energy)",
        "prefill time, in sample / held out",
        "decode time",
        "energy",
    )
    return table(header, rows)


def steps(calibrated: list[Calibrated]) -> str:
    """Decode steps of small and large batches."""
    rows = []
    for item in calibrated:
        engine = item.profile
        seconds = [engine.decode_seconds(batch, batch * STEP_LENGTH) for batch in STEP_BATCHES]
        joules = [engine.decode_joules(batch, batch * STEP_LENGTH) for batch in STEP_BATCHES]
        watts = [j / s / engine.tensor_parallel for j, s in zip(joules, seconds, strict=True)]
        rows.append(
            (
                engine.name,
                " / ".join(f"{1e3 * value:.1f}" for value in seconds) + " ms",
                " / ".join(f"{value:.0f}" for value in watts) + " W",
            )
        )
    batches = " / ".join(f"{batch:g}" for batch in STEP_BATCHES)
    return table(("profile", f"decode step at batch {batches}, {STEP_LENGTH:g} tokens each", "power per GPU"), rows)


def coefficients(item: Calibrated) -> str:
    """Every coefficient with its interval and what decided it."""
    values = {"prefill.knee_tokens": item.time.knee_tokens}
    values |= dict(zip(calibration.TIME_COEFFICIENTS, map(float, item.time.fit.coefficients), strict=True))
    values |= dict(zip(calibration.POWER_COEFFICIENTS, map(float, item.power.fit.coefficients), strict=True))
    energy = item.profile.energy
    values |= {name: float(getattr(energy, name.split(".")[1])) for name in calibration.ENERGY_COEFFICIENTS}
    rows = [
        (
            name,
            f"{value:.4g}",
            f"{item.intervals[name][0]:.3g} to {item.intervals[name][1]:.3g}",
            _decided_by(item, name),
        )
        for name, value in values.items()
    ]
    return table(("coefficient", "value", "90 % interval", "decided by"), rows)


def _decided_by(item: Calibrated, name: str) -> str:
    if name in NOT_ISOLATED:
        return "power model, not isolated by any run"
    if name in calibration.ENERGY_COEFFICIENTS:
        return "power model"
    return "prior" if name in item.prior_only else "measurements"


def residuals(item: Calibrated) -> str:
    """Errors by group of points, and whether they have a sign."""
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    pairs = zip(item.time_runs, item.time.predict(item.time_runs), item.time_held_out, strict=True)
    for run, fitted, unseen in pairs:
        seen[f"time: {run.group}"].append((fitted / run.seconds - 1, unseen / run.seconds - 1))
    energies = zip(item.energy_runs, item.power.predict(item.energy_runs), item.energy_held_out, strict=True)
    for energy_run, fitted, unseen in energies:
        seen[f"energy: {energy_run.group}"].append((fitted / energy_run.joules - 1, unseen / energy_run.joules - 1))
    rows = []
    for group, errors in seen.items():
        fitted_errors, unseen_errors = np.array(errors).T
        rows.append(
            (
                group,
                str(len(errors)),
                f"{100 * fitted_errors.mean():+.1f} %",
                percent(float(np.abs(fitted_errors).mean())),
                f"{100 * unseen_errors.mean():+.1f} %",
                percent(float(np.abs(unseen_errors).mean())),
            )
        )
    return table(("group", "points", "mean error", "MAPE", "held out: mean error", "MAPE"), rows)


def cross_checks(calibrated: list[Calibrated]) -> str:
    """Generations that no fit has seen: another engine, or another model of the same layers, on the same hardware."""
    profiles = {item.profile.name: item for item in calibrated}
    rows = []
    for name, gpu, count, model, framework, shape, accelerator in CROSS_CHECKS:
        capacity = shape.kv_capacity_tokens(accelerator, count)
        runs = measurements.generation_runs(measurements.generations(gpu, count, model, framework, capacity))
        relative = profiles[name].time.predict(runs) / np.array([run.seconds for run in runs]) - 1
        rows.append(
            (
                name,
                f"{model} on {framework}",
                str(len(runs)),
                f"{100 * relative.mean():+.1f} %",
                percent(float(np.abs(relative).mean())),
            )
        )
    return table(("profile", "measured", "points", "mean error", "MAPE"), rows)


def anchor_table(item: Calibrated) -> str:
    """The paper's anchors, and the loads that they are read from."""
    loads = [anchors.serve(item.profile, rate) for rate in anchors.RATES]
    compared = table(("anchor", "paper", "ours"), ((a.what, a.paper, a.ours) for a in anchors.compare(loads)))
    header = ("arrivals/s", "completed/s", "mean TTFT s", "mean TPOT ms", "J/request", "mean batch")
    swept = table(
        header,
        (
            (
                f"{load.rate:g}",
                f"{load.completed_per_second:.2f}",
                f"{load.mean_ttft:.3f}",
                f"{load.mean_tpot * 1e3:.1f}",
                f"{load.joules_per_request:.1f}",
                f"{load.mean_batch:.1f}",
            )
            for load in loads
        ),
    )
    return f"{compared}\n\n{swept}"


def sensitivity_table(item: Calibrated) -> str:
    """What the coefficients that no measurement isolates do to results."""
    low, high = anchors.SENSITIVITY_RATES
    rows = [
        (
            name,
            f"{half[high].mean_ttft * 1e3:.0f} / {double[high].mean_ttft * 1e3:.0f}",
            f"{half[high].mean_tpot * 1e3:.1f} / {double[high].mean_tpot * 1e3:.1f}",
            *(f"{half[rate].joules_per_request:.1f} / {double[rate].joules_per_request:.1f}" for rate in (low, high)),
        )
        for name, half, double in anchors.sensitivity(item.profile)
    ]
    header = (
        "coefficient, halved / doubled",
        f"mean TTFT ms at {high:g} req/s",
        f"mean TPOT ms at {high:g} req/s",
        *(f"J/request at {rate:g} req/s" for rate in (low, high)),
    )
    return table(header, rows)


def everything(calibrated: list[Calibrated]) -> str:
    """The whole report."""
    anchored = next(item for item in calibrated if item.profile.name == "llama-3.1-8b-a100-40gb")
    parts = [
        "# Steps",
        steps(calibrated),
        "# Errors",
        summary(calibrated),
        "# Measurements that no fit has seen",
        cross_checks(calibrated),
    ]
    for item in calibrated:
        parts += [f"# {item.profile.name}", coefficients(item), residuals(item)]
        parts += [f"- {note}" for note in item.notes]
    parts += [
        "# Anchors: three Llama-3.1-8B engines on A100-40GB, round robin",
        anchor_table(anchored),
        "# Sensitivity to what no measurement isolates",
        sensitivity_table(anchored),
    ]
    return "\n\n".join(parts)
