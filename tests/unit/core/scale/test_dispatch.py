"""The dispatch budget: 1 when clean or unknown, less when dirty, never nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.scale.test_deferral import forecast

from heliotrope.scale.dispatch import LEAST, budget_at, dispatch_budget, pool_budget

HOUR = 3600.0
values = st.lists(st.floats(0, 900), min_size=4, max_size=48)
noises = st.floats(0, 300)
DAY = [300.0 - 200.0 * float(np.cos(2 * np.pi * hour / 24)) for hour in range(24)]
"""Cleanest at 0 h, dirtiest at 12 h."""


def test_it_falls_from_the_cleanest_hour_to_the_dirtiest() -> None:
    grid = forecast(*DAY, *DAY)
    budgets = [dispatch_budget(grid, hour * HOUR) for hour in range(13)]

    assert budgets[0] == 1.0
    assert budgets == sorted(budgets, reverse=True)
    assert LEAST <= budgets[12] < 0.25


def test_a_flat_grid_and_a_rough_forecast_hold_nothing_back() -> None:
    assert dispatch_budget(forecast(*[300.0] * 24), 0.0) == 1.0
    assert dispatch_budget(forecast(*[0.0] * 24), 0.0) == 1.0
    sharp, rough = (dispatch_budget(forecast(*DAY, *DAY, spread=spread), 12 * HOUR) for spread in (0.0, 400.0))
    assert sharp < 0.25
    assert rough > sharp + 0.2


@pytest.mark.parametrize("grid", [None, forecast(300, 100), forecast(*DAY, start=HOUR)])
def test_what_is_not_known_goes_out(grid: object) -> None:
    assert dispatch_budget(grid, 0.0) == 1.0  # type: ignore[arg-type]


def test_of_several_regions_the_best_counts() -> None:
    assert pool_budget([0.2, 0.9]) == 0.9
    assert pool_budget([]) == 1.0


@given(ahead=values, present=st.floats(0, 1000), more=st.floats(0, 500), noise=noises)
def test_it_is_a_share_that_never_starves_and_never_grows_with_the_present_intensity(
    ahead: list[float], present: float, more: float, noise: float
) -> None:
    here, dirtier = budget_at(present, ahead, noise), budget_at(present + more, ahead, noise)

    assert LEAST <= dirtier <= here <= 1.0
    assert here <= budget_at(present, ahead, noise + more)


@given(ahead=values, present=st.floats(0, 1000), step=st.floats(0, 1e-3), noise=st.floats(1, 300))
def test_it_has_no_jumps(ahead: list[float], present: float, step: float, noise: float) -> None:
    here, there = budget_at(present, ahead, noise), budget_at(present + step, ahead, noise)

    # The steepest slope of the curve is 1.5 / (spread + noise) per g/kWh.
    assert here - there <= 1.5 * step / noise + 1e-9
