"""The cleanest window against a search of every second's start."""

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.carbon.forecast.windows import cleanest_window

HOUR = 3600.0


def hourly(*values: float) -> CarbonForecast:
    return CarbonForecast.of([HOUR * i for i in range(len(values))], values, issued_unix_s=0.0, source="test")


def test_the_cleanest_hours_are_found() -> None:
    found = cleanest_window(hourly(300.0, 100.0, 50.0, 200.0), 2 * HOUR, 0.0, 4 * HOUR)
    assert found is not None
    assert (found.start_unix_s, found.end_unix_s, found.intensity.expected) == (HOUR, 3 * HOUR, 75.0)


def test_of_equal_windows_the_earliest_is_taken() -> None:
    found = cleanest_window(hourly(100.0, 100.0, 100.0), HOUR, 600.0, 3 * HOUR)
    assert found is not None
    assert found.start_unix_s == 600.0


def test_no_window_spans_a_gap_or_the_end() -> None:
    assert cleanest_window(hourly(100.0, nan, 100.0), 2 * HOUR, 0.0, 3 * HOUR) is None
    assert cleanest_window(hourly(100.0), 2 * HOUR, 0.0, 9 * HOUR) is None
    assert cleanest_window(hourly(100.0, 50.0), 2 * HOUR, 0.0, HOUR) is None
    found = cleanest_window(hourly(100.0, nan, 70.0), 0.5 * HOUR, 0.0, 9 * HOUR)
    assert found is not None
    assert found.start_unix_s == 2 * HOUR


@given(
    values=st.lists(st.one_of(st.just(nan), st.floats(0.0, 1000.0)), min_size=1, max_size=8),
    duration=st.integers(1, 20),
    earliest=st.integers(-5, 40),
    length=st.integers(0, 60),
)
def test_no_start_is_cleaner(values: list[float], duration: int, earliest: int, length: int) -> None:
    if all(value != value for value in values):
        return
    forecast = hourly(*values)
    tenth = HOUR / 10.0
    found = cleanest_window(forecast, duration * tenth, earliest * tenth, (earliest + length) * tenth)
    means = [
        mean.expected
        for start in range(earliest, earliest + length - duration + 1)
        if (mean := forecast.mean_over(start * tenth, (start + duration) * tenth)) is not None
    ]
    if found is None:
        assert not means
        return
    assert found.intensity.expected == pytest.approx(min(means), abs=1e-6)
    assert earliest * tenth <= found.start_unix_s
    assert found.end_unix_s <= (earliest + length) * tenth + 1e-6
