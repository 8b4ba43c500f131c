"""The paper's figures 4 to 7, redrawn from our runs."""

from typing import Any

import numpy as np

from heliotrope.units import milliseconds_from_seconds
from heliotrope_sim.reproduce.plots import new_figure, png_base64
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.tension.answers import (
    GUESSED,
    GUESSING,
    capacities,
    guess_case,
    prompt_case,
)
from heliotrope_sim.reproduce.tension.case import SHAPES
from heliotrope_sim.reproduce.tension.grids import base_hour, spread
from heliotrope_sim.reproduce.tension.loads import Loads
from heliotrope_sim.reproduce.tension.models import LOADS, LONG, MIXED, MODELS
from heliotrope_sim.reproduce.tension.plan import Found, Plan
from heliotrope_sim.reproduce.tension.policies import COMPARED, FACILITY, POLICIES, ROUND_ROBIN, Sight
from heliotrope_sim.reproduce.tension.shapes import (
    HOUSED,
    HOUSED_POLICIES,
    PAPER_SHAPES,
    pue_case,
    shape_case,
)
from heliotrope_sim.reproduce.tension.sights import POLLED, POLLED_SIGHTS, poll_case
from heliotrope_sim.reproduce.tension.spread import PAPER, PAPER_CV, SPREAD, spread_case

COLOURS = {policy: f"C{i}" for i, policy in enumerate(POLICIES)}
MARKERS = dict(zip(POLICIES, "osPv^<D*Xh", strict=False))
SAVED, MISSED = "CO2 saved, %", "SLO violation, %"
SYMLOG = {"linthresh": 1.0}
"""Violations lie between 0 and 60 %, most of them below 3."""


def load_pictures(loads: Loads) -> tuple[Picture, ...]:
    """Figures 4a, 4b and 6a."""
    return _scatter(loads), _tails(loads), _decisions(loads)


