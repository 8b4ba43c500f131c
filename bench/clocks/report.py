"""A page with pictures of the days."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.clocks.setups import HOURS
from matplotlib.figure import Figure

ARMS = {
    "left_alone": "clocks left alone",
    "one_held": "one clock, held all day",
    "one_moving": "one clock, moving",
    "per_phase": "a clock per phase",
    "per_phase_as_shipped": "a clock per phase, default headroom",
    "per_phase_by_means": "a clock per phase, by mean latencies",
}
CUT_ARMS = {
    "no_cut": "no cut",
    "per_phase": "split by phase",
    "per_phase_and_saving": "split by phase, saving too",
    "one_cap": "one cap",
}
COLORS = dict(zip(ARMS, ("#555555", "#c9892b", "#7f6bb3", "#1b7f5c", "#7fc4a5", "#b04a4a"), strict=True))
_STYLE = (
    "body{font-family:sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#222}img{max-width:100%}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}.note{color:#666}"
)


def write(page: Path, found: Mapping[str, Any]) -> Path:
    """The page; returns where it is."""
    parts = [
        f"<!doctype html><meta charset=utf-8><title>Clocks per phase</title><style>{_STYLE}</style>",
        "<h1>Clocks per phase over a day</h1>",
        f"<p class=note>{html.escape(found['model'])}.</p>",
        _table(("chosen before", ""), [(key, str(value)) for key, value in found["chosen_before"].items()]),
        "<h2>Energy and broken promises</h2>",
        _image(_savings(found["cases"])),
        _cases(found["cases"]),
        "<h2>A day</h2>",
        *(_image(_day(case, found["chosen_before"]["hour_seconds"])) for case in _shown(found["cases"])),
    ]
    if found["cuts"]:
        parts += ["<h2>A cut of 30 % of the watts</h2>", _image(_kept(found["cuts"])), _cuts(found["cuts"])]
    parts += ["<h2>The model and what was measured</h2>", _anchors(found["anchors"])]
    page.write_text("\n".join(parts) + "\n", encoding="utf-8")
    return page


def _shown(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One day of each fleet: the middle load."""
    shown = {}
    for case in cases:
        if case["load"] == 0.7 and case["promise"] == "server":
            shown[case["fleet"]] = case
    return list(shown.values())


MARKS = {"server": "o", "interactive": "^"}
ASIDE = {arm: 0.8 * (place - 2.5) for place, arm in enumerate(ARMS)}
"""Percent by which arms are drawn beside their load, so that none hides another."""


