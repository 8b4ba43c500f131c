"""Series out of CSV."""

import gzip
from pathlib import Path

import pytest

from heliotrope.carbon.series import unix_seconds
from heliotrope.errors import InvalidInputError
from heliotrope.providers.table import MAX_BYTES, Columns, read_table

DATA = Path(__file__).parents[4] / "data" / "carbon"
COLUMNS = Columns(time="t", value="g", estimated="e")


def table(*rows: str) -> bytes:
    return "\n".join(("t,g,e", *rows)).encode()


def test_a_shipped_series() -> None:
    columns = Columns("datetime_utc", "ci_lifecycle", "estimated")

    series = read_table((DATA / "ES.csv").read_bytes(), columns)

    assert len(series.times_unix_s) == 8760
    point = series.at(unix_seconds("2022-01-01T01:59:59Z"))
    assert point is not None
    assert (point.intensity_g_per_kwh, point.estimated) == (181.54, False)
    assert series.at(unix_seconds("2022-12-31T23:59:59Z")) is not None
    assert series.at(unix_seconds("2023-01-01T00:00:00Z")) is None


def test_rows_in_any_order_with_gaps_byte_order_mark_and_quotes() -> None:
    rows = ('"2022-01-01T03:00:00Z","3.5",TRUE', "2022-01-01 01:00:00,0,", "", "2022-01-01T02:00:00Z,,x", "")

    series = read_table("\r\n".join(("\ufefft , g,e", *rows)).encode(), COLUMNS)

    assert series.values_g_per_kwh == (0.0, 3.5)  # an empty field is a gap, zero is a value
    assert series.estimated == (None, True)
    assert series.times_unix_s == tuple(unix_seconds(f"2022-01-01T0{hour}:00:00Z") for hour in (1, 3))


def test_nan_is_a_gap() -> None:
    series = read_table(table("2022-01-01T00:00:00Z,nan,", "2022-01-01T01:00:00Z,7,"), COLUMNS)

    assert series.values_g_per_kwh == (7.0,)


@pytest.mark.parametrize(("rows", "holds"), [(("00:00:00",), 3600.0), (("00:00:00", "00:05:00"), 300.0)])
def test_the_last_row_holds_as_long_as_the_one_before_it(rows: tuple[str, ...], holds: float) -> None:
    series = read_table(table(*(f"2022-01-01T{time}Z,7,false" for time in rows)), COLUMNS)

    assert series.last_holds_s == holds


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has no column 't'; its columns are none"),
        (b"time,g,e\n", "has no column 't'; its columns are time, g, e"),
        (table(), "no row has a value in column 'g'"),
        (table("2022-01-01T00:00:00Z,many,"), "row 2: 'many' is not a number"),
        (table("2022-01-01T00:00:00Z,1,", "yesterday,1,"), "row 3: .*'yesterday' is not an RFC 3339 time"),
        (table("2022-01-01T00:00:00Z,1"), "row 2: has fewer fields than the header"),
        (table("2022-01-01T00:00:00Z,-1,"), "intensity -1.0 g/kWh"),
        (table("2022-01-01T00:00:00Z,inf,"), "intensity inf g/kWh"),
        (table("2022-01-01T00:00:00Z,1,", "2022-01-01T01:00:00+01:00,2,"), "two values for the time"),
        (b't,g,e\n"open', "is not CSV"),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_table(data, COLUMNS)


def test_gzip() -> None:
    data = table("2022-01-01T00:00:00Z,7,false")

    assert read_table(gzip.compress(data), COLUMNS, compressed=True) == read_table(data, COLUMNS)
    with pytest.raises(InvalidInputError, match="is not gzip"):
        read_table(data, COLUMNS, compressed=True)
    with pytest.raises(InvalidInputError, match="is cut off"):
        read_table(gzip.compress(data)[:-4], COLUMNS, compressed=True)


def test_a_small_file_that_unpacks_to_a_giant_is_refused() -> None:
    bomb = gzip.compress(b"0" * (MAX_BYTES + 2))

    with pytest.raises(InvalidInputError, match="is larger than"):
        read_table(bomb, COLUMNS, compressed=True)
