"""How much the soft multiplier saves by its weight, and by how full the engines are."""

from heliotrope_sim.reproduce.grid.headline import PAPER_SOFT
from heliotrope_sim.reproduce.grid.runs import NEAR_SATURATION, Run, Sessions
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row, above_zero, percent_row

WEIGHTS = (0.25, 0.5, 1.0)
BATCHES = (1.0, 8.0)
"""Sequences per engine at an even split, beside `NEAR_SATURATION`."""


def _soft_runs(arms: Arms) -> tuple[Run, ...]:
    weights = [arms.soft(weight=w) for w in WEIGHTS]
    return (*weights, *(arms.soft(batch=b) for b in BATCHES), arms.soft(sessions=Sessions.FREE))


def _soft(study: Study) -> list[Row]:
    arms, quick = study.arms, study.settings.quick
    by_weight = [study.saved(arms.soft(weight=w)) for w in WEIGHTS]
    rows = [
        percent_row(
            f"soft/w-{w:g}",
            f"Saved by the soft multiplier, w = {w:g}",
            PAPER_SOFT if w == 1.0 else None,
            found,
            holds=above_zero(found, quick=quick),
            note="holds if positive" + ("" if w == 1.0 else "; the paper replays w = 1 only"),
        )
        for w, found in zip(WEIGHTS, by_weight, strict=True)
    ]
    rows.append(
        Row(
            "soft/shape",
            "It saves more the larger w is",
            None,
            " , ".join(f"{each.estimate * PERCENT:.1f}" for each in by_weight),
            "%",
            by_weight[0].estimate < by_weight[1].estimate < by_weight[2].estimate,
            "holds if they rise",
        )
    )
    rows.append(
        percent_row(
            "soft/no-sessions",
            "Saved by the soft multiplier, w = 1, no sessions",
            None,
            study.saved(arms.soft(sessions=Sessions.FREE)),
            holds=None,
            note="sessions cost it less than cleanest-first: it hardly moves load",
        )
    )
    rows += [
        percent_row(
            f"soft/batch-{b:g}",
            f"Saved by the soft multiplier, w = 1, engines with {b:g} in the batch",
            None,
            study.saved(arms.soft(batch=b)),
            holds=None,
            note="pressure of nearly idle engines differs little between zones, so the multiplier decides",
        )
        for b in BATCHES
    ]
    return rows


def _soft_pictures(study: Study) -> list[Picture]:
    figure = new_figure(9.0, 3.4)
    axes = figure.subplots()
    by_weight = [study.saved(study.arms.soft(weight=w)) for w in WEIGHTS]
    with_intervals(axes, WEIGHTS, by_weight, color="tab:green", label=f"{NEAR_SATURATION:g} sequences per engine")
    for batch, marker in zip(BATCHES, ("s", "^"), strict=True):
        found = [study.saved(study.arms.soft(batch=batch))]
        with_intervals(axes, [1.0], found, marker=marker, linestyle="none", label=f"{batch:g} per engine")
    axes.plot([1.0], [PAPER_SOFT], "D", color="tab:gray", label="paper")
    axes.set(xlabel="w", ylabel="CO2 saved, %", xlim=(0.0, 1.1))
    axes.set_ylim(bottom=0.0)
    axes.legend()
    return [Picture("The soft multiplier by its weight and by the load", png_base64(figure), id="soft")]


SOFT = Part("soft", _soft_runs, _soft, _soft_pictures)
