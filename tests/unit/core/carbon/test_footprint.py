"""Worked by hand: the arithmetic stands beside every number."""

from dataclasses import replace

import numpy as np
import pytest

from heliotrope.carbon.footprint import (
    Boundary,
    Draw,
    Embodied,
    Factors,
    Footprint,
    MixedGramsError,
    Operational,
    electricity_cost,
    embodied_grams,
    footprint,
    hardware_cost,
    total_operational,
    water_liters,
)
from heliotrope.carbon.signal import EmissionFactor, Reading, SignalType

READING = Reading(300.0, 1_000.0, "electricityMaps", SignalType.AVERAGE, EmissionFactor.LIFECYCLE, estimated=False)
FACTORS = Factors(
    pue=1.2,
    wue_l_per_kwh=1.8,
    electricity_price_per_kwh=0.10,
    price_per_hour=3.0,
    # Five years: 5 × 365 × 86,400 s = 157,680,000 s.
    embodied=Embodied(grams_co2e=1_576_800.0, lifetime_seconds=157_680_000.0),
)
# 3,000 J of the accelerators and 600 J of the host: 3,600 J = 0.001 kWh. 10 s on a fifth of the replica: 2 s.
DRAW = Draw(accelerator_joules=3_000.0, host_joules=600.0, reserved_seconds=2.0)


def test_a_request_by_hand() -> None:
    result = footprint(DRAW, FACTORS, READING, 1_060.0)
    assert result.it_joules == 3_600.0
    assert result.operational is not None
    assert result.operational.grams_co2e == pytest.approx(0.36)  # 0.001 kWh × 1.2 × 300 g/kWh
    assert result.embodied_grams_co2e == pytest.approx(0.02)  # 1,576,800 g ÷ 157,680,000 s × 2 s
    assert result.water_liters == pytest.approx(0.0018)  # 0.001 kWh × 1.8 l/kWh, without PUE
    assert result.hardware_cost == pytest.approx(3.0 / 1_800.0)  # 3 per hour ÷ 3,600 s × 2 s
    assert result.electricity_cost == pytest.approx(0.00012)  # 0.001 kWh × 1.2 × 0.10 per kWh


def test_grams_say_what_they_rest_on() -> None:
    operational = footprint(DRAW, FACTORS, READING, 1_060.0).operational
    assert operational is not None
    basis = operational.basis
    assert (basis.signal_type, basis.emission_factor) == (SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
    assert (basis.source, basis.estimated, basis.age_seconds) == ("electricityMaps", False, 60.0)
    assert (basis.intensity_g_per_kwh, basis.pue, basis.boundary) == (300.0, 1.2, Boundary.ACCELERATORS_AND_HOST)


def test_without_the_host_the_boundary_is_the_accelerators() -> None:
    operational = footprint(replace(DRAW, host_joules=None), FACTORS, READING, 1_060.0).operational
    assert operational is not None
    assert operational.basis.boundary is Boundary.ACCELERATORS
    assert operational.grams_co2e == pytest.approx(0.3)  # 3,000 J ÷ 3,600,000 J/kWh × 1.2 × 300 g/kWh


def test_zero_intensity_is_clean_and_known() -> None:
    operational = footprint(DRAW, FACTORS, replace(READING, intensity_g_per_kwh=0.0), 1_060.0).operational
    assert operational is not None
    assert operational.grams_co2e == 0.0


@pytest.mark.parametrize(
    ("draw", "factors", "reading", "unknown"),
    [
        (DRAW, FACTORS, None, {"operational"}),
        (DRAW, replace(FACTORS, pue=None), READING, {"operational", "electricity_cost"}),
        (DRAW, replace(FACTORS, wue_l_per_kwh=None), READING, {"water_liters"}),
        (DRAW, replace(FACTORS, electricity_price_per_kwh=None), READING, {"electricity_cost"}),
        (DRAW, replace(FACTORS, price_per_hour=None), READING, {"hardware_cost"}),
        (DRAW, replace(FACTORS, embodied=None), READING, {"embodied_grams_co2e"}),
        (replace(DRAW, reserved_seconds=None), FACTORS, READING, {"embodied_grams_co2e", "hardware_cost"}),
        (
            replace(DRAW, accelerator_joules=None),
            FACTORS,
            READING,
            {"it_joules", "operational", "water_liters", "electricity_cost"},
        ),
    ],
)
def test_what_is_unknown_stays_unknown_and_takes_nothing_else_with_it(
    draw: Draw, factors: Factors, reading: Reading | None, unknown: set[str]
) -> None:
    result = footprint(draw, factors, reading, 1_060.0)
    assert {name for name in Footprint.__slots__ if getattr(result, name) is None} == unknown


def part(**changes: object) -> Operational:
    operational = footprint(DRAW, FACTORS, READING, 1_060.0).operational
    assert operational is not None
    return replace(operational, basis=replace(operational.basis, **changes))


def test_a_total_keeps_what_its_parts_rest_on() -> None:
    total = total_operational([part(), part(source="file", pue=1.5, age_seconds=90.0, estimated=None)])
    assert total is not None
    assert total.grams_co2e == pytest.approx(0.72)
    assert total.sources == ("electricityMaps", "file")
    assert (total.lowest_pue, total.highest_pue, total.oldest_seconds) == (1.2, 1.5, 90.0)
    assert total.estimated is None
    assert total_operational([]) is None


@pytest.mark.parametrize(("flags", "expected"), [((False, False), False), ((False, None), None), ((None, True), True)])
def test_one_estimated_part_makes_the_total_estimated(flags: tuple[bool | None, ...], expected: bool | None) -> None:
    total = total_operational([part(estimated=flag) for flag in flags])
    assert total is not None
    assert total.estimated is expected


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("signal_type", SignalType.MARGINAL),
        ("emission_factor", EmissionFactor.DIRECT),
        ("boundary", Boundary.ACCELERATORS),
    ],
)
def test_grams_of_different_meaning_are_never_added(field: str, other: object) -> None:
    with pytest.raises(MixedGramsError, match=f"{field.replace('_', ' ')} .* are not added"):
        total_operational([part(), part(**{field: other})])


def test_columns_are_priced_like_single_values() -> None:
    joules = np.array([3_600_000.0, np.nan])
    assert water_liters(joules, np.array([1.8, 1.8]))[0] == pytest.approx(1.8)
    assert np.isnan(water_liters(joules, np.array([1.8, 1.8]))[1])
    assert electricity_cost(joules, np.array([1.2, 1.2]), np.array([0.5, 0.5]))[0] == pytest.approx(0.6)
    assert embodied_grams(np.array([10.0]), np.array([100.0]), np.array([5.0]))[0] == pytest.approx(0.5)
    assert hardware_cost(np.array([3.0]), np.array([1_800.0]))[0] == pytest.approx(1.5)
