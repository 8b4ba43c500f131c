import numpy as np
import pytest

from heliotrope_sim.reproduce.grid.views import GAP_HOURS, View, seen, with_unknown

RATES = np.arange(400.0)[:, None] * np.array([1.0, 2.0])


def test_forecasts_see_only_the_past() -> None:
    assert (seen(RATES, View.FORESIGHT) == RATES).all()
    assert (seen(RATES, View.LAST_HOUR)[1:] == RATES[:-1]).all()
    assert (seen(RATES, View.YESTERDAY)[24:] == RATES[:-24]).all()
    week = seen(RATES, View.LAST_WEEK)
    assert week[200] == pytest.approx(RATES[[200 - 24 * day for day in range(1, 8)]].mean(axis=0))


@pytest.mark.parametrize(("view", "hours"), [(View.LAST_HOUR, 1), (View.YESTERDAY, 24), (View.LAST_WEEK, 168)])
def test_before_there_is_a_past_nothing_is_known(view: View, hours: int) -> None:
    found = seen(RATES, view)
    assert np.isnan(found[:hours]).all()
    assert np.isfinite(found[hours:]).all()


def test_a_forecast_on_an_unknown_reading_is_unknown() -> None:
    rates = RATES.copy()
    rates[30, 0] = np.nan
    assert np.isnan(seen(rates, View.YESTERDAY)[54, 0])
    assert np.isnan(seen(rates, View.LAST_WEEK)[198, 0])
    assert np.isfinite(seen(rates, View.YEAR)).all()


def test_readings_are_missing_for_some_hours_at_a_time() -> None:
    assert with_unknown(RATES, 0.0, 7) is RATES
    assert np.isnan(with_unknown(RATES, 1.0, 7)).all()
    found = np.isnan(with_unknown(RATES, 0.3, 7))
    assert 0.1 < found.mean() < 0.5
    whole = found[: len(found) // GAP_HOURS * GAP_HOURS].reshape(-1, GAP_HOURS, 2)
    assert (whole == whole[:, :1]).all()
    assert (np.isnan(with_unknown(RATES, 0.3, 7)) == found).all()
    assert (np.isnan(with_unknown(RATES, 0.3, 8)) != found).any()
