import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_sim.reproduce.grid.curtailment import GAS_G_PER_KWH, ZERO_SHARE, clean_share, marginal_rates
from heliotrope_sim.reproduce.grid.rates import REFERENCE, illustration


def test_clean_power_is_counted_above_that_of_the_dirtiest_hours() -> None:
    average = np.array([[100.0], *([[500.0]] * 19)])
    assert clean_share(average)[0, 0] == pytest.approx(400.0 / 500.0)
    assert clean_share(average)[1, 0] == pytest.approx(0.0)


def test_a_clean_zone_is_measured_by_what_gas_emits() -> None:
    # Hydropower comes and goes, but a swing of 50 g/kWh is no surplus of wind or sun.
    average = np.array([[30.0], *([[80.0]] * 19)])
    assert clean_share(average)[0, 0] == pytest.approx(50.0 / GAS_G_PER_KWH)


@given(st.lists(st.floats(0.0, 1_200.0), min_size=40, max_size=200))
def test_rates_are_zero_or_a_fossil_plants(values: list[float]) -> None:
    average = np.array(values)[:, None]
    rates = marginal_rates(average, 0)
    zero = rates == 0.0
    assert (rates[~zero] >= GAS_G_PER_KWH).all()
    assert (rates[~zero] == np.maximum(average[~zero], GAS_G_PER_KWH)).all()
    # What is curtailed is cleaner than anything that is not.
    if zero.any() and (~zero).any():
        assert average[zero].max() <= average[~zero].min()
    assert zero.mean() <= ZERO_SHARE + 1.0 / len(values)


def test_unknown_intensity_is_an_unknown_rate_and_not_zero() -> None:
    average = np.array([[100.0, 400.0], [np.nan, 450.0], *([[500.0, 480.0]] * 20)])
    rates = marginal_rates(average, 0)
    assert np.isnan(rates[1, 0])
    assert np.isfinite(rates).sum() == rates.size - 1


def test_californias_zeros_lower_its_mean_as_the_papers_do() -> None:
    rates = illustration()
    column = rates.g_per_kwh[:, [zone.name for zone in rates.zones].index(REFERENCE)]
    assert (column == 0.0).mean() == pytest.approx(ZERO_SHARE, abs=1.0 / len(column))
    assert rates.g_per_kwh.shape == (8_759, 19)
    assert np.isfinite(rates.g_per_kwh).all()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_zeros_are_credited_with_a_share_of_the_zones_median(alpha: float) -> None:
    base = illustration()
    credited = base.credited(alpha)
    zero = base.g_per_kwh == 0.0
    expected = np.broadcast_to(alpha * base.uncurtailed_g_per_kwh, zero.shape)
    assert credited.g_per_kwh[zero] == pytest.approx(expected[zero])
    assert (credited.g_per_kwh[~zero] == base.g_per_kwh[~zero]).all()
