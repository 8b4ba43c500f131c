"""Beyond the paper: energy that depends on the load, where a zone that gets more of it runs larger batches.

How much a zone may take at most fixes how full the fleet can be: with a cap of 50 % one zone serves 9.5 times its even
share, so at the busiest hour an even split may fill a tenth of every engine and no more. So each cap is run at the
highest load that it allows.
"""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.bootstrap import Interval
from heliotrope.engine.profiles import load
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.engine_energy import Curve, curve, hourly_joules
from heliotrope_sim.reproduce.grid.rates import rates
from heliotrope_sim.reproduce.grid.replay import OUTPUT_TOKENS, PROFILE, PROMPT_TOKENS
from heliotrope_sim.reproduce.grid.runs import Run
from heliotrope_sim.reproduce.grid.settle import hourly_grams, load_shares
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row, percent_row

CAPS = (0.5, 0.3, 0.2, 0.1)
CONTEXT_TOKENS = PROMPT_TOKENS + OUTPUT_TOKENS / 2.0


@dataclass(frozen=True, slots=True)
class Found:
    """Savings under one cap."""

    cap: float
    mean_load: float
    """Of the engines' most tokens per second, at an even split and an average hour."""
    fixed: Interval
    by_step: Interval
    drawn: Interval
    """With idle time and hosts."""


def _runs(arms: Arms) -> tuple[Run, ...]:
    return tuple(arms.capped(cap=cap) for cap in caps(len(rates(arms.settings.moer).zones)))


def caps(zones: int) -> list[float]:
    """Those that hold all of the load and leave a choice."""
    return [cap for cap in CAPS if cap * zones > 1.0]


def by_cap(study: Study) -> list[Found]:
    """All caps."""
    engine = curve(load(PROFILE), CONTEXT_TOKENS)
    return [_found(study, engine, cap) for cap in caps(len(study.rates.zones))]


def _found(study: Study, engine: Curve, cap: float) -> Found:
    run, baseline = study.arms.capped(cap=cap), study.arms.round_robin()
    zones = len(study.rates.zones)
    mean_load = 1.0 / (zones * cap * float(study.demand.total.max()))

    def grams(which: Run, standing: bool) -> Floats:
        share = load_shares(study.placed[which]) * zones * study.demand.total[:, None]
        tokens_per_second = mean_load * engine.most_tokens_per_second * share
        return hourly_grams(hourly_joules(engine, tokens_per_second, standing=standing), study.settled(0.0).g_per_kwh)

    def saved(standing: bool) -> Interval:
        return study.saving(grams(run, standing), grams(baseline, standing))

    return Found(cap, mean_load, study.saved(run), saved(standing=False), saved(standing=True))


def _rows(study: Study) -> list[Row]:
    rows = []
    for found in by_cap(study):
        name = f"cap {found.cap * PERCENT:g} %, engines {found.mean_load * PERCENT:.0f} % busy"
        id_ = f"load/cap-{found.cap * PERCENT:g}"
        rows += [
            percent_row(f"{id_}/fixed", f"Saved at 0.104 J per token, {name}", None, found.fixed, holds=None),
            percent_row(
                f"{id_}/by-step",
                f"Saved with energy by the step model, {name}",
                None,
                found.by_step,
                holds=found.by_step.estimate > found.fixed.estimate,
                note="holds if more than at a fixed energy: larger batches draw less per token",
            ),
            percent_row(
                f"{id_}/drawn",
                f"Saved of all that engines and hosts draw, {name}",
                None,
                found.drawn,
                holds=None,
                note="idle engines stay awake in every zone and draw from dirty grids, too",
            ),
        ]
    return rows


def _pictures(study: Study) -> list[Picture]:
    found = by_cap(study)
    engine = curve(load(PROFILE), CONTEXT_TOKENS)
    figure = new_figure(11.0)
    left, right = figure.subplots(1, 2)
    left.plot(np.arange(1, len(engine.joules_per_token) + 1), engine.joules_per_token, color="tab:green", label=PROFILE)
    left.axhline(0.104, color="tab:gray", linestyle="--", label="paper: 0.104 J")
    left.set(xlabel="sequences in the batch", ylabel="J per output token", xscale="log", yscale="log")
    left.legend()
    x = [each.mean_load * PERCENT for each in found]
    with_intervals(right, x, [each.fixed for each in found], color="tab:gray", label="0.104 J per token")
    with_intervals(right, x, [each.by_step for each in found], color="tab:green", label="step model")
    with_intervals(right, x, [each.drawn for each in found], color="tab:red", label="all that is drawn")
    for each, at in zip(found, x, strict=True):
        right.annotate(
            f"cap {each.cap * PERCENT:g} %", (at, each.by_step.estimate * PERCENT), (4, 4), textcoords="offset points"
        )
    right.set(xlabel="mean load of the engines, %", ylabel="CO2 saved against round robin, %")
    right.set_ylim(bottom=0.0)
    right.set_xlim(0.0, max(x) * 1.15)
    right.legend()
    note = (
        "Right: each cap at the highest mean load at which no zone is asked for more than its engines give in the "
        "busiest hour. The fuller the fleet, the less of it fits into the cleanest zones."
    )
    return [Picture("Energy that depends on the load", png_base64(figure), note, id="load")]


LOAD = Part("load", _runs, _rows, _pictures)
