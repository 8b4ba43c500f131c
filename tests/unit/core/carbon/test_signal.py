import pytest

from heliotrope.carbon.accounting import EnergyInterval, emissions
from heliotrope.carbon.series import Point, Series
from heliotrope.carbon.signal import ABSENT, CarbonSignal, EmissionFactor, Freshness, Reading, SignalType
from heliotrope.errors import InvalidInputError


def reading(value: float, at: float = 0.0) -> Reading:
    return Reading(value, at, "test", SignalType.AVERAGE, EmissionFactor.LIFECYCLE)


def test_three_values() -> None:
    signal = CarbonSignal(reading(50.0), stale_after_s=60.0)
    assert signal.freshness(60.0) is Freshness.FRESH
    assert signal.freshness(60.1) is Freshness.STALE
    assert ABSENT.freshness(0.0) is Freshness.ABSENT


def test_only_a_fresh_signal_has_an_expected_value() -> None:
    signal = CarbonSignal(reading(50.0), stale_after_s=60.0)
    assert signal.expected_g_per_kwh(30.0, 10.0) == 50.0
    assert signal.expected_g_per_kwh(61.0, 10.0) is None
    assert ABSENT.expected_g_per_kwh(0.0, 10.0) is None


def test_zero_is_a_value_and_not_absence() -> None:
    signal = CarbonSignal(reading(0.0), stale_after_s=60.0)
    assert signal.freshness(0.0) is Freshness.FRESH
    assert signal.expected_g_per_kwh(0.0, 10.0) == 0.0


def test_the_forecast_is_averaged_over_the_service_time() -> None:
    forecast = Series.from_points([Point(0.0, 100.0), Point(10.0, 300.0)], last_holds_s=100.0)
    signal = CarbonSignal(reading(100.0), stale_after_s=60.0, forecast=forecast)
    assert signal.expected_g_per_kwh(5.0, 10.0) == pytest.approx(200.0)
    # A forecast that ends too early is not stretched.
    assert signal.expected_g_per_kwh(5.0, 1000.0) == 100.0


@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_a_reading_must_be_an_intensity(value: float) -> None:
    with pytest.raises(InvalidInputError):
        reading(value)


def test_emissions_price_each_interval_with_its_own_intensity() -> None:
    series = Series.from_points([Point(0.0, 100.0), Point(3600.0, 500.0)])
    kwh = 3_600_000.0
    result = emissions(
        [
            EnergyInterval(0.0, 3600.0, kwh),
            EnergyInterval(1800.0, 5400.0, 2 * kwh),
            EnergyInterval(7000.0, 8000.0, kwh),
        ],
        series,
        pue=1.5,
    )
    assert result.grams_co2e == pytest.approx(100 * 1.5 + 2 * 300 * 1.5)
    assert result.unpriced_joules == kwh
    assert result.it_joules == 4 * kwh
