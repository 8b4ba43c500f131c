"""Predicted against true, one scatter per target and regime, as a report that needs no other file."""

import base64
import html
import io
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from heliotrope_sim.evaluation.held_out import Answers, masks
from heliotrope_sim.evaluation.regimes import Regime
from heliotrope_sim.evaluation.scores import Floats

MAX_POINTS = 2_000
"""Of one plot; more overlap anyway."""
SPAN_PERCENTILES = (0.5, 99.5)


def scatter_page(title: str, learned: Answers, analytic: Answers) -> str:
    """An HTML page with the plots."""
    r = learned.requests
    blocks = []
    for name, true, ours, theirs, unit in (
        ("TTFT", r.ttft_seconds, learned.ttft, analytic.ttft, "s"),
        ("TPOT", r.tpot_seconds, learned.tpot, analytic.tpot, "s"),
        ("Energy of a request at its length", r.joules, learned.joules, analytic.joules, "J"),
    ):
        picture = _picture(learned, true, ours, theirs, unit)
        blocks.append(
            f'<h2>{html.escape(name)}</h2><img alt="{html.escape(name)}" src="data:image/png;base64,{picture}">'
        )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>body{{font-family:sans-serif;max-width:75rem;margin:2rem auto}}img{{max-width:100%}}</style>"
        f"<h1>{html.escape(title)}</h1>{''.join(blocks)}</html>\n"
    )


def _picture(answers: Answers, true: Floats, learned: Floats, analytic: Floats, unit: str) -> str:
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    by_regime = masks(answers.requests)
    for axes, regime in zip(figure.subplots(1, len(Regime)), Regime, strict=True):
        chosen = by_regime[regime] & np.isfinite(true)
        rows = np.flatnonzero(chosen)[:MAX_POINTS]
        axes.set(
            xscale="log",
            yscale="log",
            title=f"{regime} saturation",
            xlabel=f"true, {unit}",
            ylabel=f"predicted, {unit}",
        )
        if not len(rows):
            continue
        axes.scatter(
            true[rows], analytic[rows], s=4, alpha=0.3, color="tab:orange", label="analytic", edgecolors="none"
        )
        axes.scatter(true[rows], learned[rows], s=4, alpha=0.4, color="tab:blue", label="learned", edgecolors="none")
        span = np.percentile(true[rows], SPAN_PERCENTILES)
        axes.plot(span, span, color="black", linewidth=0.8)
        axes.legend(markerscale=3)
    return _png(figure)


def _png(figure: Any) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return base64.b64encode(data.getvalue()).decode()
