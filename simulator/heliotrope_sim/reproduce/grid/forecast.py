"""Beyond the paper: dispatch on what is known before the hour begins, settled with what came."""

from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.grid.runs import Run
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.grid.views import View
from heliotrope_sim.reproduce.plots import new_figure, png_base64
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row, above_zero, percent_row

VIEWS = {
    View.FORESIGHT: "foresight",
    View.LAST_HOUR: "last-hour",
    View.LAST_WEEK: "last-week",
    View.YESTERDAY: "yesterday",
    View.YEAR: "year",
}


def _runs(arms: Arms) -> tuple[Run, ...]:
    return tuple(arms.capped(view=view) for view in VIEWS)


def _found(study: Study) -> dict[View, Interval]:
    return {view: study.saved(study.arms.capped(view=view)) for view in VIEWS}


def _rows(study: Study) -> list[Row]:
    found = _found(study)
    best, least = found[View.FORESIGHT].estimate, found[View.YEAR].estimate
    rows = []
    for view, name in VIEWS.items():
        each = found[view]
        kept = (each.estimate - least) / (best - least) * PERCENT if best > least else float("nan")
        forecast = view not in (View.FORESIGHT, View.YEAR)
        rows.append(
            percent_row(
                f"forecast/{name}",
                f"Saved by cleanest-first that sees {view}",
                None,
                each,
                holds=above_zero(each, quick=study.settings.quick) and each.estimate <= best if forecast else None,
                note=f"holds if positive and no more than with foresight; keeps {kept:.0f} % of what the hours add"
                if forecast
                else "",
            )
        )
    return rows


def _pictures(study: Study) -> list[Picture]:
    found = _found(study)
    figure = new_figure(9.0, 3.4)
    axes = figure.subplots()
    names = [str(view) for view in reversed(VIEWS)]
    values = [found[view] for view in reversed(VIEWS)]
    axes.barh(names, [each.estimate * PERCENT for each in values], color="tab:green")
    axes.axvline(found[View.YEAR].estimate * PERCENT, color="black", linewidth=0.8, linestyle=":")
    for i, each in enumerate(values):
        if each.known:
            axes.plot([each.low * PERCENT, each.high * PERCENT], [i, i], color="black")
    axes.set_xlabel("CO2 saved against round robin, %")
    note = (
        "Capped cleanest-first with sessions. Naive forecasts; the dotted line is what the year's means save without "
        "any. Readings come every five minutes in production: an hour of delay is more than a dispatcher has."
    )
    return [Picture("Forecasts instead of foresight", png_base64(figure), note, id="forecast")]


FORECAST = Part("forecast", _runs, _rows, _pictures)
