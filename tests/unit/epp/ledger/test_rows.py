import pytest
from tests.unit.epp.ledger.builders import NAN

from heliotrope.carbon.footprint import Boundary
from heliotrope_epp.ledger.columns import KEYS, OLDEST, SLOT, SUMS
from heliotrope_epp.ledger.rows import Amounts, Key, Line, Signal, Site, row

SITE = Site(
    pue=1.5,
    wue_liters_per_kwh=2.0,
    electricity_price_per_kwh=0.1,
    electricity_currency="EUR",
    price_per_hour=3.6,
    currency="USD",
    embodied_grams_co2e_per_replica=1_000_000.0,
    embodied_lifetime_seconds=1e8,
)
SIGNAL = Signal("average", "lifecycle", "static", None)
KEY = Key(600, Line.REQUEST, "es", "llm/v", SITE, SIGNAL, Boundary.ACCELERATORS_AND_HOST, arm="policy")
AMOUNTS = Amounts(
    millijoules=3_200_000, host_joules=400.0, accelerator_seconds=2.0, requests=3, succeeded=2, grams_co2e=0.15
)


def test_a_row_holds_what_things_cost() -> None:
    stored = row(KEY, AMOUNTS, 300, "p")
    assert stored["millijoules"] == 3_200_000
    assert stored["water_liters"] == pytest.approx(0.002)  # 3,600 J = 0.001 kWh × 2 l/kWh
    assert stored["electricity_cost"] == pytest.approx(0.00015)  # 0.001 kWh × 1.5 × 0.1
    assert stored["hardware_cost"] == pytest.approx(0.002)  # 3.6 ÷ 3,600 s × 2 s
    assert stored["embodied_grams_co2e"] == pytest.approx(0.02)  # 10⁶ g ÷ 10⁸ s × 2 s
    assert (stored["grams_co2e"], stored["signal_type"], stored["pue"]) == (0.15, "average", 1.5)


def test_every_column_is_known_to_the_reader() -> None:
    assert set(row(KEY, AMOUNTS, 300, "p")) <= {SLOT, *KEYS, *SUMS, OLDEST}


def test_what_is_unknown_is_left_out() -> None:
    unpriced = row(KEY._replace(signal=None), AMOUNTS, 300, "p")
    assert not {"grams_co2e", "signal_type", "signal_age_seconds", "signal_estimated"} & set(unpriced)
    unstated = row(KEY._replace(site=Site()), AMOUNTS, 300, "p")
    assert not {"water_liters", "hardware_cost", "electricity_cost", "embodied_grams_co2e"} & set(unstated)
    assert "host_joules" not in row(KEY._replace(boundary=Boundary.ACCELERATORS), AMOUNTS, 300, "p")
    assert "accelerator_seconds" not in row(KEY, Amounts(accelerator_seconds=NAN), 300, "p")


def test_requests_without_a_counter_have_counts_and_no_energy() -> None:
    stored = row(KEY._replace(measured=False, signal=None), Amounts(requests=2), 300, "p")
    assert stored["requests"] == 2
    assert not {"millijoules", "host_joules", "accelerator_seconds", "water_liters", "grams_co2e"} & set(stored)


def test_other_lines_count_no_requests() -> None:
    stored = row(KEY._replace(line=Line.IDLE, boundary=Boundary.ACCELERATORS), Amounts(millijoules=5), 300, "p")
    assert stored["millijoules"] == 5
    assert not {"requests", "accelerator_seconds", "hardware_cost"} & set(stored)


def test_amounts_add_up_and_keep_the_oldest_signal() -> None:
    one = Amounts(millijoules=1, requests=1, grams_co2e=0.5, signal_age_seconds=10.0)
    one.add(Amounts(millijoules=2, output_tokens=7, signal_age_seconds=30.0))
    one.add(Amounts(signal_age_seconds=20.0))
    assert one == Amounts(millijoules=3, requests=1, output_tokens=7, grams_co2e=0.5, signal_age_seconds=30.0)
