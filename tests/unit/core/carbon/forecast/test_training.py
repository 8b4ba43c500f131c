"""The method that is used is the one that errs least on weeks it had not seen, and its intervals hold there."""

import numpy as np
import pytest
from tests.unit.core.carbon.forecast.zones import part, sunny, year

from heliotrope.carbon.forecast.anomalies import Anomalies
from heliotrope.carbon.forecast.backtest import backtest, mean_absolute_errors
from heliotrope.carbon.forecast.hours import FloatMatrix, Hours, IntVector
from heliotrope.carbon.forecast.method import HORIZON_HOURS, Fitted
from heliotrope.carbon.forecast.published import published
from heliotrope.carbon.forecast.same_hour import SameHourYesterday
from heliotrope.carbon.forecast.spread import MIN_SAMPLES, Spread
from heliotrope.carbon.forecast.training import train
from heliotrope.units import SECONDS_PER_HOUR


class Constant:
    """A method that always says the same; it remembers what it was allowed to see."""

    def __init__(self, value: float) -> None:
        self.name = f"always {value}"
        self.value = value
        self.seen: list[int] = []

    def fit(self, hours: Hours) -> Fitted:
        self.seen.append(hours.end)
        return self

    def predict(self, hours: Hours, origins: IntVector) -> FloatMatrix:
        return np.full((len(origins), HORIZON_HOURS), self.value)


def end_of(hours: Hours) -> float:
    return hours.end * SECONDS_PER_HOUR


def test_what_errs_more_than_yesterday_is_not_used() -> None:
    trained = train(sunny(60), candidates=[Constant(1000.0)])
    assert trained is not None
    assert trained.name == "same hour yesterday"
    assert not trained.judged[0].beats_baseline
    assert trained.judged[0].mean_absolute_error > trained.judged[0].baseline_mean_absolute_error > 0.0


def test_the_best_of_several_is_used() -> None:
    level = Hours(0, np.random.default_rng(0).uniform(90.0, 110.0, 60 * 24))
    trained = train(level, candidates=[Constant(120.0), Constant(100.0), Constant(130.0)])
    assert trained is not None
    assert trained.name == "always 100.0"
    assert [each.beats_baseline for each in trained.judged] == [False, True, False]


def test_a_fold_is_forecast_by_what_came_before_it() -> None:
    spy = Constant(0.0)
    hours = sunny(60)
    held_out = backtest(spy, hours)
    assert held_out is not None
    for fold, end in enumerate(spy.seen):
        until = spy.seen[fold + 1] if fold + 1 < len(spy.seen) else hours.end
        inside = held_out.origins[(held_out.origins >= end - 1) & (held_out.origins < until - 1)]
        assert len(inside) > 0
    assert held_out.origins.min() >= spy.seen[0] - 1
    truth = [hours.at(int(held_out.origins[5]) + 3)]
    assert held_out.actual[5, 2] == truth[0]


def test_methods_are_compared_on_the_same_hours() -> None:
    hours = sunny(60)
    first, second = backtest(Constant(0.0), hours), backtest(SameHourYesterday(), hours)
    assert first is not None
    assert second is not None
    first.predicted[:, 10] = np.nan
    assert all(np.isnan(mean_absolute_errors(first, second)))  # one hour ahead cannot be compared at all
    first.predicted[::2, 10] = 0.0
    assert np.isfinite(mean_absolute_errors(first, second)).all()


@pytest.mark.parametrize("hours", [0, 1, 23])
def test_with_less_than_a_day_there_is_no_forecaster(hours: int) -> None:
    assert train(part(sunny(2), 0, hours)) is None


def test_with_a_few_days_it_is_yesterday_without_a_spread() -> None:
    hours = part(sunny(10), 0, 5 * 24)
    trained = train(hours)
    assert trained is not None
    forecast = trained.forecast(hours, end_of(hours))
    assert forecast is not None
    assert (trained.judged, forecast.lower, forecast.upper) == ((), None, None)
    assert forecast.source == "heliotrope same hour yesterday"
    assert forecast.expected.values_g_per_kwh[:24] == tuple(hours.values[-24:])


