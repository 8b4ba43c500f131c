"""When the saving is large: by season and by hour of the day (paper, §6)."""

import numpy as np

from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.replay import Flags
from heliotrope_sim.reproduce.grid.study import Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64
from heliotrope_sim.reproduce.report import Picture
from heliotrope_sim.reproduce.row import PERCENT, Row

SEASONS = {"winter": (12, 1, 2), "spring": (3, 4, 5), "summer": (6, 7, 8), "autumn": (9, 10, 11)}
PAPER_SPRING, PAPER_PEAK = 63.7, 69.4
SUN_UTC = range(16, 24)
"""When the sun is high over some of the country."""
HOURS_PER_DAY = 24


def by_season(study: Study) -> dict[str, float]:
    """Saving of capped cleanest-first in each season, a fraction; NaN for a season without hours."""
    months = study.rates.months
    return {name: _saved(study, np.isin(months, members)) for name, members in SEASONS.items()}


def by_hour(study: Study) -> Floats:
    """The same by UTC hour, length 24."""
    hour = study.rates.hours_unix % HOURS_PER_DAY
    return np.array([_saved(study, hour == h) for h in range(HOURS_PER_DAY)])


def _saved(study: Study, rows: Flags) -> float:
    grams, baseline = study.grams(study.arms.capped()), study.grams(study.arms.round_robin())
    total = baseline[rows].sum()
    return float(1.0 - grams[rows].sum() / total) if total > 0.0 else float("nan")


def _rows(study: Study) -> list[Row]:
    seasons, hours = by_season(study), by_hour(study)
    year = study.saved(study.arms.capped()).estimate
    best = int(np.nanargmax(hours))
    whole = all(np.isfinite(value) for value in seasons.values())
    rows = [
        Row(
            f"seasons/{name}",
            f"Saved by cleanest-first in {name}",
            PAPER_SPRING if name == "spring" else None,
            value * PERCENT,
            "%",
            value > year if name == "spring" and whole else None,
            "holds if above the year's" if name == "spring" else "",
        )
        for name, value in seasons.items()
    ]
    return [
        *rows,
        Row(
            "seasons/peak-hour",
            "Saved in the best hour of the day",
            PAPER_PEAK,
            float(hours[best]) * PERCENT,
            "%",
            bool(hours[best] > year),
            "holds if above the year's",
        ),
        Row(
            "seasons/peak-hour-time",
            "The best hour of the day",
            "the sun's peak",
            f"{best}:00 UTC",
            "",
            best in SUN_UTC,
            "holds between 16:00 and 24:00 UTC, when the sun is high over the country"
            + study.of_stand_in(". The stand-in has zeros from wind and low demand at night, too"),
        ),
    ]


def _pictures(study: Study) -> list[Picture]:
    seasons, hours = by_season(study), by_hour(study)
    figure = new_figure(11.0)
    left, right = figure.subplots(1, 2, sharey=True)
    left.bar(list(seasons), [value * PERCENT for value in seasons.values()], color="tab:green", label=study.label)
    left.plot(["spring"], [PAPER_SPRING], "D", color="tab:gray", label="paper")
    left.set_ylabel("CO2 saved against round robin, %")
    left.legend()
    right.plot(range(HOURS_PER_DAY), hours * PERCENT, color="tab:green", label=study.label)
    right.axhline(PAPER_PEAK, color="tab:gray", linestyle="--", label="paper, at its best hour")
    right.set(xlabel="hour of the day, UTC", ylim=(0.0, 100.0))
    right.legend()
    return [
        Picture("When the saving is large", png_base64(figure), "Capped cleanest-first with sessions.", id="seasons")
    ]


SEASONAL = Part("seasons", lambda arms: (arms.capped(),), _rows, _pictures)
