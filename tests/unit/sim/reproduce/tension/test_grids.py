import numpy as np
import pytest

from heliotrope_sim.reproduce.tension import grids


def test_every_region_has_four_zones_with_a_year_of_hours() -> None:
    assert [len(zones) for zones in grids.REGIONS.values()] == [4, 4, 4, 4]
    assert grids.intensities().shape == (8_759, 16)
    assert (grids.intensities() > 0.0).all()


def test_the_base_hour_has_as_many_narrower_as_wider_hours() -> None:
    spreads = np.array([grids.spread(hour) for hour in range(8_759)])
    base = grids.spread(grids.base_hour())
    assert (spreads < base).sum() == pytest.approx((spreads > base).sum(), abs=1)


def test_extreme_hours_rise_in_spread() -> None:
    spreads = [grids.spread(hour) for hour in grids.extreme_hours()]
    assert spreads == sorted(spreads)
    assert spreads[0] == pytest.approx(0.37, abs=0.01)
    assert spreads[-1] == pytest.approx(0.72, abs=0.01)


def test_pues_are_the_papers_where_it_prints_them() -> None:
    assert {grids.pue(zone, real=False) for zone in grids.ZONES} == {1.1}
    real = {zone: grids.pue(zone, real=True) for zone in grids.ZONES}
    assert (real["NL"], real["JP-TK"]) == (1.08, 1.32)
    assert (min(real.values()), max(real.values())) == (1.08, 1.32)
