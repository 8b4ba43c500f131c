"""Reads absolute marginal emission rates from a folder with one file per region, named after it.

CSV (`CAISO_NORTH.csv`): a column `point_time` (RFC 3339) and one of `moer_lb_per_mwh` and `moer_g_per_kwh`. JSON
(`CAISO_NORTH.json`): what WattTime's /v3/historical answers, `data` with `point_time` and `value`, and `meta.units`
`lbs_co2_per_mwh` (or `g_co2_per_kwh`). Times rise. What is absent is unknown; 0 is curtailed power, and a value.

The rate of an hour is that of the point at its start, as in the paper; an hour without one is unknown.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.series import unix_seconds
from heliotrope.errors import InvalidInputError
from heliotrope.units import SECONDS_PER_HOUR, g_per_kwh_from_lb_per_mwh
from heliotrope_sim.reproduce.grid.zones import zone_named

TIME = "point_time"
COLUMNS = {"moer_lb_per_mwh": True, "moer_g_per_kwh": False}
"""Whether a column is in lb/MWh."""
UNITS = {"lbs_co2_per_mwh": True, "g_co2_per_kwh": False}
FEWEST_REGIONS = 2
FEWEST_HOURS = 240
"""Ten days: fewer have no blocks to draw."""

Reading = tuple[str, float, float]
"""Where it stands, Unix seconds, g/kWh."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Hours that all regions' files span."""

    names: tuple[str, ...]
    start_unix_s: float
    g_per_kwh: NDArray[np.float64]
    """Shape (hours, d), NaN where a file has nothing."""


def read_folder(folder: Path) -> Folder:
    """Every region of a folder.

    Raises:
        InvalidInputError: if there are too few regions or hours, a region is unknown, times do not rise, or a value is
            no rate; the message names the file and the line.
    """
    if not folder.is_dir():
        raise InvalidInputError(str(folder), "is no folder")
    files = sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".json"))
    twice = {path.stem for path in files if sum(other.stem == path.stem for other in files) > 1}
    if twice:
        raise InvalidInputError(str(folder), f"has two files for {', '.join(sorted(twice))}")
    if len(files) < FEWEST_REGIONS:
        raise InvalidInputError(str(folder), f"has {len(files)} files REGION.csv or REGION.json; two are the least")
    regions = {zone_named(path.stem, str(path)).name: read_file(path) for path in files}
    first = max(next(iter(region)) for region in regions.values())
    last = min(next(reversed(region)) for region in regions.values())
    hours = max(last - first + 1, 0)
    if hours < FEWEST_HOURS:
        raise InvalidInputError(str(folder), f"its files have {hours} hours in common; {FEWEST_HOURS} are the least")
    matrix = np.full((hours, len(regions)), np.nan)
    for i, region in enumerate(regions.values()):
        for hour, rate in region.items():
            if first <= hour <= last:
                matrix[hour - first, i] = rate
    return Folder(tuple(regions), first * SECONDS_PER_HOUR, matrix)


def read_file(path: Path) -> dict[int, float]:
    """Rates in g/kWh by whole hours since 1970, rising.

    Raises:
        InvalidInputError: see `read_folder`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(str(path), f"cannot be read: {error}") from error
    readings = _csv(path, text) if path.suffix == ".csv" else _json(path, text)
    hours: dict[int, float] = {}
    before = -np.inf
    for where, time, rate in readings:
        if time <= before:
            raise InvalidInputError(where, "comes before the one above, or at the same time; times must rise")
        before = time
        if time % SECONDS_PER_HOUR == 0.0:
            hours[round(time / SECONDS_PER_HOUR)] = rate
    if not hours:
        raise InvalidInputError(str(path), "has no value at a full hour")
    return hours


def _csv(path: Path, text: str) -> Iterator[Reading]:
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    columns = [name for name in COLUMNS if name in header]
    if TIME not in header or len(columns) != 1:
        raise InvalidInputError(f"{path}:1", f"needs the columns {TIME} and one of {', '.join(COLUMNS)}")
    time, value, pounds = header.index(TIME), header.index(columns[0]), COLUMNS[columns[0]]
    for number, cells in enumerate(reader, start=2):
        where = f"{path}:{number}"
        if not cells:
            continue
        if len(cells) != len(header):
            raise InvalidInputError(where, f"has {len(cells)} cells, the header has {len(header)}")
        yield where, _time(cells[time], where), _rate(cells[value], pounds, where)


def _json(path: Path, text: str) -> Iterator[Reading]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(str(path), f"is not JSON: {error}") from error
    data = document.get("data") if isinstance(document, dict) else None
    meta = document.get("meta") if isinstance(document, dict) else None
    units = meta.get("units") if isinstance(meta, dict) else None
    if not isinstance(data, list):
        raise InvalidInputError(str(path), "has no list `data`")
    if units not in UNITS:
        raise InvalidInputError(f"{path}: meta.units", f"is {units!r}, none of {', '.join(UNITS)}")
    for i, point in enumerate(data):
        where = f"{path}: data[{i}]"
        if not isinstance(point, dict) or TIME not in point or "value" not in point:
            raise InvalidInputError(where, f"has no {TIME} and value")
        yield where, _time(point[TIME], where), _rate(point["value"], UNITS[units], where)


def _time(text: Any, where: str) -> float:
    try:
        return unix_seconds(str(text))
    except InvalidInputError as error:
        raise InvalidInputError(where, str(error)) from error


def _rate(value: Any, pounds: bool, where: str) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(where, f"{value!r} is no number; leave out what is unknown") from error
    if not isfinite(rate) or rate < 0.0:
        raise InvalidInputError(where, f"{rate:g} is no rate; leave out what is unknown")
    return g_per_kwh_from_lb_per_mwh(rate) if pounds else rate
