"""Beyond the paper: how much load a zone's curtailed power serves, beside what a zero is worth (paper, §8).

Headroom is in units of a zone's mean load. What a zone takes beyond it in a curtailed hour has its median rate above
zero, for every policy alike, and the dispatcher knows both.
"""

from itertools import pairwise
from math import inf

import numpy as np

from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.runs import Run
from heliotrope_sim.reproduce.grid.settle import stepped_grams
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.grid.tranches import tranches
from heliotrope_sim.reproduce.plots import new_figure, png_base64
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row, percent_row

HEADROOMS = (0.5, 1.0, 2.0, 4.0, inf)
ALPHAS = (0.0, 0.5, 1.0)


def _runs(arms: Arms) -> tuple[Run, ...]:
    return tuple(arms.capped(credit=alpha, headroom=headroom) for headroom in HEADROOMS for alpha in ALPHAS)


def _saved(study: Study, run: Run) -> Interval:
    if not np.isfinite(run.headroom):
        return study.saved(run)
    return study.saving(_grams(study, run, run), _grams(study, study.arms.round_robin(), run))


def _grams(study: Study, run: Run, supply: Run) -> Floats:
    """Of a run's loads at another's supply."""
    steps = tranches(supply, study.rates, study.demand.total)
    loads = study.placed[run].loads.astype(np.float64) * supply.cohorts / run.cohorts
    return stepped_grams(study.joules(run), loads, steps, study.settled(supply.credit).g_per_kwh)


def surface(study: Study) -> list[list[Interval]]:
    """The saving by headroom, in each by α."""
    return [[_saved(study, study.arms.capped(credit=a, headroom=h)) for a in ALPHAS] for h in HEADROOMS]


def _rows(study: Study) -> list[Row]:
    found = surface(study)
    rows = [
        percent_row(
            f"headroom/{headroom:g}/alpha-{alpha:g}",
            f"Saved by cleanest-first, headroom {_name(headroom)}, α = {alpha:g}",
            None,
            each,
            holds=None,
        )
        for headroom, line in zip(HEADROOMS, found, strict=True)
        for alpha, each in zip(ALPHAS, line, strict=True)
    ]
    full = [line[0].estimate for line in found]
    rows.append(
        Row(
            "headroom/shape",
            "The saving grows with what curtailed power can serve, α = 0",
            None,
            " , ".join(f"{each * PERCENT:.1f}" for each in full),
            "%",
            all(before <= after for before, after in pairwise(full)) and full[0] < full[-1],
            "holds if it grows and never falls; the paper's 34 to 51 % are without any limit",
        )
    )
    return rows


def _name(headroom: float) -> str:
    return f"{headroom:g} × a zone's load" if np.isfinite(headroom) else "without limit"


def _pictures(study: Study) -> list[Picture]:
    values = np.array([[each.estimate for each in line] for line in surface(study)]) * PERCENT
    figure = new_figure(7.0, 4.0)
    axes = figure.subplots()
    image = axes.imshow(values, aspect="auto", cmap="Greens", vmin=0.0, origin="lower")
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            axes.text(
                j, i, f"{value:.0f} %", ha="center", va="center", color="white" if value > values.max() / 2 else "black"
            )
    axes.set_xticks(range(len(ALPHAS)), [f"{alpha:g}" for alpha in ALPHAS])
    axes.set_yticks(range(len(HEADROOMS)), [f"{h:g}" if np.isfinite(h) else "no limit" for h in HEADROOMS])
    axes.set(xlabel="α: what a zero counts as", ylabel="headroom, × a zone's mean load")
    figure.colorbar(image, label="CO2 saved, %")
    note = "Capped cleanest-first with sessions against round robin, both with the same limit on curtailed power."
    return [Picture("Savings by headroom and credit", png_base64(figure), note, id="headroom")]


HEADROOM = Part("headroom", _runs, _rows, _pictures)
