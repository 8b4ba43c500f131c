"""The plots of the report: two Pareto plots and one for each research question."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from heliotrope.cache.crossover import Situation, compare
from heliotrope.cache.links import DEFAULT_LINKS, LinkClass
from heliotrope.engine.profiles import load
from heliotrope.goodput import pareto
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.roadmap.arms import (
    BASELINES,
    INFRASTRUCTURE,
    KV,
    PHASES,
    SESSIONS,
)
from heliotrope_sim.reproduce.roadmap.measures import Measured, change, quantile, vector
from heliotrope_sim.reproduce.roadmap.prediction import Predicted
from heliotrope_sim.reproduce.roadmap.studies import (
    GRAPH_ARMS,
    GRAPH_WORKLOADS,
    KV_WORKLOADS,
    MODEL_WORKLOADS,
    PHASE_WORKLOADS,
    SESSION_WORKLOADS,
    Found,
    graph_run,
    kv_run,
    model_run,
    phase_run,
    session_run,
)
from heliotrope_sim.reproduce.roadmap.tables import middle
from heliotrope_sim.reproduce.roadmap.testbed import A100
from heliotrope_sim.reproduce.roadmap.workloads import CLASSES, KINDS

TICKS_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
COLOURS = ("tab:gray", "tab:olive", "tab:orange", "tab:blue", "tab:red", "tab:purple", "tab:green", "tab:brown")


def carbon_latency(found: Found) -> Picture:
    """Carbon against latency, workload by workload; the frontier is drawn, nothing is summed up."""
    figure = new_figure(12.0, 6.5)
    panels = figure.subplots(2, 4).ravel()
    at, sharing = middle(found.sizes)
    for axes, (name, kind) in zip(panels, CLASSES.items(), strict=False):
        arms = [[found.matrix(arm, name, at, sharing)] for arm in BASELINES]
        points = np.array([_grams_and_ttft(runs) for runs in arms])
        _frontier(axes, points, [arm.name for arm in BASELINES])
        axes.axvline(kind.ttft_slo_seconds, color="black", linewidth=0.6, linestyle=":")
        axes.set(title=kind.title)
        _seconds(axes)
    panels[4].set(xlabel="P95 TTFT, s", ylabel="gCO2e per 1,000 SLO tokens")
    panels[-1].axis("off")
    panels[-1].legend(handles=_handles([arm.name for arm in BASELINES]), loc="center")
    note = (
        f"Load {at:g}, {sharing:.0%} shared prefixes. Lower left is better; the line joins what no other arm beats in "
        "both (dots; others are crosses). The dotted line is the promise of TTFT."
    )
    return Picture("Carbon against latency", png_base64(figure), note, id="matrix/pareto")


def energy_quality(found: Found) -> Picture:
    """Energy against quality, on two models."""
    figure = new_figure(11.0, 4.2)
    make = model_run(found.sizes)
    arms = {arm.name: arm for arm in INFRASTRUCTURE.values()}
    for axes, workload in zip(figure.subplots(1, len(MODEL_WORKLOADS)), MODEL_WORKLOADS, strict=True):
        points = []
        for arm in arms.values():
            runs = found.of(arm, workload, make)
            points.append((_joules(runs), -_quality(runs)))
        known = np.array(points)
        front = pareto(known)
        for i, name in enumerate(arms):
            style = {"marker": "o" if front[i] else "x", "color": f"C{i}", "linestyle": ""}
            axes.plot(known[i, 0], -known[i, 1], label=name, **style)
        axes.set(title=KINDS[workload].title, xlabel="J of the fleet per SLO token", ylabel="mean quality")
    figure.axes[-1].legend(fontsize="small")
    note = "Upper left is better; circles are on the frontier. Least loaded and joint ask the 70B model alone."
    return Picture("Energy against quality", png_base64(figure), note, id="rq5/pareto")


def prediction(predicted: Predicted) -> Picture:
    """RQ1."""
    figure = new_figure(6.0, 5.0)
    axes = figure.subplots()
    axes.loglog(predicted.true_joules, predicted.predicted_joules, ".", markersize=2, alpha=0.4)
    ends = [float(np.nanmin(predicted.true_joules)), float(np.nanmax(predicted.true_joules))]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(xlabel="joules of a request, true", ylabel="predicted, all features")
    return Picture("RQ1: energy of held-out requests", png_base64(figure), id="rq1/plot")


def transfers(found: Found) -> Picture:
    """RQ2."""
    figure = new_figure(12.0, 4.2)
    left, right = figure.subplots(1, 2)
    engine = load(A100.profile)
    lengths = np.geomspace(64.0, 32_768.0, 80)
    each = [compare(engine, DEFAULT_LINKS[LinkClass.RACK], n, Situation()) for n in lengths.tolist()]
    left.loglog(lengths, [c.computed.joules for c in each], color="black", label="recompute")
    for kind in (LinkClass.RACK, LinkClass.REGION, LinkClass.WAN):
        costs = [compare(engine, DEFAULT_LINKS[kind], n, Situation()).moved.joules for n in lengths.tolist()]
        left.loglog(lengths, costs, label=f"pull, {kind.value}")
    left.set(xlabel="prefix, tokens", ylabel="J", title="8B on A100, equation 8")
    left.legend()
    make = kv_run(found.sizes)
    x = np.arange(len(KV))
    for i, workload in enumerate(KV_WORKLOADS):
        values = [_working_joules(found.of(arm, workload, make)) for arm in KV.values()]
        right.bar(x + 0.4 * (i - 0.5), values, 0.38, label=KINDS[workload].title)
    right.set_xticks(x, list(KV))
    right.set(ylabel="J of steps and transfers per SLO token")
    right.legend()
    return Picture("RQ2: moving KV or computing it again", png_base64(figure), id="rq2/plot")


def phases(found: Found) -> Picture:
    """RQ3."""
    figure = new_figure(12.0, 4.0)
    for axes, workload in zip(figure.subplots(1, len(PHASE_WORKLOADS)), PHASE_WORKLOADS, strict=True):
        for name, arm in PHASES.items():
            values = [
                vector(found.of(arm, workload, phase_run(at, found.sizes))).tokens_per_joule for at in found.sizes.loads
            ]
            axes.plot(found.sizes.loads, values, "o-", label=name)
        axes.set(title=KINDS[workload].title, xlabel="load")
        axes.set_ylim(0.0, 1.1 * axes.get_ylim()[1])
    figure.axes[0].set_ylabel("G_E: SLO tokens per joule")
    figure.axes[0].legend()
    return Picture("RQ3: phases apart, always or as needed", png_base64(figure), id="rq3/plot")


def sessions(found: Found) -> Picture:
    """RQ4."""
    figure = new_figure(10.0, 4.0)
    axes = figure.subplots()
    make = session_run(found.sizes)
    x = np.arange(len(SESSION_WORKLOADS))
    names = [name for name in SESSIONS if name not in ("pinned", "cache-aware")]
    for i, name in enumerate(names):
        changes = [
            change(
                found.of(SESSIONS[name], w, make), found.of(SESSIONS["pinned"], w, make), "working_grams", found.seed
            )
            for w in SESSION_WORKLOADS
        ]
        with_intervals(axes, (x + 0.1 * i).tolist(), changes, linestyle="", label=SESSIONS[name].name)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xticks(x, [KINDS[w].title for w in SESSION_WORKLOADS])
    axes.set_ylabel("CO2e per SLO token against pinned sessions, %")
    axes.legend()
    note = "95 % intervals over seeds. Cache-aware routing, blind to carbon, is far above and left out."
    return Picture("RQ4: carbon or locality", png_base64(figure), note, id="rq4/plot")


def models(found: Found) -> Picture:
    """RQ5."""
    figure = new_figure(9.0, 4.0)
    axes = figure.subplots()
    make = model_run(found.sizes)
    for i, workload in enumerate(MODEL_WORKLOADS):
        of = {name: found.of(arm, workload, make) for name, arm in INFRASTRUCTURE.items()}
        names = [name for name in of if name != "neither"]
        changes = [change(of[name], of["neither"], "grams", found.seed) for name in names]
        with_intervals(
            axes, (np.arange(len(names)) + 0.1 * i).tolist(), changes, linestyle="", label=KINDS[workload].title
        )
    axes.set_xticks(np.arange(len(names)), names)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_ylabel("CO2e per SLO token against neither, %")
    axes.legend()
    return Picture("RQ5: which lever saves how much", png_base64(figure), id="rq5/plot")


def graphs(found: Found) -> Picture:
    """RQ6."""
    figure = new_figure(10.0, 4.0)
    make = graph_run(found.sizes)
    for axes, workload in zip(figure.subplots(1, len(GRAPH_WORKLOADS)), GRAPH_WORKLOADS, strict=True):
        points = np.array([_grams_and_ttft(found.of(arm, workload, make)) for arm in GRAPH_ARMS])
        _frontier(axes, points, [arm.name for arm in GRAPH_ARMS])
        axes.set(title=KINDS[workload].title, xlabel="P95 TTFT, s", ylabel="gCO2e per 1,000 SLO tokens")
    figure.axes[-1].legend(handles=_handles([arm.name for arm in GRAPH_ARMS]))
    return Picture("RQ6: sessions and images under one decision", png_base64(figure), id="rq6/plot")


def _frontier(axes: Any, points: np.ndarray[Any, np.dtype[np.float64]], names: Sequence[str]) -> None:
    front = pareto(points)
    for i, name in enumerate(names):
        marker = "o" if front[i] else "x"
        axes.plot(points[i, 1], points[i, 0], marker, color=COLOURS[i % len(COLOURS)], label=name)
    line = points[front]
    line = line[np.argsort(line[:, 1])]
    axes.plot(line[:, 1], line[:, 0], color="tab:green", linewidth=0.8)


def _handles(names: Sequence[str]) -> list[Any]:
    """Of a legend that says nothing of who is on which frontier."""
    return [Line2D([], [], marker="s", linestyle="", color=COLOURS[i], label=name) for i, name in enumerate(names)]


def _seconds(axes: Any) -> None:
    """A logarithmic axis of seconds whose labels do not overlap."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in TICKS_SECONDS if low <= tick <= high])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _grams_and_ttft(runs: Sequence[Measured]) -> tuple[float, float]:
    good = vector(runs).tokens_per_gram
    return (1_000.0 / good if good > 0.0 else float("nan")), quantile(runs, "ttft_seconds", 0.95)


def _joules(runs: Sequence[Measured]) -> float:
    good = vector(runs).tokens_per_joule
    return 1.0 / good if good > 0.0 else float("nan")


def _working_joules(runs: Sequence[Measured]) -> float:
    return sum(run.working_joules for run in runs) / max(sum(run.tokens for run in runs), 1.0)


def _quality(runs: Sequence[Measured]) -> float:
    return float(np.nanmean(np.concatenate([run.quality for run in runs])))
