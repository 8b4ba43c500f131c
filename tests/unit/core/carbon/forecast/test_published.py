"""Forecasts in a status and out of it again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.regionprofile import EmissionFactor, IntensityReading, RegionProfileStatus, SignalType
from heliotrope.carbon.forecast.published import (
    MAX_POINTS,
    fitting,
    forecast_of,
    from_reading,
    points_ahead,
    published,
    stated_spread,
)
from heliotrope.carbon.forecast.value import CarbonForecast, Expectation
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import InvalidInputError

HOUR = 3600.0
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def reading(value: float, time: datetime = NOON) -> IntensityReading:
    return IntensityReading(
        value=value,
        time=time,
        source="test",
        signal_type=SignalType.AVERAGE,
        emission_factor=EmissionFactor.LIFECYCLE,
    )


def hourly(*values: float, spread: float | None = 10.0) -> CarbonForecast:
    times = [NOON.timestamp() + (i + 1) * HOUR for i in range(len(values))]
    lower = None if spread is None else [max(value - spread, 0.0) for value in values]
    upper = None if spread is None else [value + spread for value in values]
    return CarbonForecast.of(times, values, lower, upper, issued_unix_s=NOON.timestamp(), source="heliotrope test")


@given(st.lists(st.floats(0.0, 2000.0), min_size=1, max_size=MAX_POINTS), st.booleans())
def test_what_is_published_is_read_again(values: list[float], with_bounds: bool) -> None:
    made = hourly(*values, spread=10.0 if with_bounds else None)
    document = published(made).model_dump(by_alias=True, mode="json")
    status = RegionProfileStatus.model_validate({"forecast": document})
    read = forecast_of(status)
    assert read is not None
    assert read.source == "heliotrope test"
    assert read.issued_unix_s == made.issued_unix_s
    assert read.expected.times_unix_s == made.expected.times_unix_s
    assert read.expected.values_g_per_kwh == pytest.approx(made.expected.values_g_per_kwh, abs=0.051)
    assert (read.upper is None) is not with_bounds


def test_the_reading_is_the_first_point_and_certain() -> None:
    status = RegionProfileStatus(intensity=reading(300.0), forecast=published(hourly(100.0, 50.0)))
    read = forecast_of(status)
    assert read is not None
    start = NOON.timestamp()
    assert read.mean_over(start, start + HOUR) == Expectation(300.0, 300.0, 300.0)
    assert read.mean_over(start + HOUR, start + 3 * HOUR) == Expectation(75.0, 65.0, 85.0)
    assert read.end_unix_s == start + 3 * HOUR


def test_a_forecast_that_is_over_is_none() -> None:
    late = reading(1.0, datetime(2026, 3, 2, 12, tzinfo=UTC))
    assert forecast_of(RegionProfileStatus(intensity=late, forecast=published(hourly(100.0)))) is None
    assert forecast_of(RegionProfileStatus(intensity=late)) is None
    assert forecast_of(None) is None


def test_a_status_with_96_points_is_small() -> None:
    document = published(hourly(*[1234.5678] * 200)).model_dump_json(by_alias=True)
    assert len(published(hourly(*[1.0] * 200)).points) == MAX_POINTS
    assert len(document) < 10_000


@given(
    step=st.sampled_from([300.0, 900.0, 1800.0, 3600.0]),
    values=st.lists(st.floats(0.0, 1000.0), min_size=2, max_size=900),
    offset=st.integers(0, 11),
)
def test_what_is_too_long_is_averaged_over_steps_and_covers_the_same_time(
    step: float, values: list[float], offset: int
) -> None:
    start = NOON.timestamp() + offset * 300.0
    series = Series.from_points([Point(start + i * step, v) for i, v in enumerate(values)], last_holds_s=step)
    short = fitting(series)
    assert len(short.times_unix_s) <= MAX_POINTS
    end = start + len(values) * step
    covered = short.times_unix_s[-1] + short.last_holds_s
    assert covered == end or len(short.times_unix_s) == MAX_POINTS
    assert short.average(start, covered) == pytest.approx(series.average(start, covered), abs=1e-6)


def test_five_minute_values_of_three_days_are_kept_as_hours() -> None:
    start = NOON.timestamp() + 600.0
    series = Series.from_points([Point(start + i * 300.0, float(i)) for i in range(72 * 12)], last_holds_s=300.0)
    short = fitting(series)
    assert short.times_unix_s[:3] == (start, NOON.timestamp() + HOUR, NOON.timestamp() + 2 * HOUR)
    assert short.times_unix_s[-1] + short.last_holds_s == start + 72 * HOUR


@given(st.lists(st.floats(0.0, 2000.0), min_size=1, max_size=MAX_POINTS), st.floats(0.0, 2000.0), st.booleans())
def test_what_pickers_read_is_what_a_reading_with_its_points_says(
    values: list[float], now: float, with_bounds: bool
) -> None:
    forecast = published(hourly(*values, spread=10.0 if with_bounds else None))
    status = RegionProfileStatus(intensity=reading(now), forecast=forecast)
    ahead = points_ahead(status)
    assert forecast_of(status) == from_reading(status, ahead, stated_spread(ahead))


def test_a_reading_alone_holds_for_an_hour_under_its_own_name() -> None:
    made = from_reading(RegionProfileStatus(intensity=reading(300.0)), [], None)
    assert (made.source, made.issued_unix_s, made.lower) == ("test", NOON.timestamp(), None)
    assert made.end_unix_s == NOON.timestamp() + HOUR


def test_neither_a_reading_nor_a_point_is_no_forecast() -> None:
    with pytest.raises(InvalidInputError, match="neither a reading nor a point"):
        from_reading(RegionProfileStatus(), [], None)