def _savings(cases: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    energy, missed = figure.subplots(1, 2, sharey=True)
    for case in cases:
        base, mark = case["arms"]["left_alone"], MARKS[case["promise"]]
        for arm, about in case["arms"].items():
            shares = [100.0 * joules / own for joules, own in zip(about["joules"], base["joules"], strict=True)]
            style: dict[str, Any] = {"color": COLORS[arm], "alpha": 0.6, "ls": "", "marker": mark}
            energy.plot([100.0 * case["load"] + ASIDE[arm]] * len(shares), shares, **style)
            missed.plot([100.0 * late for late in about["missed"]], shares, **style)
    energy.set_xlabel("peak load, % of capacity")
    missed.set_xlabel("requests beyond the promise, %")
    energy.set_ylabel("GPU energy, % of clocks left alone")
    for arm, text in ARMS.items():
        energy.plot([], [], "o", color=COLORS[arm], label=text)
    energy.legend(fontsize="x-small")
    figure.suptitle("circles: server promise, triangles: interactive; one for each day and fleet", fontsize="small")
    return figure


def _day(case: Mapping[str, Any], hour_seconds: float) -> Figure:
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    clocks, energy = figure.subplots(1, 2)
    history = case["arms"]["per_phase"]["clocks"]
    hours = [at / hour_seconds for at, _ in history]
    for role in sorted({name for _, chosen in history for name in chosen}):
        clocks.step(hours, [chosen[role] for _, chosen in history], where="post", label=role)
    clocks.axhline(case["held_mhz"], color=COLORS["one_held"], ls="--", label="best held all day")
    clocks.set_xlim(0.0, HOURS)
    clocks.set_xlabel("hour")
    clocks.set_ylabel("SM clock, MHz")
    clocks.set_title(f"{case['fleet']}, load {case['load']:.0%}, {case['promise']}", fontsize="small")
    clocks.legend(fontsize="x-small")
    for arm in ("left_alone", "one_held", "one_moving", "per_phase"):
        if arm in case["arms"]:
            joules = case["arms"][arm]["hourly_joules"][:HOURS]
            energy.step(range(len(joules)), [each / 1e3 for each in joules], color=COLORS[arm], label=ARMS[arm])
    energy.set_ylim(bottom=0.0)
    energy.set_xlabel("hour")
    energy.set_ylabel("kJ of the GPUs")
    energy.legend(fontsize="x-small")
    return figure


def _kept(cuts: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axis = figure.subplots()
    for i, (name, text) in enumerate(CUT_ARMS.items()):
        means = [cut["kept_percent"][name]["mean"] for cut in cuts]
        axis.bar([place + 0.2 * (i - 1.5) for place in range(len(cuts))], means, 0.18, label=text)
    axis.set_xticks(
        range(len(cuts)), [f"{cut['fleet']}\n{cut['load']:.0%}, {cut['promise']}" for cut in cuts], fontsize="x-small"
    )
    axis.set_ylabel("% of requests within the promise")
    axis.legend(fontsize="x-small", loc="lower left")
    return figure


def _image(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{html.escape(each)}</th>" for each in head) + f"</tr>{cells}</table>"


def _cases(cases: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for case in cases:
        for arm, text in ARMS.items():
            if arm not in case["arms"]:
                continue
            about, base = case["arms"][arm], case["arms"]["left_alone"]
            share = [100.0 * a / b for a, b in zip(about["joules"], base["joules"], strict=False)]
            missed = [100.0 * each for each in about["missed"]]
            rows.append(
                (
                    f"{case['fleet']}, {case['load']:.0%}, {case['promise']}",
                    text + (f" ({case['held_mhz']} MHz)" if arm == "one_held" else ""),
                    f"{min(share):.1f} to {max(share):.1f}",
                    f"{min(missed):.2f} to {max(missed):.2f}",
                    f"{max(about['ttft_p99_seconds']):.3f}",
                    f"{1e3 * max(about['tpot_p99_seconds']):.1f}",
                )
            )
    head = ("day", "clocks", "energy, %", "beyond the promise, %", "TTFT p99, s", "TPOT p99, ms")
    return _table(head, rows)


def _cuts(cuts: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"{cut['fleet']}, {cut['load']:.0%}, {cut['promise']}",
            *(f"{cut['kept_percent'][name]['mean']:.2f}" for name in CUT_ARMS),
        )
        for cut in cuts
    ]
    return _table(("day: % within the promise", *CUT_ARMS.values()), rows)


def _anchors(rows: Sequence[Mapping[str, Any]]) -> str:
    return _table(
        (
            "GPU",
            "measured best",
            "saved, %",
            "model at that clock",
            "saved, %",
            "time, %",
            "best of the model",
            "saved, %",
        ),
        [
            (
                f"{row['gpu']}, {name}",
                f"{row['measured_mhz']} of {row['of_mhz']} MHz",
                f"{row['measured_saving_percent']:.1f}",
                f"{row['clock_in_model_mhz']} MHz",
                f"{about['saving_percent']:.1f}",
                f"+{about['more_time_percent']:.1f}",
                f"{about['best_mhz']} MHz",
                f"{about['best_saving_percent']:.1f}",
            )
            for row in rows
            for name, about in row["model"].items()
        ],
    )
