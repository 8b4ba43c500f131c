"""The paper's sixteen data centres: where they are, how clean their grids are, what their buildings draw."""

import csv
from functools import cache

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.data import data_file

Floats = NDArray[np.float64]

FILE = "electricitymaps-umass/ci_lifecycle_2022_hourly_16zones.csv"
REGIONS = {
    "eu-north-1": ("NL", "BE", "LT", "LV"),
    "us-east-1": ("US-MIDA-PJM", "US-NY-NYIS", "US-NE-ISNE", "US-CAR-DUK"),
    "ap-northeast-1": ("JP-TK", "JP-KN", "KR", "TW"),
    "sa-east-1": ("BR-CS", "BR-N", "CL-SEN", "UY"),
}
"""AWS region, whose round trips count, and the zones of its data centres. The paper names the four regions, the zones
of EU-North, and data centres in Japan (§V-A, §V-C); the others are ours."""
ZONES = tuple(zone for zones in REGIONS.values() for zone in zones)
UNIFORM_PUE = 1.1
REAL_PUE = {"NL": 1.08, "BE": 1.10, "LT": 1.10, "LV": 1.10, "JP-TK": 1.32, "JP-KN": 1.32}
"""The paper prints the ends of its range, 1.08 in the Netherlands and 1.32 in Japan; its table is not public. Elsewhere
in Europe the uniform value stands, in the other zones `OTHER_PUE`."""
OTHER_PUE = 1.15
"""Average of AWS' data centres in 2024 (sustainability.aboutamazon.com)."""
EXTREMES = 3
"""Hours of lowest and of highest spread that are run, as in the paper."""


@cache
def intensities() -> Floats:
    """Shape (hours of 2022, 16), gCO2e/kWh, life cycle."""
    with data_file(FILE).open(encoding="utf-8", newline="") as file:
        return np.array([[float(row[zone]) for zone in ZONES] for row in csv.DictReader(file)])


def spread(hour: int) -> float:
    """Coefficient of variation of the intensities over data centres at an hour of the year."""
    return float(_spreads()[hour])


def base_hour() -> int:
    """The hour of the year whose spread is the median. The paper does not say which its base hour is."""
    order = np.argsort(_spreads(), kind="stable")
    return int(order[len(order) // 2])


def extreme_hours(count: int = EXTREMES) -> tuple[int, ...]:
    """The hours of lowest spread and those of highest, rising."""
    order = np.argsort(_spreads(), kind="stable")
    return tuple(int(hour) for hour in (*order[:count], *order[-count:]))


def pue(zone: str, *, real: bool) -> float:
    """Of a data centre in a zone."""
    return REAL_PUE.get(zone, OTHER_PUE) if real else UNIFORM_PUE


@cache
def _spreads() -> Floats:
    table = intensities()
    found: Floats = table.std(axis=1) / table.mean(axis=1)
    return found
