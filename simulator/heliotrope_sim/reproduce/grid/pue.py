"""Beyond the paper: facility overhead that differs between sites. The PUEs are assumptions by climate, see `zones`."""

import numpy as np

from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.runs import Run
from heliotrope_sim.reproduce.grid.settle import hourly_grams
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import Row, percent_row

ALPHAS = (0.0, 1.0)


def _runs(arms: Arms) -> tuple[Run, ...]:
    return tuple(arms.capped(credit=alpha, by_pue=by_pue) for alpha in ALPHAS for by_pue in (False, True))


def _saved(study: Study, run: Run) -> Interval:
    """With every zone's joules behind its PUE."""
    factor = np.array([zone.pue for zone in study.rates.zones])

    def grams(which: Run) -> Floats:
        return hourly_grams(study.joules(which) * factor, study.settled(run.credit).g_per_kwh)

    return study.saving(grams(run), grams(study.arms.round_robin()))


def _found(study: Study, alpha: float) -> tuple[Interval, Interval, Interval]:
    blind, ranked = study.arms.capped(credit=alpha), study.arms.capped(credit=alpha, by_pue=True)
    return study.saved(blind), _saved(study, blind), _saved(study, ranked)


def _rows(study: Study) -> list[Row]:
    rows = []
    for alpha in ALPHAS:
        without, blind, ranked = _found(study, alpha)
        rows += [
            percent_row(f"pue/alpha-{alpha:g}/none", f"Saved without PUE, α = {alpha:g}", None, without, holds=None),
            percent_row(
                f"pue/alpha-{alpha:g}/settled",
                f"Saved with PUE, zones ranked by rate, α = {alpha:g}",
                None,
                blind,
                holds=None,
            ),
            percent_row(
                f"pue/alpha-{alpha:g}/ranked",
                f"Saved with PUE, zones ranked by rate times PUE, α = {alpha:g}",
                None,
                ranked,
                holds=ranked.estimate >= blind.estimate,
                note="holds if no less than ranked by the rate alone; a zero stays zero behind any PUE",
            ),
        ]
    return rows


def _pictures(study: Study) -> list[Picture]:
    figure = new_figure()
    axes = figure.subplots()
    names = ["no PUE", "PUE settled,\nranked by rate", "PUE settled,\nranked by rate × PUE"]
    for i, alpha in enumerate(ALPHAS):
        x = [j + 0.2 * i - 0.1 for j in range(len(names))]
        with_intervals(axes, x, _found(study, alpha), linestyle="none", label=f"α = {alpha:g}")
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("CO2 saved against round robin, %")
    axes.set_ylim(bottom=0.0)
    axes.legend(loc="center right")
    note = "Assumed PUEs between 1.08 and 1.32 by climate; the table of zones has them."
    return [Picture("Facility overhead by site", png_base64(figure), note, id="pue")]


PUE = Part("pue", _runs, _rows, _pictures)
