"""What zeros are worth: each at α times its zone's median rate above zero, and the year placed again (paper, §6)."""

from itertools import pairwise

import numpy as np

from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.grid.runs import Run
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row, above_zero, percent_row

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
PAPER = {0.0: 51.0, 1.0: 34.0}
PAPER_WITHOUT_ZEROS = 24.5


def _runs(arms: Arms) -> tuple[Run, ...]:
    return tuple(arms.capped(credit=alpha) for alpha in ALPHAS)


def by_alpha(study: Study) -> list[Interval]:
    """The saving for every α."""
    return [study.saved(run) for run in _runs(study.arms)]


def _rows(study: Study) -> list[Row]:
    found = by_alpha(study)
    rows = [
        percent_row(
            f"credit/alpha-{alpha:g}",
            f"Saved by cleanest-first, α = {alpha:g}",
            PAPER.get(alpha),
            each,
            holds=above_zero(each, quick=study.settings.quick) if alpha in PAPER else None,
            note="holds if positive" if alpha in PAPER else "",
        )
        for alpha, each in zip(ALPHAS, found, strict=True)
    ]
    estimates = [each.estimate for each in found]
    rows.append(
        Row(
            "credit/shape",
            "The saving falls as zeros are worth less",
            "51 → 34",
            f"{estimates[0] * PERCENT:.1f} → {estimates[-1] * PERCENT:.1f}",
            "%",
            all(before > after for before, after in pairwise(estimates)) and estimates[-1] > 0.0,
            "holds if it falls at every step and something is left at α = 1"
            + study.of_stand_in(
                ". Less is left here: above zero the stand-in has one rate wherever gas is at the margin, so zones "
                "differ less than in the paper's series"
            ),
        )
    )
    return [*rows, _without_zeros(study)]


def _without_zeros(study: Study) -> Row:
    """Cleaning data by dropping hours with a zero anywhere, which the paper reports as context."""
    grams, baseline = study.grams(study.arms.capped()), study.grams(study.arms.round_robin())
    kept = study.rates.zero.sum(axis=1) == 0.0
    total = baseline[kept].sum()
    saved = float(1.0 - grams[kept].sum() / total) * PERCENT if total > 0.0 else np.nan
    return Row(
        "credit/without-zero-hours",
        "Saved in the hours without any zero",
        PAPER_WITHOUT_ZEROS,
        saved,
        "%",
        None,
        f"{kept.mean() * PERCENT:.0f} % of the hours are left; which hours a data cleaning drops is not what α asks",
    )


def _pictures(study: Study) -> list[Picture]:
    figure = new_figure()
    axes = figure.subplots()
    axes.plot(list(PAPER), list(PAPER.values()), "o--", color="tab:gray", label="paper")
    with_intervals(axes, ALPHAS, by_alpha(study), color="tab:green", label=study.label)
    axes.set(xlabel="α: what a zero counts as, over the median rate above zero", ylabel="CO2 saved, %")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    return [Picture("What the credit for curtailed power is worth", png_base64(figure), id="credit")]


CREDIT = Part("credit", _runs, _rows, _pictures)
