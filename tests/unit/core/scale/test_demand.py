"""Forecasts of demand: gaps, resets, deleted replicas, seasons, bursts and no traffic at all."""

from math import pi, sin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.scale.demand import (
    DEFAULT_RELATIVE_ERROR,
    History,
    Increase,
    forecast,
)

DAY = 86_400.0
START = 1_699_999_200.0  # a whole number of bins since the epoch
BIN = 300.0


def seen(rates: list[float | None], bin_seconds: float = BIN, start: float = START) -> tuple[History, float]:
    """A history of rates per bin, None where nobody looked, and the time at its end."""
    history, time = History(), start
    for rate in rates:
        time += bin_seconds
        if rate is not None:
            count = rate * bin_seconds
            history = history.add(time, Increase(bin_seconds, count, 100.0 * count, 10.0 * count))
    return history, time


def daily(bins: int, level: float = 10.0, start: float = START) -> list[float | None]:
    return [level * (1.0 + 0.5 * sin(2.0 * pi * (start + i * BIN) / DAY)) for i in range(bins)]


def test_missing_bins_stay_unknown() -> None:
    history, end = seen([5.0, None, None, 7.0])
    _, rates = history.rates(end - 1.0)
    assert rates[0] == 5.0
    assert np.isnan(rates[1:3]).all()
    assert rates[3] == 7.0


def test_the_history_is_bounded() -> None:
    history = History(longest=10)
    for i in range(1, 50):
        history = history.add(START + i * BIN, Increase(BIN, 1.0, 1.0, 1.0))
    assert len(history.bins) <= 10
    assert len(history.recent) < 10


def test_silence_of_the_source_is_unknown() -> None:
    """kedacore/keda#3065: an outage is no reading of zero."""
    history, end = seen([5.0] * 5)
    assert forecast(history, end, BIN, 3) is not None
    assert forecast(history, end + 181.0, BIN, 3) is None
    assert forecast(History(), end, BIN, 3) is None


def test_zero_traffic_is_a_value() -> None:
    """ai-dynamo/dynamo#6985."""
    history, end = seen([0.0] * 12)
    told = forecast(history, end, BIN, 3)
    assert told is not None
    assert told.expected == (0.0, 0.0, 0.0)
    assert told.upper == (0.0, 0.0, 0.0)
    assert told.mix is None


def test_after_traffic_ends_some_is_still_expected_for_a_while() -> None:
    history, end = seen([1.0, 1.0, 0.0])
    told = forecast(history, end, BIN, 1)
    assert told is not None
    assert told.upper[0] > 0.0
    history, end = seen([1.0, *([0.0] * 12)])
    told = forecast(history, end, BIN, 1)
    assert told is not None
    assert told.upper[0] == 0.0


def test_without_a_season_the_level_holds() -> None:
    history, end = seen([4.0] * 20)
    told = forecast(history, end, BIN, 4)
    assert told is not None
    assert told.expected == pytest.approx((4.0,) * 4)
    assert told.mix is not None
    assert told.mix.prompt_tokens == pytest.approx(100.0)
    assert told.mix.output_tokens == pytest.approx(10.0)
    assert not told.burst


def test_too_little_history_is_uncertain() -> None:
    history, end = seen([100.0] * 3)
    told = forecast(history, end, BIN, 1)
    assert told is not None
    assert told.upper[0] == pytest.approx(100.0 * (1.0 + DEFAULT_RELATIVE_ERROR))


def test_a_day_teaches_the_next() -> None:
    bins = 2 * 288
    history, end = seen(daily(bins))
    told = forecast(history, end, 3_600.0, 6)
    assert told is not None
    for step, expected in enumerate(told.expected):
        within = [10.0 * (1.0 + 0.5 * sin(2.0 * pi * (end + step * 3_600.0 + i * BIN) / DAY)) for i in range(12)]
        assert expected == pytest.approx(max(within), rel=0.05)
    assert all(upper >= expected for upper, expected in zip(told.upper, told.expected, strict=True))


def test_a_gap_in_yesterday_does_not_make_today_zero() -> None:
    rates = daily(2 * 288)
    rates[288:340] = [None] * 52
    history, end = seen(rates)
    told = forecast(history, end, 3_600.0, 3)
    assert told is not None
    assert min(told.expected) > 5.0


def test_weekends_are_known_after_two_weeks() -> None:
    rates: list[float | None] = []
    for day in range(14):
        rates += [2.0 if day % 7 in (5, 6) else 20.0] * 288
    history, end = seen(rates)
    # It is the end of a weekend: the next day is a working day again.
    told = forecast(history, end, 6 * 3_600.0, 4)
    assert told is not None
    assert told.expected[-1] == pytest.approx(20.0, rel=0.1)


def test_a_burst_is_seen_within_a_minute() -> None:
    history, end = seen([2.0] * 24)
    for _ in range(4):
        end += 15.0
        history = history.add(end, Increase(15.0, 15.0 * 20.0, 1.0, 1.0))
    told = forecast(history, end, BIN, 2)
    assert told is not None
    assert told.burst
    assert told.expected[0] == pytest.approx(20.0)
    assert told.upper[0] >= 20.0


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 50.0))
def test_noise_is_rarely_a_burst_and_stays_below_the_upper_quantile(seed: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    history, end = History(), START
    for _ in range(400):
        end += 15.0
        history = history.add(end, Increase(15.0, float(rng.poisson(15.0 * rate)), 1.0, 1.0))
    told = forecast(history, end, BIN, 1)
    assert told is not None
    assert told.expected[0] < 2.5 * rate + 1.0
    assert told.upper[0] >= 0.6 * rate


def test_upper_quantiles_hold_on_noisy_days() -> None:
    """Of the coming five minutes, about as many as the quantile says stay below it."""
    rng = np.random.default_rng(5)
    rates = [max(r * float(rng.gamma(40.0, 1.0 / 40.0)), 0.0) for r in daily(5 * 288) if r is not None]
    kept = total = 0
    history, end = seen(list(rates[: 3 * 288]))
    for rate in rates[3 * 288 : 4 * 288]:
        told = forecast(history, end, BIN, 1)
        assert told is not None
        kept, total = kept + (rate <= told.upper[0]), total + 1
        end += BIN
        history = history.add(end, Increase(BIN, rate * BIN, 1.0, 1.0))
    assert kept / total >= 0.9
