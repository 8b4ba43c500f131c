"""Hourly carbon intensity of the paper's four regions in 2022."""

import csv
from datetime import UTC, datetime
from functools import cache

import numpy as np

from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.data import data_file
from heliotrope_sim.reproduce.context.profiles import REGIONS, Floats

FILE = "electricitymaps-umass/ci_lifecycle_2022_hourly_4zones.csv"


@cache
def intensities() -> Floats:
    """Shape (hours, 4), gCO2e/kWh, from the first hour of 2022 on, in the order of `REGIONS`."""
    with data_file(FILE).open(encoding="utf-8", newline="") as file:
        return np.array([[float(row[zone]) for zone in REGIONS] for row in csv.DictReader(file)])


def hour_of_year(month: int, day: int, hour: int = 0) -> int:
    """Index of an hour of 2022."""
    return round(
        (datetime(2022, month, day, hour, tzinfo=UTC) - datetime(2022, 1, 1, tzinfo=UTC)).total_seconds()
        / SECONDS_PER_HOUR
    )
