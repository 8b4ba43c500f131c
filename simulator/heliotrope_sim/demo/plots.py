"""The report's figures, each as one SVG text."""

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heliotrope.carbon.accounting import EnergyInterval, emissions
from heliotrope.units import joules_from_watts
from heliotrope_sim.demo.arm import ArmName, ArmState
from heliotrope_sim.demo.joules import RequestJoules
from heliotrope_sim.demo.scenario import Scenario

COLORS = ("#2f6f9f", "#d98a29", "#6a994e", "#9d4edd", "#bc4749")
ARM_COLORS = {ArmName.ROUND_ROBIN: "#8a8f98", ArmName.HELIOTROPE: "#c9721b"}
STYLE = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "heliotrope",
}


def load_over_time(states: Sequence[ArmState], scenario: Scenario) -> str:
    """Carbon intensity by region, and below it each arm's requests in the engines by region."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 2.4 + 1.9 * len(states)), layout="constrained")
        axes = figure.subplots(1 + len(states), 1, sharex=True, squeeze=False)[:, 0]
        times = np.linspace(0.0, scenario.horizon_seconds, 400)
        for color, region in zip(COLORS, scenario.regions, strict=False):
            points = [
                states[0].intensity[region.name].at(states[0].start_s + states[0].unix_offset_s + t) for t in times
            ]
            values = [np.nan if p is None else p.intensity_g_per_kwh for p in points]
            axes[0].plot(
                times, values, color=color, label=f"{region.name} ({region.description})", drawstyle="steps-post"
            )
        axes[0].set_ylabel("gCO2e/kWh")
        axes[0].set_ylim(bottom=0)
        axes[0].legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.3), fontsize=8)
        for axis, state in zip(axes[1:], states, strict=True):
            _stacked_load(axis, state, scenario)
        top = max(axis.get_ylim()[1] for axis in axes[1:])
        for axis in axes[1:]:
            axis.set_ylim(0, top)
        axes[-1].set_xlabel(f"seconds (one second shows {scenario.speed / 3600:.2f} recorded hours)")
        return _svg(figure)


def carbon_over_time(states: Sequence[ArmState], scenario: Scenario) -> str:
    """Cumulative grams of each arm, by region."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        axes = figure.subplots(1, len(states), sharey=True, squeeze=False)[0]
        for axis, state in zip(axes, states, strict=True):
            bottom: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
            for color, region in zip(COLORS, scenario.regions, strict=False):
                times, grams = _cumulative_grams(state, region.name, region.pue)
                base = np.zeros_like(grams) if bottom is None else bottom[: len(grams)]
                axis.fill_between(times, base, base + grams, color=color, alpha=0.85, linewidth=0, label=region.name)
                bottom = base + grams
            axis.set_title(state.arm.title)
            axis.set_xlabel("seconds")
        axes[0].set_ylabel("gCO2e, fleet with hosts and idle")
        axes[0].legend(loc="upper left")
        return _svg(figure)


def ttft_distributions(states: Sequence[ArmState], scenario: Scenario) -> str:
    """Share of streamed requests whose first token came within a time."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.0), layout="constrained")
        axis = figure.subplots()
        for state in states:
            values = sorted(r.ttft_seconds * 1000 for r in state.results if r.ttft_seconds is not None and not r.failed)
            if values:
                share = np.arange(1, len(values) + 1) / len(values)
                axis.plot(
                    values, share, color=ARM_COLORS[state.arm.name], label=state.arm.title, drawstyle="steps-post"
                )
        axis.axvline(scenario.ttft_slo_seconds * 1000, color="#bc4749", linestyle="--", linewidth=1)
        axis.text(scenario.ttft_slo_seconds * 1000, 0.02, " SLO", color="#bc4749", ha="left")
        axis.set_xscale("log")
        axis.set_xlabel("TTFT, ms (streamed requests)")
        axis.set_ylabel("share of requests")
        axis.set_ylim(0, 1)
        axis.legend(loc="upper left")
        return _svg(figure)


def joules_per_request(rows: Sequence[RequestJoules], scenario: Scenario) -> str:
    """Two scatters on equal axes: expected against measured joules, and measured against true ones."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        measured = "measured by the picker, J"
        _scatter(left, rows, scenario, lambda r: (r.attributed, r.estimated), measured, "estimated by the decision, J")
        _scatter(right, rows, scenario, lambda r: (r.true, r.attributed), "true in the emulated engine, J", measured)
        left.legend(loc="upper left")
        return _svg(figure)


def levers(ablations: Mapping[str, Any]) -> str:
    """Grams and kilojoules lost without each lever; grey: no more than two equal runs differ by."""
    entries = list(ablations["levers"].values())[::-1]
    again = ablations["run_to_run"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 0.7 + 0.45 * len(entries)), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for axis, key, noise, unit, label in (
            (axes[0], "grams_lost", "grams_difference", 1.0, "gCO2e lost without it"),
            (axes[1], "joules_lost", "joules_difference", 1000.0, "kJ lost without it"),
        ):
            if again is not None:
                width = again[noise] / unit
                axis.axvspan(-width, width, color="#8a8f98", alpha=0.25, linewidth=0)
            axis.barh([e["title"] for e in entries], [e[key] / unit for e in entries], color="#c9721b", height=0.6)
            axis.axvline(0.0, color="#444", linewidth=0.8)
            axis.grid(visible=False, axis="y")
            axis.set_xlabel(label)
        return _svg(figure)


def _scatter(
    axis: Axes,
    rows: Sequence[RequestJoules],
    scenario: Scenario,
    pair: Callable[[RequestJoules], tuple[float, float]],
    x_label: str,
    y_label: str,
) -> None:
    known = [(row.region, x, y) for row in rows for x, y in [pair(row)] if x > 0.0 and y > 0.0]
    for color, region in zip(COLORS, scenario.regions, strict=False):
        points = [(x, y) for name, x, y in known if name == region.name]
        axis.scatter([x for x, _ in points], [y for _, y in points], s=9, alpha=0.6, color=color, label=region.name)
    if known:
        ends = [min(min(x, y) for _, x, y in known), max(max(x, y) for _, x, y in known)]
        axis.plot(ends, ends, color="#444", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)


def _stacked_load(axis: Axes, state: ArmState, scenario: Scenario) -> None:
    series = [state.meter.series_of(r.name, lambda s: s.running + s.waiting) for r in scenario.regions]
    times = np.array([t for t, _ in series[0]]) - state.start_s
    rows = [np.array([v for _, v in values]) for values in series]
    axis.stackplot(times, *rows, colors=COLORS[: len(rows)], alpha=0.85, step="post")
    axis.set_ylabel(f"{state.arm.title}\nrequests in engines")


def _cumulative_grams(
    state: ArmState, region: str, pue: float
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    joules = state.meter.series_of(region, lambda s: s.accelerator_joules)
    watts = sum(e.host_watts for e in state.meter.engines if e.region == region)
    grams, total = [0.0], 0.0
    for (before_s, before), (after_s, after) in pairwise(joules):
        drawn = after - before + joules_from_watts(watts, after_s - before_s)
        interval = EnergyInterval(before_s + state.unix_offset_s, after_s + state.unix_offset_s, drawn)
        total += emissions([interval], state.intensity[region], pue).grams_co2e
        grams.append(total)
    return np.array([t for t, _ in joules]) - state.start_s, np.array(grams[: len(joules)])


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
