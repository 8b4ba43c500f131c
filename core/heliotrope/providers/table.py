"""Intensity series as CSV, plain or gzip, from whatever holds the bytes."""

import csv
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from heliotrope.api.v1alpha1.carbonsource import ConfigMap, File
from heliotrope.carbon.series import Point, Series, unix_seconds
from heliotrope.errors import InvalidInputError

MAX_BYTES = 64 * 1024 * 1024
"""Largest table, decompressed: a century of hours is below it."""

_HOUR_SECONDS = 3_600.0
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a table's header says what."""

    time: str
    value: str
    estimated: str | None = None

    @classmethod
    def of(cls, source: File | ConfigMap) -> "Columns":
        """The columns that a RegionProfile's source names."""
        return cls(time=source.time_column, value=source.value_column, estimated=source.estimated_column)


def read_table(data: bytes, columns: Columns, *, compressed: bool = False) -> Series:
    """The series of a CSV table with a header, rows in any order.

    A row whose value is empty or NaN is a gap, not a zero: it is left out. The last row holds as long as the one
    before it, an hour if it is the only one.

    Args:
        data: the table's bytes, UTF-8.
        columns: names of the columns to read; others are ignored.
        compressed: whether the bytes are gzip.

    Raises:
        InvalidInputError: if a column, a time or a value cannot be read; the path names the row.
    """
    text = (decompressed(data) if compressed else data).decode("utf-8-sig", errors="replace")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    points = list(_points(reader, columns))
    if not points:
        raise InvalidInputError("", f"no row has a value in column {columns.value!r}")
    series = Series.from_points(points)
    times = series.times_unix_s
    holds = times[-1] - times[-2] if len(times) > 1 else _HOUR_SECONDS
    return Series(times, series.values_g_per_kwh, series.estimated, holds)


def _points(reader: Iterator[list[str]], columns: Columns) -> Iterator[Point]:
    try:
        header = [name.strip() for name in next(reader, [])]
        time, value = _position(header, columns.time), _position(header, columns.value)
        estimated = None if columns.estimated is None else _position(header, columns.estimated)
        for number, row in enumerate(reader, start=2):
            if not row:
                continue
            point = _point(row, number, time, value, estimated)
            if point is not None:
                yield point
    except csv.Error as error:
        raise InvalidInputError("", f"is not CSV: {error}") from error


def _position(header: list[str], name: str) -> int:
    try:
        return header.index(name)
    except ValueError:
        raise InvalidInputError("", f"has no column {name!r}; its columns are {', '.join(header) or 'none'}") from None


def _point(row: list[str], number: int, time: int, value: int, estimated: int | None) -> Point | None:
    where = f"row {number}"
    try:
        text = row[value].strip()
        intensity = float(text) if text else float("nan")
        start = unix_seconds(row[time])
        guessed = None if estimated is None else _TRUTH.get(row[estimated].strip().lower())
    except IndexError:
        raise InvalidInputError(where, "has fewer fields than the header") from None
    except ValueError:
        raise InvalidInputError(where, f"{row[value]!r} is not a number") from None
    except InvalidInputError as error:
        raise InvalidInputError(where, str(error)) from error
    return None if intensity != intensity else Point(start, intensity, guessed)


def decompressed(data: bytes) -> bytes:
    """What gzip data holds, bounded in size.

    Raises:
        InvalidInputError: if it is not gzip, cut off, or too large.
    """
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(data, MAX_BYTES + 1)
    except zlib.error as error:
        raise InvalidInputError("", f"is not gzip: {error}") from error
    if len(text) > MAX_BYTES:
        raise InvalidInputError("", f"is larger than {MAX_BYTES} bytes when decompressed")
    if not unpacker.eof:
        raise InvalidInputError("", "is cut off: the gzip stream has no end")
    return text
