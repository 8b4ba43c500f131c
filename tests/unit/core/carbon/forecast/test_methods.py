"""Methods see the past only, forget nothing that they could use, and say so where they cannot tell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.carbon.forecast.zones import part, sunny, year

from heliotrope.carbon.forecast.anomalies import Anomalies
from heliotrope.carbon.forecast.hours import Hours
from heliotrope.carbon.forecast.method import HORIZON_HOURS, Method, same_hour_lag
from heliotrope.carbon.forecast.same_hour import SameHourYesterday

METHODS: list[Method] = [Anomalies(), SameHourYesterday()]


def last(hours: Hours) -> np.ndarray:
    return np.array([len(hours.values) - 1])


def test_the_same_hour_is_the_newest_known_one() -> None:
    assert [same_hour_lag(ahead) for ahead in (1, 24, 25, 48, 49, 72)] == [24, 24, 48, 48, 72, 72]
    hours = Hours(0, np.arange(48.0))
    predicted = SameHourYesterday().predict(hours, last(hours))[0]
    np.testing.assert_array_equal(predicted, np.tile(np.arange(24.0, 48.0), 3))


def test_where_yesterday_is_unknown_the_day_before_is_taken_for_a_week() -> None:
    values = np.full(10 * 24, np.nan)
    values[[0, 3 * 24 + 1, 8 * 24]] = 5.0, 7.0, 9.0
    hours = Hours(0, values)
    predicted = SameHourYesterday().predict(hours, last(hours))[0]
    assert (predicted[0], predicted[1]) == (9.0, 7.0)
    assert np.isnan(predicted[2:24]).all()


@pytest.mark.parametrize("method", METHODS)
@given(origin=st.integers(60 * 24, 80 * 24 - 1), seed=st.integers(0, 50))
@settings(max_examples=6, deadline=None)
def test_the_future_does_not_enter(method: Method, origin: int, seed: int) -> None:
    hours = sunny(85)
    fitted = method.fit(part(hours, 0, 60 * 24))
    assert fitted is not None
    changed = Hours(hours.first, hours.values.copy())
    changed.values[origin + 1 :] = np.random.default_rng(seed).uniform(0.0, 900.0, len(hours.values) - origin - 1)
    cut = part(hours, 0, origin + 1)
    expected = fitted.predict(cut, last(cut))
    np.testing.assert_allclose(fitted.predict(hours, np.array([origin])), expected, rtol=1e-12)
    np.testing.assert_allclose(fitted.predict(changed, np.array([origin])), expected, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_hours_teach_the_same(method: Method) -> None:
    first, again = (method.fit(sunny(50)) for _ in range(2))
    assert first is not None
    assert again is not None
    hours = sunny(60)
    np.testing.assert_array_equal(first.predict(hours, last(hours)), again.predict(hours, last(hours)))


@pytest.mark.parametrize("method", METHODS)
@given(missing=st.lists(st.tuples(st.integers(0, 1439), st.integers(1, 200)), max_size=8), scale=st.floats(0.0, 3.0))
@settings(max_examples=8, deadline=None)
def test_gaps_never_give_less_than_nothing_or_anything_infinite(
    method: Method, missing: list[tuple[int, int]], scale: float
) -> None:
    hours = sunny(60)
    values = np.maximum((hours.values - 250.0) * scale, 0.0)
    for start, length in missing:
        values[start : start + length] = np.nan
    gappy = Hours(hours.first, values)
    if gappy.newest is None:
        return
    fitted = method.fit(gappy)
    if fitted is None:
        return
    predicted = fitted.predict(gappy, np.array([gappy.newest - gappy.first]))
    assert predicted.shape == (1, HORIZON_HOURS)
    assert (predicted[np.isfinite(predicted)] >= 0.0).all()
    assert not np.isinf(predicted).any()


def test_short_gaps_hardly_change_a_forecast() -> None:
    hours = year("ES")
    whole, gappy = part(hours, 0, 100 * 24), part(hours, 0, 100 * 24)
    gappy.values[np.arange(50, len(gappy.values) - 50, 37)] = np.nan
    first, second = Anomalies().fit(whole), Anomalies().fit(gappy)
    assert first is not None
    assert second is not None
    a, b = first.predict(whole, last(whole)), second.predict(gappy, last(gappy))
    assert np.abs(a - b).mean() < 0.05 * a.mean()


@pytest.mark.parametrize("days", [0, 1, 5, 14])
def test_too_little_history_teaches_no_regression(days: int) -> None:
    assert Anomalies().fit(sunny(days)) is None


def test_a_constant_grid_stays_so() -> None:
    hours = Hours(0, np.full(60 * 24, 42.0))
    fitted = Anomalies().fit(hours)
    assert fitted is not None
    np.testing.assert_allclose(fitted.predict(hours, last(hours)), 42.0)
