"""Readings that are missing or stale: placement goes by pressure alone, and nothing fails (paper, §3.1 and §8)."""

from heliotrope_sim.reproduce.grid.runs import Run
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64, with_intervals
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row, percent_row

SHARES = (0.001, 0.01, 0.05, 1.0)
"""Of the readings that are missing."""
NOTHING = 0.01
"""By pressure alone a year saves less than this, either way."""


def _runs(arms: Arms) -> tuple[Run, ...]:
    return (arms.capped(), *(arms.capped(unknown=share) for share in SHARES), *_soft(arms))


def _soft(arms: Arms) -> tuple[Run, ...]:
    return (arms.soft(unknown=1.0),)


def _rows(study: Study) -> list[Row]:
    unplaced = sum(study.placed[run].unplaced for run in _runs(study.arms))
    rows = [
        Row(
            "stale/failed",
            "Requests that nobody took, over all shares of missing readings",
            0.0,
            float(unplaced),
            "cohorts",
            unplaced == 0,
            "holds if none",
        )
    ]
    for share in SHARES:
        run = study.arms.capped(unknown=share)
        found, blind = study.saved(run), 1.0 - float(study.placed[run].by_carbon.mean())
        name = f"{share * PERCENT:g} %"
        rows.append(
            percent_row(
                f"stale/saved-{share * PERCENT:g}",
                f"Saved by cleanest-first, {name} of the readings missing",
                None,
                found,
                holds=abs(found.estimate) < NOTHING if share == 1.0 else None,
                note="holds if nothing, either way: pressure alone"
                if share == 1.0
                else f"{blind:.1%} of the hours by pressure alone",
            )
        )
    (soft,) = _soft(study.arms)
    found = study.saved(soft)
    rows.append(
        percent_row(
            "stale/soft-saved-100",
            "Saved by the soft multiplier without any reading",
            None,
            found,
            holds=abs(found.estimate) < NOTHING,
            note="holds if nothing, either way",
        )
    )
    return rows


def _pictures(study: Study) -> list[Picture]:
    figure = new_figure()
    axes = figure.subplots()
    shares = (0.0, *SHARES)
    found = [study.saved(study.arms.capped(unknown=share)) for share in shares]
    blind = [float(1.0 - study.placed[study.arms.capped(unknown=share)].by_carbon.mean()) * PERCENT for share in shares]
    names = [f"{share * PERCENT:g} %" for share in shares]
    axes.bar(names, blind, color="lightgray", label="hours that go by pressure alone")
    with_intervals(axes, names, found, color="tab:green", label="CO2 saved")
    axes.set(xlabel="readings missing, for six hours at a time", ylabel="%")
    axes.legend()
    note = (
        "One zone whose rate is unknown takes carbon out of the decision for all: an unknown rate compares with none. "
        "With many zones few gaps in each go a long way."
    )
    return [Picture("Missing readings", png_base64(figure), note, id="stale")]


STALE = Part("stale", _runs, _rows, _pictures)
