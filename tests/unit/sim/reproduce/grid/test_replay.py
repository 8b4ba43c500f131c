"""Hours placed by the library's schedulers: caps, sessions, gaps, headroom."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.demand import demand
from heliotrope_sim.reproduce.grid.rates import Rates
from heliotrope_sim.reproduce.grid.replay import Placed, place_hours
from heliotrope_sim.reproduce.grid.runs import (
    CLEANEST_FIRST,
    LEAST_LOADED,
    ROUND_ROBIN,
    SOFT_MULTIPLIER,
    Run,
    Sessions,
)
from heliotrope_sim.reproduce.grid.tranches import tranches
from heliotrope_sim.reproduce.grid.zones import ZONES

HOURS = 24
COHORTS = 40
BASE = np.array([400.0, 500.0, 600.0, 700.0])


def rates(g_per_kwh: Floats) -> Rates:
    return Rates(ZONES[: g_per_kwh.shape[1]], 0.0, g_per_kwh, "test")


def constant() -> Rates:
    return rates(np.tile(BASE, (HOURS, 1)))


def run(scheduler: str, **changes: Any) -> Run:
    return Run(scheduler, COHORTS, 7, **changes)


def placed(asked: Run, truth: Rates, view: Floats | None = None) -> Placed:
    seen = truth.g_per_kwh if view is None else view
    return place_hours(asked, truth, seen, tranches(asked, truth, np.ones(len(truth))))


def test_the_cleanest_are_filled_up_to_the_cap() -> None:
    found = placed(run(CLEANEST_FIRST, sessions=Sessions.FREE), constant())
    assert (found.loads == [20, 20, 0, 0]).all()
    assert found.by_carbon.all()
    found = placed(run(CLEANEST_FIRST, sessions=Sessions.FREE, cap=0.3), constant())
    assert (found.loads == [12, 12, 12, 4]).all()


def test_sessions_stay_where_their_last_turn_was() -> None:
    turned = np.tile(BASE, (HOURS, 1))
    turned[12:] = BASE[::-1]
    found = placed(run(CLEANEST_FIRST), rates(turned))
    assert found.moved.sum() == 0
    # Forty percent began where it was clean before, and fewer of them every hour.
    behind = found.loads[12:, :2].sum(axis=1)
    assert behind[0] == 16
    assert (np.diff(behind) <= 0).all()
    assert behind[-1] <= 1
    assert (found.loads.max(axis=1) <= 20).all()
    free = placed(run(CLEANEST_FIRST, sessions=Sessions.FREE), rates(turned))
    assert (free.loads[12:] == [0, 0, 20, 20]).all()
    assert free.moved[12].sum() == 16


@pytest.mark.parametrize(("ratio", "moves"), [(0.1, True), (3.0, False)])
def test_a_priced_session_moves_where_that_emits_less(ratio: float, moves: bool) -> None:
    turned = np.tile(BASE, (HOURS, 1))
    turned[12:] = BASE[::-1]
    found = placed(run(CLEANEST_FIRST, sessions=Sessions.PRICED, recompute_ratio=ratio), rates(turned))
    assert (found.moved[12].sum() > 0) == moves


def test_the_soft_multiplier_keeps_load_spread_and_leans_to_the_clean() -> None:
    asked = replace(run(SOFT_MULTIPLIER, sessions=Sessions.FREE), cohorts=400)
    means = [placed(replace(asked, weight=w), constant()).loads.mean(axis=0) for w in (0.0, 1.0)]
    assert means[0] == pytest.approx(100.0)
    assert (np.diff(means[1]) < 0.0).all()
    # At w = 1 the dirtiest zone looks at most twice as loaded as a clean one.
    assert means[1][-1] * 2.0 >= means[1][0] - 1.0


def test_the_soft_multiplier_keeps_its_cap_and_its_sessions() -> None:
    turned = np.tile(np.array([0.0, 900.0, 900.0, 900.0]), (HOURS, 1))
    turned[12:] = turned[12:, ::-1]
    asked = run(SOFT_MULTIPLIER, weight=50.0, cap=0.3)
    found = placed(asked, rates(turned))
    assert found.loads.max() == 12
    assert found.moved.sum() == 0
    assert found.unplaced == 0


@pytest.mark.parametrize("scheduler", [CLEANEST_FIRST, SOFT_MULTIPLIER])
def test_without_readings_load_goes_by_pressure_and_nothing_fails(scheduler: str) -> None:
    truth = constant()
    view = truth.g_per_kwh.copy()
    view[6:12, 2] = np.nan
    view[18:] = np.nan
    found = placed(run(scheduler, sessions=Sessions.FREE), truth, view)
    blind = np.isnan(view).any(axis=1)
    assert found.unplaced == 0
    assert (found.by_carbon == ~blind).all()
    assert (found.loads[blind] == 10).all()
    assert (found.loads[~blind, 0] > 10).all()


def test_round_robin_is_even_whatever_the_rates() -> None:
    found = placed(run(ROUND_ROBIN), constant())
    assert (found.loads == 10).all()


def test_the_blind_balancer_serves_locally_and_spills() -> None:
    truth = rates(np.tile(np.full(19, 400.0), (HOURS, 1)))
    asked = replace(run(LEAST_LOADED, local=True), cohorts=19 * 20)
    found = placed(asked, truth)
    assert found.unplaced == 0
    assert (found.loads.sum(axis=1) == asked.cohorts).all()
    shares = demand(truth).by_zone
    shares = shares / shares.sum(axis=1, keepdims=True) * asked.cohorts
    quiet = demand(truth).total < 0.8
    assert quiet.any()
    # Far from saturation nothing spills: what a zone serves is what it asks for.
    assert found.loads[quiet] == pytest.approx(shares[quiet], abs=1.0)


def test_headroom_bounds_what_curtailed_power_takes() -> None:
    curtailed = np.tile(np.array([400.0, 500.0, 600.0, 0.0]), (HOURS, 1))
    curtailed[::2, 3] = 700.0
    truth = rates(curtailed)
    steps = tranches(run(CLEANEST_FIRST, headroom=1.0), truth, np.ones(HOURS))
    assert steps.per_zone == 2
    assert steps.cohorts[1].tolist() == [20, 20, 20, 10, 0, 0, 0, 10]
    assert steps.cohorts[0].tolist() == [20, 20, 20, 20, 0, 0, 0, 0]
    found = placed(run(CLEANEST_FIRST, headroom=1.0, sessions=Sessions.FREE), truth)
    assert (found.loads[1::2] == [20, 10, 0, 10]).all()
    assert (found.loads[::2] == [20, 20, 0, 0]).all()
    unlimited = placed(run(CLEANEST_FIRST, headroom=inf, sessions=Sessions.FREE), truth)
    assert (unlimited.loads[1::2] == [20, 0, 0, 20]).all()


def test_sessions_beyond_the_headroom_stay_at_the_zones_usual_rate() -> None:
    curtailed = np.tile(np.array([400.0, 0.0]), (HOURS, 1))
    curtailed[0, 1] = 500.0
    steps = tranches(run(CLEANEST_FIRST, headroom=0.1), rates(curtailed), np.ones(HOURS))
    homes = np.array([1, 0, 1, 1, 0])
    assert steps.of_homes(homes, 1).tolist() == [1, 0, 1, 3, 0]


def test_equal_seeds_give_equal_years() -> None:
    noise = np.random.default_rng(3).uniform(300.0, 700.0, (HOURS, 4))
    first, second = (placed(run(CLEANEST_FIRST), rates(noise)) for _ in range(2))
    assert (first.loads == second.loads).all()
