"""Rates of totals: over restarts, gaps and readings out of order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_operator.planning.rates import LONGEST_GAP_S, Meter, Reading


def reading(time_s: float, since: float = 0.0, **totals: float) -> Reading:
    return Reading(time_s, since, totals)


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 1e6)), min_size=1, max_size=20))
def test_rates_times_seconds_add_up_to_what_was_counted(steps: list[tuple[float, float]]) -> None:
    meter, time_s, total, summed = Meter(), 0.0, 5.0, 0.0
    assert meter.per_second(reading(time_s, x=total)) is None
    for seconds, grown in steps:
        time_s, total = time_s + seconds, total + grown
        rates = meter.per_second(reading(time_s, x=total))
        assert rates is not None
        assert rates["x"] >= 0
        summed += rates["x"] * seconds
    assert summed == pytest.approx(total - 5.0, rel=1e-6, abs=1e-6)


def test_a_new_life_counts_from_zero_and_so_does_a_total_that_fell() -> None:
    meter = Meter()
    meter.per_second(reading(0, x=100))
    assert meter.per_second(reading(10, 7.0, x=20)) == {"x": 2.0}
    assert meter.per_second(reading(20, 7.0, x=10)) == {"x": 1.0}


def test_a_total_that_was_not_there_has_grown_from_zero_or_is_unknown() -> None:
    ours, engines = Meter(), Meter(from_zero=False)
    for meter in (ours, engines):
        meter.per_second(reading(0, x=1))
    assert ours.per_second(reading(10, x=1, y=20)) == {"x": 0.0, "y": 2.0}
    assert engines.per_second(reading(10, x=1, y=20)) == {"x": 0.0}


def test_old_news_and_long_silence_say_nothing_of_now() -> None:
    meter = Meter()
    meter.per_second(reading(10, x=1))
    assert meter.per_second(reading(10, x=5)) is None
    assert meter.per_second(reading(9, x=5)) is None
    assert meter.per_second(reading(10 + LONGEST_GAP_S + 1, x=5)) is None
    assert meter.per_second(reading(10 + LONGEST_GAP_S + 11, x=25)) == {"x": 2.0}
