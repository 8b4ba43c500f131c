"""How the headline's interval depends on the length of the bootstrap's blocks."""

from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.grid.headline import PAPER_CAPPED
from heliotrope_sim.reproduce.grid.study import Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row

BLOCK_DAYS = (1, 5, 7, 14)
PAPER_INTERVALS = ("49.4 to 52.4", "48.5 to 53.3", "48.3 to 53.6", "47.6 to 54.4")
HOURS_PER_DAY = 24


def _intervals(study: Study) -> list[Row]:
    found = by_blocks(study)
    rows = [
        Row(
            f"interval/{days}-day",
            f"95 % interval of cleanest-first, blocks of {days} d",
            paper,
            f"{each.low * PERCENT:.1f} to {each.high * PERCENT:.1f}" if each.known else "–",
            "%",
            None,
            "of the hours that happened to be in the series, and of nothing else",
        )
        for days, each, paper in zip(BLOCK_DAYS, found, PAPER_INTERVALS, strict=True)
    ]
    widths = [(each.high - each.low) * PERCENT for each in found]
    rows.append(
        Row(
            "interval/shape",
            "The interval widens with the blocks",
            "3.0 , 4.8 , 5.3 , 6.8",
            " , ".join(f"{width:.1f}" for width in widths),
            "points",
            widths[-1] > widths[0] and min(each.low for each in found) > 0.0 if all(f.known for f in found) else None,
            "holds if blocks of 14 days give a wider one than blocks of a day, and all are above zero",
        )
    )
    return rows


def by_blocks(study: Study) -> list[Interval]:
    """The headline's interval for every block length."""
    grams, baseline = study.grams(study.arms.capped()), study.grams(study.arms.round_robin())
    return [study.saving(grams, baseline, days * HOURS_PER_DAY) for days in BLOCK_DAYS]


def _intervals_pictures(study: Study) -> list[Picture]:
    figure = new_figure(9.0, 3.0)
    axes = figure.subplots()
    names = [f"{days} d" for days in BLOCK_DAYS]
    with_intervals(axes, names, by_blocks(study), color="tab:green", linestyle="none", label=study.label)
    paper = [tuple(float(v) for v in text.split(" to ")) for text in PAPER_INTERVALS]
    axes.errorbar(
        names,
        [PAPER_CAPPED] * len(names),
        ([PAPER_CAPPED - low for low, _ in paper], [high - PAPER_CAPPED for _, high in paper]),
        marker="o",
        capsize=3,
        color="tab:gray",
        linestyle="none",
        label="paper",
    )
    axes.set(xlabel="length of the bootstrap's blocks", ylabel="CO2 saved, %")
    axes.legend()
    return [Picture("Intervals by the length of blocks", png_base64(figure), id="interval")]


INTERVALS = Part("interval", lambda arms: (arms.capped(),), _intervals, _intervals_pictures)
