"""Forecasts as issued, against what came true."""

from math import nan

import numpy as np
import pytest

from heliotrope.carbon.forecast.hours import Hours
from heliotrope.carbon.forecast.method import HORIZON_HOURS
from heliotrope.carbon.forecast.published import published
from heliotrope.carbon.forecast.record import MAX_KEPT, ForecastRecord, RollingError, with_spread
from heliotrope.carbon.forecast.spread import Spread
from heliotrope.carbon.forecast.value import CarbonForecast, Expectation

HOUR = 3600.0
START = 455_000
NOW = START * HOUR


def forecast(*values: float, hour: int = START, source: str = "provider") -> CarbonForecast:
    times = [(hour + 1 + i) * HOUR for i in range(len(values))]
    return CarbonForecast.of(times, values, issued_unix_s=hour * HOUR, source=source)


def truth(*values: float, first: int = START + 1) -> Hours:
    return Hours(first, np.array(values))


def test_errors_are_those_of_hours_that_are_over() -> None:
    record = ForecastRecord()
    record.issue(forecast(100.0, 100.0, 100.0), forecast(50.0, 50.0, 50.0), NOW)
    assert record.error(24) is None
    record.observe(truth(90.0, 130.0), NOW + 2.5 * HOUR)  # the second hour is not over
    assert record.error(24) == RollingError(24, 10.0, 40.0, 1)
    record.observe(truth(90.0, 130.0), NOW + 3 * HOUR)
    assert record.error(24) == RollingError(24, 20.0, 60.0, 2)
    assert record.error(1) == RollingError(1, 10.0, 40.0, 1)


def test_revised_truth_takes_the_place_of_the_first() -> None:
    record = ForecastRecord()
    record.issue(forecast(100.0), forecast(100.0), NOW)
    record.observe(truth(90.0), NOW + 9 * HOUR)
    record.observe(truth(70.0), NOW + 9 * HOUR)
    assert record.error(24) == RollingError(24, 30.0, 30.0, 1)


def test_what_the_baseline_or_the_truth_does_not_know_is_not_compared() -> None:
    record = ForecastRecord()
    record.issue(forecast(100.0, 100.0, 100.0), forecast(50.0), NOW)
    record.observe(truth(0.0, 130.0, 1.0), NOW + 9 * HOUR)
    assert record.error(24) == RollingError(24, 100.0, 50.0, 1)
    other = ForecastRecord()
    other.issue(forecast(100.0, 100.0), forecast(50.0, 50.0), NOW)
    other.observe(truth(nan, 130.0), NOW + 9 * HOUR)
    assert other.error(24) == RollingError(24, 30.0, 80.0, 1)
    without = ForecastRecord()
    without.issue(forecast(100.0), None, NOW)
    without.observe(truth(1.0), NOW + 9 * HOUR)
    assert without.error(24) is None


def test_one_forecast_an_hour_is_kept_and_not_for_ever() -> None:
    record = ForecastRecord()
    for hour in range(2 * MAX_KEPT):
        for value in (7.0, 8.0):
            record.issue(forecast(value, hour=START + hour), forecast(9.0, hour=START + hour), NOW + hour * HOUR)
    assert len(record) == MAX_KEPT
    record.observe(truth(*[7.0] * 2 * MAX_KEPT), NOW + 3 * MAX_KEPT * HOUR)
    assert record.error(24) == RollingError(24, 0.0, 2.0, MAX_KEPT)


def test_a_providers_forecast_gets_the_spread_of_its_past() -> None:
    record = ForecastRecord()
    rng = np.random.default_rng(0)
    values = rng.normal(0.0, 10.0, 400) + 200.0
    for hour in range(200):
        record.issue(forecast(*[200.0] * 48, hour=START + hour), None, NOW + hour * HOUR)
        if hour < 20:
            assert record.spread("provider") is None
    record.observe(truth(*values), NOW + 300 * HOUR)
    assert record.spread("somebody else") is None
    spread = record.spread("provider")
    assert spread is not None
    now = NOW + 300 * HOUR
    issued = with_spread(forecast(*[200.0] * 48, hour=START + 300), spread, now)
    assert issued.lower is not None
    assert issued.upper is not None
    assert issued.lower.values_g_per_kwh[20] == pytest.approx(187.2, abs=3.0)
    assert issued.upper.values_g_per_kwh[20] == pytest.approx(212.8, abs=3.0)
    # No forecast looked further ahead than 48 hours, so nobody knows how wrong that would be.
    longer = with_spread(forecast(*[200.0] * 72, hour=START + 300), spread, now)
    assert (longer.lower, longer.upper) == (None, None)


def test_bounds_are_what_a_status_can_hold() -> None:
    spread = Spread(np.full(HORIZON_HOURS, -50.0), np.full(HORIZON_HOURS, 50.0))
    assert published(with_spread(forecast(9_990.0), spread, NOW)).points[0].upper == 10_000.0


def test_bounds_are_never_negative() -> None:
    spread = Spread(np.full(HORIZON_HOURS, -50.0), np.full(HORIZON_HOURS, 50.0))
    bounded = with_spread(forecast(20.0, 0.0), spread, NOW)
    assert bounded.mean_over(NOW + HOUR, NOW + 2 * HOUR) == Expectation(20.0, 0.0, 70.0)
    assert bounded.mean_over(NOW + 2 * HOUR, NOW + 3 * HOUR) == Expectation(0.0, 0.0, 50.0)
