from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.carbon.series import Point, Replay, Series, unix_seconds
from heliotrope.errors import InvalidInputError

HOURLY = Series.from_points([Point(0.0, 100.0), Point(3600.0, 200.0, estimated=True)])


def test_a_value_holds_until_the_next() -> None:
    assert HOURLY.at(3599.0) == Point(0.0, 100.0, None)
    assert HOURLY.at(3600.0) == Point(3600.0, 200.0, estimated=True)


def test_nothing_is_known_before_the_first_and_after_the_last() -> None:
    assert HOURLY.at(-1.0) is None
    assert HOURLY.at(7200.0) is None
    assert HOURLY.average(3000.0, 7201.0) is None
    assert HOURLY.average(-1.0, 10.0) is None


def test_average_weighs_by_time() -> None:
    assert HOURLY.average(2700.0, 4500.0) == pytest.approx(150.0)
    assert HOURLY.average(3600.0, 3600.0) == 200.0


@given(
    values=st.lists(st.floats(0, 1000), min_size=1, max_size=20),
    cut=st.floats(0.01, 0.99),
)
def test_averages_of_the_parts_make_the_average_of_the_whole(values: list[float], cut: float) -> None:
    series = Series.from_points([Point(i * 3600.0, v) for i, v in enumerate(values)])
    end = len(values) * 3600.0
    middle = end * cut
    whole, first, second = series.average(0.0, end), series.average(0.0, middle), series.average(middle, end)
    assert whole is not None
    assert first is not None
    assert second is not None
    assert first * middle + second * (end - middle) == pytest.approx(whole * end, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_what_is_not_an_intensity_is_refused(value: float) -> None:
    with pytest.raises(InvalidInputError, match="is not a value"):
        Series.from_points([Point(0.0, value)])


def test_two_values_for_one_time_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two values"):
        Series.from_points([Point(0.0, 1.0), Point(0.0, 2.0)])


def test_replay_shows_recorded_hours_at_speed() -> None:
    replay = Replay(series_start_unix_s=3600.0, wall_start_unix_s=1_000_000.0, speed=360.0)
    shown = replay.applied_to(HOURLY)
    now = shown.at(1_000_000.0)
    assert now is not None
    assert now.intensity_g_per_kwh == 200.0
    assert shown.at(1_000_000.0 + 10.0) is None  # 10 s of wall time are one recorded hour
    assert replay.series_time(replay.wall_time(5000.0)) == pytest.approx(5000.0)


def test_times_without_offset_are_utc() -> None:
    assert unix_seconds("2022-01-01T00:00:00") == unix_seconds("2022-01-01T01:00:00+01:00") == 1640995200.0
    with pytest.raises(InvalidInputError, match="not an RFC 3339 time"):
        unix_seconds("yesterday")


def test_a_value_does_not_hold_over_a_gap() -> None:
    points = [Point(0.0, 100.0), Point(300.0, 200.0), Point(3_000.0, 400.0)]
    series = replace(Series.from_points(points, last_holds_s=300.0), longest_hold_s=600.0)
    assert series.average(0.0, 600.0) == pytest.approx(150.0)
    assert series.at(899.0) == points[1]
    assert series.at(900.0) is None
    assert series.average(600.0, 1_200.0) is None
    assert series.average(300.0, 3_300.0) is None
    assert series.average(3_000.0, 3_300.0) == 400.0
    assert Replay(0.0, 0.0, 60.0).applied_to(series).at(16.0) is None
