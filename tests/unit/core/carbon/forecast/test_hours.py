"""Readings by hour: garbage, gaps, revisions, bounds, clocks."""

from datetime import datetime
from math import inf, nan
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.carbon.forecast.hours import MAX_HOURS, History, Hours, hour_of
from heliotrope.carbon.series import Point

HOUR = 3600.0
NOW = 1_700_000_000.0 - 1_700_000_000.0 % HOUR


def values(hours: Hours) -> list[float | None]:
    return [hours.at(hour) for hour in range(hours.first, hours.end)]


def test_values_within_an_hour_are_averaged_and_a_silent_hour_is_unknown() -> None:
    points = [Point(NOW, 100.0), Point(NOW + 1800.0, 200.0), Point(NOW + 2 * HOUR, 0.0)]
    hours = Hours.of_points(points)
    assert values(hours) == [150.0, None, 0.0]
    assert (hours.known, hours.newest) == (2, hour_of(NOW) + 2)
    history = History()
    history.add(points, NOW + 9 * HOUR)
    assert values(history.hours()) == [150.0, None, 0.0]


@pytest.mark.parametrize("value", [nan, inf, -inf, -1.0, 1e6])
def test_what_no_grid_can_have_is_unknown(value: float) -> None:
    points = [Point(NOW, 100.0), Point(NOW + HOUR, value), Point(NOW + 2 * HOUR, 50.0)]
    history = History()
    history.add(points, NOW + 9 * HOUR)
    for hours in (Hours.of_points(points), history.hours()):
        assert values(hours) == [100.0, None, 50.0]


@pytest.mark.parametrize("time", [nan, inf])
def test_times_that_are_none_are_left_out(time: float) -> None:
    history = History()
    history.add([Point(time, 1.0)], NOW)
    assert len(history.hours().values) == len(Hours.of_points([Point(time, 1.0)]).values) == 0
    assert history.hours().newest is None


def test_values_of_times_to_come_are_no_history() -> None:
    history = History()
    history.add([Point(NOW, 1.0), Point(NOW + 1.0, 2.0)], NOW)
    assert values(history.hours()) == [1.0]


def test_a_value_that_comes_again_revises_the_first() -> None:
    history = History()
    history.add([Point(NOW, 100.0)], NOW)
    history.add([Point(NOW, 100.0)], NOW + 300.0)
    history.add([Point(NOW + 600.0, 200.0)], NOW + 600.0)
    assert values(history.hours()) == [150.0]
    history.add([Point(NOW, 120.0)], NOW + 900.0)
    assert values(history.hours()) == [160.0]
    history.add([Point(NOW + 40 * HOUR, 1.0)], NOW + 40 * HOUR)
    history.add([Point(NOW, 90.0)], NOW + 40 * HOUR)  # long after
    assert history.hours().at(hour_of(NOW)) == 90.0


@given(st.lists(st.tuples(st.integers(0, 3 * MAX_HOURS), st.floats(0.0, 900.0)), max_size=60))
def test_history_is_bounded_and_the_order_of_arrival_does_not_matter(
    points: list[tuple[int, float]],
) -> None:
    latest = dict(points)
    known = [Point(NOW + hour * HOUR, value) for hour, value in latest.items()]
    end = NOW + 4 * MAX_HOURS * HOUR
    forwards, backwards = History(), History()
    for point in known:
        forwards.add([point], end)
    backwards.add(reversed(known), end)
    there, back = forwards.hours(), backwards.hours()
    assert len(there.values) <= MAX_HOURS
    assert there.first == back.first
    np.testing.assert_array_equal(there.values, back.values)
    np.testing.assert_array_equal(there.values, Hours.of_points(known).values)


def test_a_night_of_23_or_25_hours_in_local_time_is_a_night_like_any_other() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for change in (datetime(2022, 3, 27, tzinfo=berlin), datetime(2022, 10, 30, tzinfo=berlin)):
        start = change.timestamp()
        hours = Hours.of_points(Point(start + i * HOUR, float(i)) for i in range(48))
        assert values(hours) == [float(i) for i in range(48)]
