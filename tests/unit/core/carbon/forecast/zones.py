"""Recorded intensity of zones for tests, from the repository's data."""

from functools import cache
from pathlib import Path

import numpy as np

from heliotrope.carbon.forecast.hours import Hours, hour_of
from heliotrope.carbon.series import Series
from heliotrope.providers.history import Names, read_history

DATA = Path(__file__).parents[5] / "data" / "carbon"


@cache
def recorded(zone: str) -> Series:
    return read_history(DATA / f"{zone}.csv", Names(value="ci_lifecycle"))


def year(zone: str) -> Hours:
    """2022 by hour."""
    series = recorded(zone)
    values = np.array(series.values_g_per_kwh)
    assert len(values) == 8760
    return Hours(hour_of(series.times_unix_s[0]), values)


def part(hours: Hours, start: int, end: int) -> Hours:
    return Hours(hours.first + start, hours.values[start:end].copy())


def sunny(days: int, *, seed: int = 0, first: int = 455_000) -> Hours:
    """A made-up grid: the sun at noon, weather that lasts for hours, noise."""
    rng = np.random.default_rng(seed)
    hour = np.arange(days * 24)
    weather = np.zeros(len(hour))
    for i in range(1, len(hour)):
        weather[i] = 0.95 * weather[i - 1] + rng.normal(0.0, 10.0)
    return Hours(first, np.maximum(300.0 - 100.0 * np.cos(hour / 24.0 * 2.0 * np.pi) + weather, 0.0))
