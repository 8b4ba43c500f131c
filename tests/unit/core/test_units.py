"""Hand-worked conversions: a factor of 1000 or 3.6e6 gone wrong must fail here."""

import pytest

from heliotrope import units


def test_one_kilowatt_hour_is_3_6_megajoules() -> None:
    assert units.kwh_from_joules(3_600_000.0) == 1.0
    assert units.joules_from_kwh(2.0) == 7_200_000.0


def test_millijoules_of_a_dcgm_counter() -> None:
    # 400 W for one minute = 24 kJ = 24,000,000 mJ
    assert units.joules_from_millijoules(24_000_000.0) == 24_000.0
    assert units.millijoules_from_joules(24_000.0) == 24_000_000.0


def test_grams_of_a_request() -> None:
    # 360 J of IT energy = 0.0001 kWh; behind PUE 1.2 0.00012 kWh; at 250 g/kWh 0.03 g.
    assert units.grams_co2e(360.0, 1.2, 250.0) == pytest.approx(0.03)


def test_a_clean_grid_costs_nothing() -> None:
    assert units.grams_co2e(360.0, 1.2, 0.0) == 0.0


def test_watttime_pounds_per_megawatt_hour() -> None:
    # 1000 lb/MWh = 453.59237 kg per 1000 kWh = 453.59237 g/kWh
    assert units.g_per_kwh_from_lb_per_mwh(1000.0) == pytest.approx(453.59237)


def test_water_is_on_it_energy_without_pue() -> None:
    assert units.liters_from_it_kwh(10.0, 0.2) == pytest.approx(2.0)


def test_watts_and_seconds() -> None:
    assert units.joules_from_watts(72.0, 10.0) == 720.0
    assert units.seconds_from_milliseconds(1500.0) == 1.5
    assert units.milliseconds_from_seconds(0.071) == pytest.approx(71.0)
    assert units.nanoseconds_from_seconds(0.0125) == pytest.approx(12_500_000.0)


def test_a_byte_has_eight_bits() -> None:
    assert units.bits_from_bytes(16.0) == 128.0
