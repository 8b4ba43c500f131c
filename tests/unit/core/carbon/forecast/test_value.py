"""What a forecast says of a stretch of time."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.carbon.forecast.value import CarbonForecast, Expectation
from heliotrope.errors import InvalidInputError

HOUR = 3600.0


def hourly(
    *values: float, lower: list[float] | None = None, upper: list[float] | None = None, start: float = 0.0
) -> CarbonForecast:
    times = [start + HOUR * i for i in range(len(values))]
    return CarbonForecast.of(times, values, lower, upper, issued_unix_s=start, source="test")


def test_expected_value_and_bounds_are_weighed_by_time() -> None:
    forecast = hourly(100.0, 200.0, lower=[80.0, 150.0], upper=[130.0, 300.0])
    assert forecast.mean_over(0.5 * HOUR, 1.5 * HOUR) == Expectation(150.0, 115.0, 215.0)
    assert forecast.mean_over(HOUR, HOUR) == Expectation(200.0, 150.0, 300.0)
    assert (forecast.start_unix_s, forecast.end_unix_s) == (0.0, 2 * HOUR)


def test_what_is_not_covered_is_unknown() -> None:
    forecast = hourly(100.0, 200.0)
    assert forecast.mean_over(-1.0, HOUR) is None
    assert forecast.mean_over(HOUR, 2 * HOUR + 1.0) is None


def test_a_gap_is_not_bridged() -> None:
    forecast = hourly(100.0, nan, 300.0)
    assert forecast.mean_over(0.0, HOUR) == Expectation(100.0, None, None)
    assert forecast.mean_over(0.0, HOUR + 1.0) is None
    assert forecast.mean_over(HOUR, 2 * HOUR) is None
    assert forecast.mean_over(2 * HOUR, 3 * HOUR) == Expectation(300.0, None, None)


def test_zero_is_a_value() -> None:
    assert hourly(0.0, 0.0, lower=[0.0, 0.0], upper=[0.0, 5.0]).mean_over(0.0, HOUR) == Expectation(0.0, 0.0, 0.0)


def test_a_spread_that_is_unknown_at_one_point_is_unknown() -> None:
    forecast = hourly(100.0, 200.0, lower=[80.0, nan], upper=[130.0, 300.0])
    assert forecast.mean_over(0.0, HOUR) == Expectation(100.0, None, None)


@pytest.mark.parametrize(
    ("times", "expected", "lower", "upper"),
    [
        ([], [], None, None),
        ([0.0], [nan], None, None),
        ([0.0], [-1.0], None, None),
        ([0.0], [inf], None, None),
        ([0.0, 0.0], [1.0, 1.0], None, None),
        ([HOUR, 0.0], [1.0, 1.0], None, None),
        ([0.0], [5.0], [6.0], [7.0]),
        ([0.0], [5.0], [1.0], [4.0]),
        ([0.0], [5.0], [-1.0], [6.0]),
    ],
)
def test_what_cannot_be_a_forecast_is_refused(
    times: list[float], expected: list[float], lower: list[float] | None, upper: list[float] | None
) -> None:
    with pytest.raises(InvalidInputError):
        CarbonForecast.of(times, expected, lower, upper, issued_unix_s=0.0, source="test")


values = st.one_of(st.just(nan), st.floats(0.0, 2000.0))


@given(
    expected=st.lists(values, min_size=1, max_size=96),
    spread=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 3.0)),
    start=st.floats(-2.0, 100.0),
    length=st.floats(0.0, 50.0),
)
def test_a_mean_lies_between_its_bounds_and_its_points(
    expected: list[float], spread: tuple[float, float], start: float, length: float
) -> None:
    lower = [value * spread[0] for value in expected]
    upper = [value * (1.0 + spread[1]) for value in expected]
    if all(value != value for value in expected):
        return
    mean = hourly(*expected, lower=lower, upper=upper).mean_over(start * HOUR, (start + length) * HOUR)
    inside = [v for i, v in enumerate(expected) if i + 1 > start and i < start + max(length, 1e-9)]
    if mean is None:
        assert start < 0 or start + length > len(expected) or any(v != v for v in inside) or length == 0.0
        return
    assert mean.lower is not None
    assert mean.upper is not None
    assert 0.0 <= mean.lower <= mean.expected <= mean.upper
    known = [value for value in expected if value == value]
    assert min(known) - 1e-6 <= mean.expected <= max(known) + 1e-6
