"""Carbon series of a scenario: what ships, tables of a user's own, and where they have gaps."""

import csv
import io
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import PurePath

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.carbonsource import File
from heliotrope.carbon.series import Point, Series, unix_seconds
from heliotrope.carbon.signal import EmissionFactor
from heliotrope.errors import InvalidInputError
from heliotrope.providers.recorded import Recorded
from heliotrope.providers.table import Columns, decompressed, read_table
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.data import data_file
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.places import Intensity

FOREVER_S = 1e12
_FACTORS = {EmissionFactor.LIFECYCLE: "ci_lifecycle", EmissionFactor.DIRECT: "ci_direct"}
SHIPPED_BOTH = ("BR", "ES", "NO", "US-CAL-CISO")
"""Zones with lifecycle and direct emissions, in `data/carbon`."""
SHIPPED_LIFECYCLE = ("AT", "BE", "GB")
"""Zones with lifecycle emissions, in `data/electricitymaps-umass`."""
_UMASS = "electricitymaps-umass/ci_lifecycle_2022_hourly_4zones.csv"


def series_of(intensity: Intensity, factor: EmissionFactor, path: str, files: Files) -> tuple[Series, str]:
    """A region's series, and in words where it is from.

    Raises:
        InvalidInputError: for an unknown zone, or a file that cannot be read; names the key, or file and line.
    """
    if intensity.grams_per_kwh is not None:
        return constant(intensity.grams_per_kwh), "constant"
    if intensity.zone is not None:
        return _shipped(intensity.zone, factor, f"{path}.zone"), f"{intensity.zone}, Electricity Maps, hourly, 2022"
    assert intensity.csv is not None
    assert intensity.value_column is not None
    columns = Columns(intensity.time_column, intensity.value_column, intensity.estimated_column)
    return _table(files.read(intensity.csv), columns, intensity.csv), intensity.csv


def constant(grams_per_kwh: float) -> Series:
    """One value at all times."""
    return Series.from_points([Point(-FOREVER_S, grams_per_kwh)], last_holds_s=2.0 * FOREVER_S)


def _shipped(zone: str, factor: EmissionFactor, path: str) -> Series:
    if zone in SHIPPED_BOTH:
        columns, file = Columns("datetime_utc", _FACTORS[factor], "estimated"), f"carbon/{zone}.csv"
    elif zone in SHIPPED_LIFECYCLE and factor is EmissionFactor.LIFECYCLE:
        columns, file = Columns("datetime_utc", zone), _UMASS
    else:
        known = ", ".join(SHIPPED_BOTH if factor is EmissionFactor.DIRECT else sorted(SHIPPED_BOTH + SHIPPED_LIFECYCLE))
        raise InvalidInputError(path, f"{zone!r} does not ship with {factor} emissions; these do: {known}; or give csv")
    return _table(data_file(file).read_bytes(), columns, file)


def _table(data: bytes, columns: Columns, name: str) -> Series:
    """A series in which a missing row is a gap: a value holds no longer than the table's step."""
    try:
        series = read_table(data, columns, compressed=name.endswith(".gz"))
    except InvalidInputError as error:
        where = f"{name}:{error.path.removeprefix('row ')}" if error.path.startswith("row ") else name
        raise InvalidInputError(where, error.problem) from error
    times = series.times_unix_s
    step = min((b - a for a, b in pairwise(times)), default=SECONDS_PER_HOUR)
    return replace(series, last_holds_s=step, longest_hold_s=step)


def beside(file: str, path: str) -> str:
    """A path that a RegionProfile names: it starts at the folder of its file, as in production."""
    return str(PurePath(file).parent / path)


def recorded(name: str, source: File, profile: RegionProfile, path: str, files: Files, start_unix_s: float) -> Series:
    """The series of a RegionProfile's file, replayed where the profile says so.

    Raises:
        InvalidInputError: names file and line, or `path` where the profile's curtailment credit has no base.
    """
    series = _table(files.read(name), Columns.of(source), name)
    try:
        return Recorded.of(series, profile.spec, source.replay, start_unix_s).series
    except InvalidInputError as error:
        raise InvalidInputError(path, str(error)) from error


def first_gap(series: Series, start_unix_s: float, end_unix_s: float) -> float | None:
    """The first time in a span at which a series has no value; None: it has one throughout."""
    times, time = series.times_unix_s, start_unix_s
    while time < end_unix_s:
        if series.at(time) is None:
            return time
        following = bisect_right(times, time)
        last = following == len(times)
        holds_s = series.last_holds_s if last else series.longest_hold_s
        time = min(inf if last else times[following], times[following - 1] + holds_s)
    return None


def place_of(data: bytes, missing: float, name: str) -> str:
    """File and line of the row before a gap; the file alone where times cannot be read as such."""
    text = (decompressed(data) if name.endswith(".gz") else data).decode("utf-8-sig", errors="replace")
    line = 1
    for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), start=1):
        times = [_time(cell) for cell in row[:3]]
        known: Sequence[float] = [time for time in times if time is not None]
        if known and known[0] <= missing:
            line = number
    return f"{name}:{line}"


def _time(cell: str) -> float | None:
    try:
        return unix_seconds(cell)
    except InvalidInputError:
        return None
