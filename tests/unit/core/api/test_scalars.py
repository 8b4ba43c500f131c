"""Decimal strings, durations and times."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.scalars import (
    DecimalString,
    format_decimal,
    format_duration,
    format_time,
    parse_decimal,
    parse_duration,
    parse_time,
)


@given(st.floats(min_value=0, max_value=999_999_999_999, allow_nan=False).filter(lambda x: x == 0 or x > 1e-2))
def test_decimals_read_back_as_they_were(value: float) -> None:
    assert parse_decimal(format_decimal(value)) == value


@given(st.floats(min_value=0, max_value=1e-2))
def test_small_decimals_keep_eighteen_digits_after_the_point(value: float) -> None:
    assert parse_decimal(format_decimal(value)) == pytest.approx(value, rel=0, abs=2e-18)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (1.2, "1.2"), (100.0, "100"), (7.1844e-10, "0.00000000071844"), (1e11, "100000000000")],
)
def test_decimals_are_written_short_and_without_exponent(value: float, text: str) -> None:
    assert format_decimal(value) == text


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1e3", ".5", "5.", "1,5", " 1", "1 ", "NaN", "Infinity", "0x1", "1\n"]
)
def test_other_notations_are_no_decimals(text: str) -> None:
    with pytest.raises(ValueError, match="decimal string"):
        parse_decimal(text)


@pytest.mark.parametrize("value", [-1.0, -1e-9, 1e12, float("nan"), float("inf")])
def test_numbers_without_a_decimal_string_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="decimal string"):
        format_decimal(value)


@pytest.mark.parametrize("value", [True, None, [], "x", float("nan"), -0.1, 1.1])
def test_python_code_cannot_put_anything_else_into_a_decimal(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        DecimalString(maximum=1).accept(value)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=99_999)))
def test_durations_read_back_to_the_millisecond(span: timedelta) -> None:
    assert parse_duration(format_duration(span)) == timedelta(milliseconds=round(span / timedelta(milliseconds=1)))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("0s", timedelta(0)),
        ("1500ms", timedelta(seconds=1.5)),
        ("1h30m", timedelta(hours=1.5)),
        ("1h1m1s1ms", timedelta(hours=1, minutes=1, seconds=1, milliseconds=1)),
        ("30s1m", timedelta(seconds=90)),
    ],
)
def test_durations_follow_gep_2257(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize("text", ["", "1", "1d", "-1s", "1.5h", "123456s", "1h1h1h1h1h", "1H", "1h ", "1s\n"])
def test_other_notations_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize("span", [timedelta(seconds=-1), timedelta(hours=100_000)])
def test_spans_without_a_duration_string_are_refused(span: timedelta) -> None:
    with pytest.raises(ValueError, match="99999h"):
        format_duration(span)


def test_times_are_written_in_utc() -> None:
    paris = timezone(timedelta(hours=2))

    assert format_time(datetime(2022, 6, 1, 2, tzinfo=paris)) == "2022-06-01T00:00:00Z"
    assert parse_time("2022-06-01t02:00:00+02:00") == datetime(2022, 6, 1, tzinfo=UTC)
    assert parse_time("2022-06-01T00:00:00.25z") == datetime(2022, 6, 1, microsecond=250_000, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2022-06-01", "2022-06-01T00:00:00", "2022-06-01 00:00:00Z", "2022-02-30T00:00:00Z"])
def test_times_need_date_clock_and_zone(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|day is out of range"):
        parse_time(text)


def test_a_time_without_zone_is_not_written() -> None:
    with pytest.raises(ValueError, match="time zone"):
        format_time(datetime(2022, 6, 1))  # noqa: DTZ001 - the case under test
