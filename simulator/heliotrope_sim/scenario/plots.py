"""The plots of a study."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.units import hours_from_seconds
from heliotrope_sim.reproduce.plots import new_figure, png_base64
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.scenario.outcome import QUANTILES
from heliotrope_sim.scenario.study import Cell
from heliotrope_sim.scenario.summary import Line, Summary

PERCENT = 100.0
JOULES_PER_KILOJOULE = 1e3
LONG_SECONDS = 7_200.0
"""Runs from here on are drawn in hours."""
MOST_DRAWN = 8
"""Policies whose load is drawn over time."""


def pictures(cells: Sequence[Cell], summary: Summary) -> tuple[Picture, ...]:
    """All of them: policies beside each other at the first setting, load over time there, and the sweep."""
    first = [line for line in summary.lines if line.setting == summary.lines[0].setting]
    here = [cell for cell in cells if cell.point.values == cells[0].point.values][:MOST_DRAWN]
    found = [_policies(first), _energy(first, summary), _latency(first)]
    found += [_load(here, summary)]
    if summary.keys:
        found.append(_sweep(summary))
    return tuple(found)


def _policies(lines: Sequence[Line]) -> Picture:
    figure = new_figure()
    grams, late = figure.subplots(1, 2)
    x = np.arange(len(lines))
    grams.bar(x, [line.grams for line in lines], color="tab:green")
    grams.set_ylabel("gCO2e")
    late.bar(x, [line.violation * PERCENT for line in lines], color="tab:red")
    late.set_ylabel("late or lost, %")
    late.set_ylim(0.0, max(1.0, late.get_ylim()[1]))
    for axes in (grams, late):
        axes.set_xticks(x, [line.policy for line in lines], rotation=20, ha="right")
    return Picture("Carbon, and what it costs in promises", png_base64(figure))


def _energy(lines: Sequence[Line], summary: Summary) -> Picture:
    figure = new_figure()
    axes = figure.subplots()
    x, below = np.arange(len(lines)), np.zeros(len(lines))
    for name in summary.joule_lines:
        values = np.array([line.joules[name] for line in lines]) / JOULES_PER_KILOJOULE
        axes.bar(x, values, bottom=below, label=name)
        below += values
    axes.set_xticks(x, [line.policy for line in lines], rotation=20, ha="right")
    axes.set_ylabel("IT energy, kJ")
    axes.legend()
    return Picture("Energy by line", png_base64(figure))


def _latency(lines: Sequence[Line]) -> Picture:
    figure = new_figure()
    ttft, tpot = figure.subplots(1, 2)
    for axes, name, title in ((ttft, "ttft_seconds", "TTFT, s"), (tpot, "tpot_seconds", "TPOT, s")):
        x = np.arange(len(lines))
        for i, quantile in enumerate(QUANTILES):
            values = [getattr(line, name)[quantile] for line in lines]
            axes.bar(x + 0.27 * (i - 1), values, 0.26, label=quantile)
        axes.set_xticks(x, [line.policy for line in lines], rotation=20, ha="right")
        axes.set_ylabel(title)
        axes.legend()
    return Picture("Latency of served requests", png_base64(figure))


def _load(cells: Sequence[Cell], summary: Summary) -> Picture:
    """Requests by site over time, one panel per policy, and the grids above."""
    figure = new_figure(height=2.2 * (len(cells) + 1))
    grids, *panels = figure.subplots(len(cells) + 1, 1, sharex=True)
    over = cells[0].outcome.over_time
    long = over.ends_seconds[-1] >= LONG_SECONDS
    ends = _axis([0.0, *over.intensity_ends_seconds], long=long)
    for i, site in enumerate(summary.sites):
        values = [row[i] for row in over.intensity_g_per_kwh]
        grids.stairs(values, ends, baseline=None, label=site)
    grids.set_ylabel("g/kWh")
    grids.legend(fontsize="small")
    for axes, cell in zip(panels, cells, strict=True):
        drawn = cell.outcome.over_time
        x = _axis(drawn.ends_seconds, long=long)
        counts = np.array(drawn.requests, dtype=np.float64).T
        axes.stackplot(x, counts, labels=summary.sites)
        axes.set_ylabel(cell.outcome.policy, fontsize="small")
    panels[-1].set_xlabel(f"{'hours' if long else 'seconds'} from the start")
    return Picture("Where requests went, by the time of their arrival", png_base64(figure))


def _axis(times_seconds: Sequence[float], *, long: bool) -> NDArray[np.float64]:
    times = np.array(times_seconds)
    return hours_from_seconds(times) if long else times


def _sweep(summary: Summary) -> Picture:
    """Against the key with the most values; other keys have a line each."""
    values: dict[str, list[Any]] = {
        key: list(dict.fromkeys(str(dict(line.setting)[key]) for line in summary.lines)) for key in summary.keys
    }
    key = max(values, key=lambda each: len(values[each]))
    figure = new_figure()
    saved, late = figure.subplots(1, 2)
    groups: dict[str, list[Line]] = {}
    for line in summary.lines:
        others = ", ".join(f"{k} {v}" for k, v in line.setting if k != key)
        groups.setdefault(line.policy + (f" ({others})" if others else ""), []).append(line)
    for label, lines in groups.items():
        raw = [dict(line.setting)[key] for line in lines]
        numeric = all(isinstance(each, int | float) and not isinstance(each, bool) for each in raw)
        x: list[Any] = [float(each) for each in raw] if numeric else [str(each) for each in raw]
        saved.plot(x, [line.saving * PERCENT for line in lines], marker="o", label=label)
        late.plot(x, [line.violation * PERCENT for line in lines], marker="o", label=label)
    saved.set_ylabel(f"CO2e saved against {summary.baseline}, %")
    late.set_ylabel("late or lost, %")
    for axes in (saved, late):
        axes.set_xlabel(key)
    saved.legend(fontsize="small")
    return Picture(f"Against {key}", png_base64(figure))
