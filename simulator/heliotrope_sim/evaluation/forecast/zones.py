"""The recorded zones, hourly, 2022: whole-life average intensity of Electricity Maps (ODbL, see data/README.md)."""

import csv
from collections.abc import Mapping

import numpy as np

from heliotrope.carbon.forecast.hours import Hours, hour_of
from heliotrope.carbon.series import unix_seconds
from heliotrope_sim.data import data_file

FOLDER = "electricitymaps-umass"
TABLES = (
    "ci_lifecycle_2022_hourly_4zones.csv",
    "ci_lifecycle_2022_hourly_16zones.csv",
    "ci_lifecycle_2022_hourly_19us.csv",
)
SINGLE = ("BR", "ES", "NO")
"""Zones that have a file of their own; the fourth of them, US-CAL-CISO, is in the tables too."""


def zones() -> Mapping[str, Hours]:
    """By name, in alphabetical order.

    Raises:
        DataFileMissingError: if a file is not there.
    """
    found: dict[str, Hours] = {}
    for table in TABLES:
        found = _columns(f"{FOLDER}/{table}") | found
    for zone in SINGLE:
        found[zone] = _columns(f"carbon/{zone}.csv")["ci_lifecycle"]
    return dict(sorted(found.items()))


def _columns(name: str) -> dict[str, Hours]:
    """Every column of numbers; rows are consecutive hours."""
    with data_file(name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    header, body = rows[0], rows[1:]
    first = hour_of(unix_seconds(body[0][0]))
    assert [hour_of(unix_seconds(row[0])) for row in (body[1], body[-1])] == [first + 1, first + len(body) - 1]
    return {
        column: Hours(first, np.array([float(row[i]) if row[i] else np.nan for row in body]))
        for i, column in enumerate(header)
        if i and column != "estimated"
    }
