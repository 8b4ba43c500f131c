"""Intensity series as JSON: a list of objects, or an object with such a list, as APIs and their exporters give them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from heliotrope.carbon.series import Point, Series, unix_seconds
from heliotrope.errors import InvalidInputError
from heliotrope.providers.table import Columns, decompressed, read_table
from heliotrope.units import SECONDS_PER_HOUR


def read_series(data: bytes, columns: Columns, *, compressed: bool = False) -> Series:
    """The series of a CSV table or of JSON, whichever the bytes are; JSON has keys where a table has columns.

    Args:
        data: UTF-8.
        columns: what to read.
        compressed: whether the bytes are gzip.

    Raises:
        InvalidInputError: if they are neither, or hold what is no value; the path names the row.
    """
    text = decompressed(data) if compressed else data
    if text.lstrip()[:1] not in (b"[", b"{"):
        return read_table(text, columns)
    return series_of(rows_of(text), columns)


def rows_of(data: bytes) -> Sequence[Mapping[str, Any]]:
    """The objects of a JSON list, or of the first list of objects under a key of a JSON object.

    Raises:
        InvalidInputError: if it is not JSON, or holds none.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("", f"is not JSON: {error}") from error
    lists = [document] if isinstance(document, list) else []
    if isinstance(document, Mapping):
        lists = [value for value in document.values() if isinstance(value, list)]
    for rows in lists:
        if rows and all(isinstance(row, Mapping) for row in rows):
            return rows
    raise InvalidInputError("", "holds no list of objects with a time and a value")


def series_of(rows: Sequence[Mapping[str, Any]], columns: Columns) -> Series:
    """The series of the objects that have a value.

    Raises:
        InvalidInputError: if none has, or one is no number or has no time; the path names the row.
    """
    points = [point for i, row in enumerate(rows) if (point := _point(row, i, columns)) is not None]
    if not points:
        raise InvalidInputError("", f"no object has a value under {columns.value!r}")
    series = Series.from_points(points)
    times = series.times_unix_s
    return replace(series, last_holds_s=times[-1] - times[-2] if len(times) > 1 else SECONDS_PER_HOUR)


def _point(row: Mapping[str, Any], index: int, columns: Columns) -> Point | None:
    where = f"[{index}]"
    intensity = row.get(columns.value)
    if intensity is None:
        return None
    if isinstance(intensity, bool) or not isinstance(intensity, int | float) or not isfinite(intensity):
        raise InvalidInputError(f"{where}.{columns.value}", f"{intensity!r} is not a number")
    stamp = row.get(columns.time)
    if not isinstance(stamp, str):
        raise InvalidInputError(f"{where}.{columns.time}", f"{stamp!r} is not a time such as 2022-03-01T00:00:00Z")
    try:
        start = unix_seconds(stamp)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}.{columns.time}", str(error)) from error
    guessed = None if columns.estimated is None else row.get(columns.estimated)
    return Point(start, float(intensity), guessed if isinstance(guessed, bool) else None)