def test_a_forecast_covers_now_also_when_the_newest_value_is_old() -> None:
    hours = sunny(60)
    trained = train(hours)
    assert trained is not None
    now = end_of(hours) + 10.5 * SECONDS_PER_HOUR
    forecast = trained.forecast(hours, now)
    assert forecast is not None
    assert forecast.start_unix_s == end_of(hours) + 10 * SECONDS_PER_HOUR
    assert forecast.end_unix_s == end_of(hours) + 72 * SECONDS_PER_HOUR
    assert trained.forecast(hours, end_of(hours) + 72 * SECONDS_PER_HOUR) is None
    assert trained.forecast(Hours(0, np.empty(0)), now) is None


def test_a_grid_at_the_highest_value_has_a_forecast_that_a_status_can_hold() -> None:
    hours = Hours(0, np.where(np.arange(60 * 24) % 5 == 0, 10_000.0, 9_000.0))
    trained = train(hours)
    assert trained is not None
    forecast = trained.forecast(hours, end_of(hours))
    assert forecast is not None
    assert max(published(forecast).points, key=lambda point: point.value).value <= 10_000.0


def test_the_same_hours_give_the_same_forecast() -> None:
    hours = part(year("NO"), 0, 45 * 24)
    first, second = train(hours), train(hours)
    assert first is not None
    assert second is not None
    assert first.forecast(hours, end_of(hours)) == second.forecast(hours, end_of(hours))


def test_quantiles_are_those_of_the_errors() -> None:
    rng = np.random.default_rng(1)
    spread = Spread.of(rng.normal(0.0, 1.0, (5000, HORIZON_HOURS)) * np.arange(1, HORIZON_HOURS + 1))
    assert spread.known
    for ahead in (1, 24, 72):
        assert spread.low[ahead - 1] == pytest.approx(-1.2816 * ahead, rel=0.1)
        assert spread.high[ahead - 1] == pytest.approx(1.2816 * ahead, rel=0.1)
    biased = Spread.of(np.full((100, HORIZON_HOURS), 3.0))
    assert (biased.low == 0.0).all()
    assert (biased.high == 3.0).all()
    assert not Spread.of(np.zeros((MIN_SAMPLES - 1, HORIZON_HOURS))).known


@pytest.mark.slow
def test_an_error_that_is_exchangeable_with_the_others_is_within_at_the_stated_rate() -> None:
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(400):
        errors = rng.standard_t(2, size=(40, HORIZON_HOURS))
        spread = Spread.of(errors)
        inside.append((spread.low[0] <= (new := rng.standard_t(2)) <= spread.high[0], new))
    assert np.mean([each for each, _ in inside]) == pytest.approx(0.82, abs=0.06)


ZONES = ("ES", "BR", "US-CAL-CISO", "NO")


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_on_recorded_zones_it_beats_yesterday_and_its_intervals_hold(zone: str) -> None:
    hours = year(zone)
    ours, baseline, inside = [], [], []
    for cut in range(140 * 24, 340 * 24, 40 * 24):
        history = part(hours, cut - 120 * 24, cut)
        trained = train(history)
        assert trained is not None
        seen = part(hours, cut - 120 * 24, cut + 14 * 24)
        origins = np.arange(120 * 24 - 1, 134 * 24 - 1, 7)
        truth = hours.values[cut - 120 * 24 + origins[:, None] + np.arange(1, HORIZON_HOURS + 1)]
        predicted = trained.fitted.predict(seen, origins)
        ours.append(np.abs(truth - predicted))
        baseline.append(np.abs(truth - SameHourYesterday().predict(seen, origins)))
        inside.append((truth >= predicted + trained.spread.low) & (truth <= predicted + trained.spread.high))
    assert np.mean(ours) < 0.95 * np.mean(baseline)
    assert 0.7 < np.mean(inside) < 0.9


def test_anomalies_are_what_is_used_in_spain() -> None:
    trained = train(part(year("ES"), 0, 60 * 24))
    assert trained is not None
    assert trained.name == Anomalies().name
