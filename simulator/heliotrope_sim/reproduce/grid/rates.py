"""Marginal emission rates of a fleet's zones, hour by hour: the illustration's, or a user's own."""

import csv
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np

from heliotrope.carbon.series import Series, unix_seconds
from heliotrope.errors import InvalidInputError
from heliotrope.providers.curtailment import with_curtailment_credit
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.data import data_file
from heliotrope_sim.reproduce.grid.curtailment import Floats, marginal_rates
from heliotrope_sim.reproduce.grid.moer import read_folder
from heliotrope_sim.reproduce.grid.zones import ZONES, Zone, zone_named

FILE = "electricitymaps-umass/ci_lifecycle_2022_hourly_19us.csv"
REFERENCE = "US-CAL-CISO"


@dataclass(frozen=True, slots=True)
class Rates:
    """One row per full hour, one column per zone."""

    zones: tuple[Zone, ...]
    start_unix_s: float
    g_per_kwh: Floats
    """Shape (hours, d); the rate at the hour's start, which holds for all of it. NaN: unknown."""
    source: str

    def __len__(self) -> int:
        return len(self.g_per_kwh)

    @property
    def hours_unix(self) -> Floats:
        """Whole hours since 1970 of every row."""
        hours: Floats = np.round(self.start_unix_s / SECONDS_PER_HOUR) + np.arange(len(self), dtype=np.float64)
        return hours

    @property
    def months(self) -> Floats:
        """Month of every row, 1 to 12."""
        return np.array([datetime.fromtimestamp(h * SECONDS_PER_HOUR, UTC).month for h in self.hours_unix], np.float64)

    @property
    def zero(self) -> Floats:
        """Where power is curtailed, as 0 and 1; unknown is 0."""
        return np.where(self.g_per_kwh == 0.0, 1.0, 0.0)

    @property
    def uncurtailed_g_per_kwh(self) -> Floats:
        """Each zone's median rate above zero, length d: what the zeros are worth without any credit."""
        above = np.where(self.g_per_kwh > 0.0, self.g_per_kwh, np.nan)
        return np.asarray(np.nanmedian(above, axis=0), dtype=np.float64)

    def credited(self, alpha: float) -> "Rates":
        """With every zero replaced by α × the zone's median rate above zero.

        Raises:
            InvalidInputError: if a zone has nothing but zeros.
        """
        rates = self.g_per_kwh.copy()
        for i in range(len(self.zones)):
            known = np.flatnonzero(np.isfinite(rates[:, i]))
            values = tuple(rates[known, i].tolist())
            series = Series(tuple(known.astype(float).tolist()), values, (None,) * len(values), SECONDS_PER_HOUR)
            rates[known, i] = with_curtailment_credit(series, alpha).values_g_per_kwh
        return replace(self, g_per_kwh=rates)


def illustration() -> Rates:
    """The stand-in of `heliotrope_sim.reproduce.grid.curtailment` over `ZONES`, 2022."""
    with data_file(FILE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    average = np.array([[float(row[zone.name]) for zone in ZONES] for row in rows])
    reference = [zone.name for zone in ZONES].index(REFERENCE)
    return Rates(
        ZONES,
        unix_seconds(rows[0]["datetime_utc"]),
        marginal_rates(average, reference),
        "stand-in made from average intensity",
    )


@lru_cache(maxsize=2)
def rates(folder: Path | None) -> Rates:
    """The user's own rates, else the illustration's.

    Raises:
        InvalidInputError: if the folder cannot be used; the message names file and line.
    """
    if folder is None:
        return illustration()
    read = read_folder(folder)
    zones = tuple(zone_named(name, str(folder / name)) for name in read.names)
    found = Rates(zones, read.start_unix_s, read.g_per_kwh, f"marginal emission rates of {folder.name}")
    for zone, column in zip(zones, found.g_per_kwh.T, strict=True):
        if not (column > 0.0).any():
            raise InvalidInputError(str(folder / zone.name), "has no rate above zero at a full hour")
    return found


@lru_cache(maxsize=8)
def credited(folder: Path | None, alpha: float) -> Rates:
    """`rates` with the credit α for zeros."""
    return rates(folder).credited(alpha)
