"""What the rates look like: how often they are zero, and when."""

import numpy as np

from heliotrope.units import GRAMS_PER_POUND
from heliotrope_sim.reproduce.grid.curtailment import (
    MEAN_WITH_ZEROS_LB_PER_MWH,
    MEAN_WITHOUT_ZEROS_LB_PER_MWH,
    Floats,
)
from heliotrope_sim.reproduce.grid.rates import REFERENCE
from heliotrope_sim.reproduce.grid.study import Part, Study
from heliotrope_sim.reproduce.plots import new_figure, png_base64
from heliotrope_sim.reproduce.report import Picture, Sheet
from heliotrope_sim.reproduce.row import PERCENT, Row

CALIFORNIA = ("CAISO_NORTH", REFERENCE)
"""The first of these that is there is compared with the paper's CAISO-North."""
MIDDAY_UTC = (18, 19, 20, 21)
"""Ten to two o'clock in California, standard time."""
HOURS_PER_DAY = 24
_LB_PER_MWH = 1_000.0 / GRAMS_PER_POUND


def zeros_by_hour(study: Study) -> Floats:
    """Share of days on which a zone's rate is zero, shape (24, d), by UTC hour."""
    hour = study.rates.hours_unix % HOURS_PER_DAY
    return np.array([study.rates.zero[hour == h].mean(axis=0) for h in range(HOURS_PER_DAY)])


def _rows(study: Study) -> list[Row]:
    rates = study.rates
    names = [zone.name for zone in rates.zones]
    built_in = "built into the stand-in" if study.settings.moer is None else "of the given series"
    overall = Row(
        "signal/zero-share",
        "Hours and zones with curtailed power",
        None,
        float(rates.zero.mean()) * PERCENT,
        "%",
        None,
        built_in,
    )
    name = next((each for each in CALIFORNIA if each in names), None)
    if name is None:
        return [overall]
    column = rates.g_per_kwh[:, names.index(name)] * _LB_PER_MWH
    midday = float(zeros_by_hour(study)[list(MIDDAY_UTC), names.index(name)].mean()) * PERCENT
    return [
        overall,
        Row(
            "signal/california-mean",
            f"{name}: mean rate",
            MEAN_WITH_ZEROS_LB_PER_MWH,
            float(np.nanmean(column)),
            "lb/MWh",
            None,
            f"{built_in}; the paper's is CAISO-North",
        ),
        Row(
            "signal/california-mean-without-zeros",
            f"{name}: mean rate without its zeros",
            MEAN_WITHOUT_ZEROS_LB_PER_MWH,
            float(np.nanmean(column[column > 0.0])),
            "lb/MWh",
            None,
            built_in,
        ),
        Row(
            "signal/california-midday-zeros",
            f"{name}: zero at midday",
            "73 to 91",
            midday,
            "%",
            None,
            "ten to two o'clock"
            + study.of_stand_in("; average intensity places fewer of the zeros at midday than WattTime's model"),
        ),
    ]


def _pictures(study: Study) -> list[Picture]:
    zones = study.rates.zones
    figure = new_figure(9.0, 0.28 * len(zones) + 1.4)
    axes = figure.subplots()
    image = axes.imshow(zeros_by_hour(study).T * PERCENT, aspect="auto", cmap="Greens", vmin=0.0)
    axes.set_yticks(range(len(zones)), [zone.name for zone in zones])
    axes.set_xticks(range(0, HOURS_PER_DAY, 3))
    axes.set_xlabel("hour of the day, UTC")
    figure.colorbar(image, label="days with a zero rate, %")
    note = "Where and when power is curtailed, as the placement sees it."
    return [Picture("Hours with curtailed power", png_base64(figure), note, id="signal")]


def _sheets(study: Study) -> list[Sheet]:
    rates = study.rates
    rows = tuple(
        (
            zone.name,
            f"{np.nanmean(rates.g_per_kwh[:, i]):.0f}",
            f"{rates.uncurtailed_g_per_kwh[i]:.0f}",
            f"{rates.zero[:, i].mean() * PERCENT:.1f}",
            f"{zone.pue:g}",
        )
        for i, zone in enumerate(rates.zones)
    )
    columns = ("zone", "mean, g/kWh", "median above zero, g/kWh", "zero, %", "PUE (assumed)")
    return [Sheet("Zones and their marginal rates", columns, rows, f"Rates: {rates.source}.", id="signal")]


SIGNAL = Part("signal", lambda _arms: (), _rows, _pictures, _sheets)