def _scatter(loads: Loads) -> Picture:
    figure = new_figure(12.0, 9.5)
    grid = figure.subplots(3, 3, sharex=True, sharey=True)
    for row, load in zip(grid, LOADS, strict=True):
        for axes, model in zip(row, MODELS, strict=True):
            for policy in COMPARED:
                if policy == ROUND_ROBIN:
                    continue
                axes.scatter(
                    loads.saving(model, load, policy),
                    loads.violation(model, load, policy),
                    s=70,
                    color=COLOURS[policy],
                    marker=MARKERS[policy],
                    label=policy,
                )
            axes.set_title(f"{model.title}, {load} load", fontsize=10)
            _violation_axis(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel(MISSED)
    for axes in grid[-1]:
        axes.set_xlabel(SAVED)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    note = "Figure 4a of the paper, with low load added: to the right and down is better."
    return Picture("Savings and violations of every policy", png_base64(figure), note, id="load/figure-4a")


def _tails(loads: Loads) -> Picture:
    figure = new_figure(12.0, 4.2)
    for axes, model in zip(figure.subplots(1, len(MODELS), sharey=True), MODELS, strict=True):
        values = np.array([loads.ttft(model, policy) for policy in COMPARED])
        y = np.arange(len(COMPARED))
        axes.hlines(y, values[:, 0], values[:, 2], color="lightgray", linewidth=5)
        for i, (name, marker) in enumerate((("p50", "o"), ("p90", "d"), ("p99", "s"))):
            axes.scatter(values[:, i], y, marker=marker, color=f"C{i}", label=name, zorder=3)
        axes.axvline(model.ttft_slo_seconds, color="black", linestyle=":", label="promised")
        axes.set_yticks(y, COMPARED)
        axes.set(title=model.title, xlabel="TTFT, s")
        axes.grid(axis="x", alpha=0.3)
        axes.invert_yaxis()
    figure.axes[0].legend(loc="center right")
    return Picture("TTFT at high load", png_base64(figure), "Figure 4b of the paper.", id="tail/figure-4b")


def _decisions(loads: Loads) -> Picture:
    figure = new_figure(9.0, 3.6)
    axes = figure.subplots()
    y = np.arange(len(COMPARED))
    for i, model in enumerate(MODELS):
        outcomes = [loads.found[loads.case(model, "high", policy)] for policy in COMPARED]
        times = milliseconds_from_seconds(np.array([o.decide_seconds for o in outcomes]))
        at = y + 0.25 * (i - 1)
        axes.hlines(at, times[:, 0], times[:, 1], color=f"C{i}", linewidth=4, label=model.title)
        axes.plot(times[:, 1], at, "|", color=f"C{i}", markersize=9)
    axes.set_yticks(y, COMPARED)
    axes.set(xlabel="from a window's close to its decision, p50 to p99, ms", xlim=(0.0, None))
    axes.grid(axis="x", alpha=0.3)
    axes.invert_yaxis()
    axes.legend()
    note = (
        "Figure 6a of the paper, where solvers take up to 500 and iterative ILP 6500 ms. Modelled from the work done."
    )
    return Picture("Decision times at high load", png_base64(figure), note, id="decide/figure-6a")


def pue_picture(plan: Plan, found: Found) -> Picture:
    """Figure 5a."""
    figure = new_figure(9.0, 3.6)
    x = np.arange(len(HOUSED_POLICIES))
    for axes, model in zip(figure.subplots(1, 2, sharey=True), HOUSED, strict=True):
        for i, real in enumerate((False, True)):
            cases = [pue_case(plan, model, policy, real=real) for policy in HOUSED_POLICIES]
            bars = axes.bar(
                x + 0.38 * i - 0.19, [found.saving(c) for c in cases], 0.36, label="real" if real else "1.1"
            )
            labels = [f"{found.violation(c):.1f} %" for c in cases]
            axes.bar_label(bars, labels=labels, fontsize=8)
        axes.set_xticks(x, HOUSED_POLICIES)
        axes.set_title(model.title)
    figure.axes[0].set_ylabel(SAVED)
    figure.legend(*figure.axes[1].get_legend_handles_labels(), title="PUE", loc="outside right")
    note = "Figure 5a of the paper, high load; violations are written on the bars."
    return Picture("Uniform and real PUE", png_base64(figure), note, id="pue/figure-5a")


def spread_picture(plan: Plan, found: Found) -> Picture:
    """Figure 5b."""
    figure = new_figure(11.0, 4.2)
    hours = sorted((*plan.hours, base_hour()), key=spread)
    for axes, model in zip(figure.subplots(1, 2, sharey=True), SPREAD, strict=True):
        for i, load in enumerate(LOADS):
            savings = [found.saving(spread_case(plan, model, load, hour)) for hour in hours]
            axes.plot([spread(hour) for hour in hours], savings, "o-", color=f"C{i}", label=f"{load}, ours")
            axes.plot(PAPER_CV, PAPER[model.name, load], "x--", color=f"C{i}", alpha=0.5, label=f"{load}, paper")
        axes.set(title=model.title, xlabel="CV of intensity over data centres")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel(SAVED)
    figure.axes[1].legend(fontsize=8)
    note = (
        "Figure 5b of the paper: the base hour and those of lowest and highest spread, of 2022 (paper: 2021 to 2024)."
    )
    return Picture(f"{FACILITY} against the spread of intensities", png_base64(figure), note, id="spread/figure-5b")


def poll_picture(plan: Plan, found: Found) -> Picture:
    """Figure 6b."""
    figure = new_figure(11.0, 4.2)
    for axes, model in zip(figure.subplots(1, 2, sharey=True), POLLED, strict=True):
        for i, sight in enumerate(POLLED_SIGHTS):
            for staggered, line in ((False, "o-"), (True, "s:")):
                cases = [poll_case(plan, model, p, sight, staggered=staggered) for p in plan.poll_periods]
                name = f"{sight}{', staggered' if staggered else ''}"
                axes.plot(plan.poll_periods, [found.violation(c) for c in cases], line, color=f"C{i}", label=name)
        axes.set(title=model.title, xlabel="poll period, s", xscale="log")
        axes.set_xticks(plan.poll_periods, [f"{p:g}" for p in plan.poll_periods])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel(MISSED)
    figure.axes[0].legend(fontsize=8)
    note = f"Figure 6b of the paper: {FACILITY} at moderate load, by what schedulers know between polls."
    return Picture("Violations by poll period", png_base64(figure), note, id="poll/figure-6b")


def shape_picture(plan: Plan, found: Found) -> Picture:
    """Figure 6c."""
    figure = new_figure(9.0, 3.8)
    axes = figure.subplots()
    for i, shape in enumerate(SHAPES):
        for sight, marker in zip(Sight, "s^o", strict=True):
            case = shape_case(plan, shape, sight)
            axes.scatter(
                found.saving(case), found.violation(case), color=f"C{i}", marker=marker, s=60, label=f"{shape}: {sight}"
            )
        axes.scatter(*PAPER_SHAPES[shape], color=f"C{i}", marker="x", s=60, label=f"{shape}: paper")
    axes.set(xlabel=SAVED, ylabel=MISSED)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right", fontsize=8)
    note = f"Figure 6c of the paper: {FACILITY} on Llama at high load."
    return Picture("Savings and violations by topology", png_base64(figure), note, id="shape/figure-6c")


def guess_picture(plan: Plan, found: Found) -> Picture:
    """Figure 7a."""
    figure = new_figure(11.0, 4.2)
    for axes, model in zip(figure.subplots(1, 2, sharey=True), GUESSED, strict=True):
        for policy in GUESSING:
            cases = [guess_case(plan, model, policy, predicted=predicted) for predicted in (False, True)]
            saved, missed = [found.saving(c) for c in cases], [found.violation(c) for c in cases]
            axes.plot(saved, missed, "-", color=COLOURS[policy], alpha=0.5)
            axes.scatter(saved[0], missed[0], color=COLOURS[policy], marker="o", label=policy)
            axes.scatter(saved[1], missed[1], edgecolor=COLOURS[policy], facecolor="none", marker="o")
        axes.set(title=model.title, xlabel=SAVED)
        _violation_axis(axes)
    figure.axes[0].set_ylabel(MISSED)
    figure.axes[0].legend(fontsize=8)
    note = "Figure 7a of the paper, high load: filled with an oracle of output lengths, hollow with predictions."
    return Picture("Oracle and predicted output lengths", png_base64(figure), note, id="osl/figure-7a")


def prompt_picture(plan: Plan, found: Found) -> Picture:
    """Figure 7b."""
    figure = new_figure(11.0, 3.8)
    for axes, served in zip(figure.subplots(1, 2), (LONG, MIXED), strict=True):
        swept = capacities(plan, served)
        cases = [prompt_case(plan, served, c) for c in swept]
        axes.plot(swept, [found.saving(c) for c in cases], "o-", color="C0", label=SAVED)
        axes.plot(swept, [found.violation(c) for c in cases], "s--", color="C3", label=MISSED)
        axes.set(title=served.title, xlabel="batch capacity of an engine", ylim=(0.0, None))
        axes.set_xticks(swept)
        axes.grid(alpha=0.3)
        axes.legend()
    note = f"Figure 7b of the paper: {FACILITY}, TTFT promised within 4.5 s."
    return Picture("Long and mixed prompts", png_base64(figure), note, id="prompts/figure-7b")


def _violation_axis(axes: Any) -> None:
    axes.set_yscale("symlog", **SYMLOG)
    axes.set_ylim(-0.2, 100.0)
    axes.set_yticks([0.0, 1.0, 3.0, 10.0, 30.0, 100.0], ["0", "1", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
