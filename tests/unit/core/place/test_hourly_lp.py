"""Hourly plans give each region its share of tokens, within budgets and residency, until the hour is over."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.unit.core.place.cases import ENGINE, NAN, NOW, regions, window

from heliotrope.errors import SolverError
from heliotrope.place import hourly_plan
from heliotrope.place.assignment import Outcome, Reason
from heliotrope.place.hourly_kernel import region_rates
from heliotrope.place.hourly_plan import plan
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.schedulers.hourly_lp import MOST_CLASSES, SETTLED_AFTER_S, HourlyMemory, hourly_lp
from heliotrope.units import SECONDS_PER_HOUR, grams_co2e

POLICY = PlacementPolicy()
HOUR = NOW // SECONDS_PER_HOUR * SECONDS_PER_HOUR


def rate(engines: float) -> float:
    """Tokens per second of engines at 40 sequences, in the engine model's words."""
    step = ENGINE.decode_seconds(40.0, 40.0 * 876.5) / 40.0
    return engines * 912.0 / (ENGINE.prefill_seconds(841.0) + 71.0 * step)


def test_the_budget_is_what_engines_compute_at_their_batch_limit() -> None:
    found = regions(3, engines=[2.0, NAN, 0.0])
    one = np.array([841.0]), np.array([71.0])
    budget, joules, seconds = region_rates(found.engine_rows, found.engines, found.batch_capacity, *one, 841.0, 71.0)
    np.testing.assert_allclose(budget, [rate(2.0), 0.0, 0.0])
    assert joules[0, 0] == pytest.approx(
        ENGINE.prefill_joules(841.0) + 71.0 * ENGINE.decode_joules(40.0, 40.0 * 876.5) / 40.0
    )
    assert seconds[0, 0] == pytest.approx(ENGINE.prefill_seconds(841.0) + 71.0 * ENGINE.decode_seconds(1.0, 876.5))


@pytest.mark.parametrize("load", [0.3, 1.4, 2.7, 9.0])
@pytest.mark.parametrize("peers", [0, 3])
def test_plans_are_those_of_another_solver(load: float, peers: int) -> None:
    found = regions(3, engines=[4.0, 2.0, 3.0], intensity_g_per_kwh=[300.0, 100.0, 200.0])
    masks = np.array([[True, True, True], [True, False, True]])
    tokens = load * rate(4.0) / (1 + peers)
    demand = np.array([[0.7, 0.3], [0.7 * 841.0, 0.3 * 841.0], [0.7 * 71.0, 0.3 * 71.0]]) * tokens / 912.0
    per_joule = grams_co2e(1.0, 1.1, found.intensity_g_per_kwh)
    shares = plan(demand, masks, found, replace(POLICY, peers=peers), per_joule)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares[~masks] == 0.0).all()
    budgets = np.array([rate(4.0), rate(2.0), rate(3.0)]) / (1 + peers)
    flow = shares * (demand[1] + demand[2])[:, None]
    solved = linprog(
        c=np.where(masks, per_joule, 1e3).ravel(),
        A_eq=np.kron(np.eye(2), np.ones(3)),
        b_eq=demand[1] + demand[2],
        A_ub=np.tile(np.eye(3), 2),
        b_ub=budgets,
    )
    if solved.success and solved.fun < 1e3:
        assert (flow.sum(axis=0) <= budgets * (1.0 + 1e-9)).all()
        assert (flow * per_joule).sum() == pytest.approx(solved.fun)
    else:
        assert (flow.sum(axis=0) >= budgets * (1.0 - 1e-9))[[0, 2]].all()


def test_a_plan_needs_demand() -> None:
    with pytest.raises(ValueError, match="demand"):
        plan(np.zeros((3, 1)), np.ones((1, 2), dtype=np.bool_), regions(2), POLICY, np.ones(2))


def test_far_regions_and_unknown_ones_are_not_planned() -> None:
    found = regions(4, rtt_seconds=[4.9, NAN, 0.0, 0.0], engine_rows=regions(4).engine_rows.copy())
    found.engine_rows[2] = NAN
    shares = plan(np.array([[1.0], [841.0], [71.0]]), np.ones((1, 4), dtype=np.bool_), found, POLICY, np.ones(4))
    assert shares.tolist() == [[0.0, 0.0, 0.0, 1.0]]


def memory_of(shares: list[list[float]], masks: list[list[bool]]) -> HourlyMemory:
    count, d = len(shares), len(shares[0])
    return HourlyMemory(
        names=tuple(f"r{i}" for i in range(d)),
        masks=np.array(masks),
        shares=np.array(shares),
        sent_tokens=np.zeros((count, d)),
        seen=np.zeros((3, count)),
        planned_at_s=NOW,
        next_plan_s=NOW + 600.0,
    )


def test_requests_follow_the_shares_from_window_to_window() -> None:
    memory = memory_of([[0.5, 0.3, 0.2]], [[True] * 3])
    sent = np.zeros(3, dtype=np.int64)
    for k in range(10):
        assignment = hourly_lp(window(7, 3), regions(3), POLICY, NOW + k, memory)
        memory = assignment.memory
        sent += np.bincount(assignment.regions, minlength=3)
    np.testing.assert_allclose(sent, [35, 21, 14], atol=1)
    assert memory.seen[:, 0].tolist() == [70.0, 70 * 841.0, 70 * 71.0]
    assert assignment.work == 0


def test_a_region_that_goes_down_gets_nothing_though_it_is_planned() -> None:
    memory = memory_of([[0.9, 0.1, 0.0]], [[True] * 3])
    down = regions(3, engines=[0.0, 32.0, 32.0])
    assert hourly_lp(window(4, 3), down, POLICY, NOW, memory).regions.tolist() == [1] * 4
    both = regions(3, engines=[0.0, 0.0, 32.0])
    instead = hourly_lp(window(4, 3), both, POLICY, NOW, memory)
    assert instead.regions.tolist() == [2] * 4
    assert (instead.reasons == Reason.CLEANEST_WITH_HEADROOM).all()


def test_requests_with_other_residency_share_what_is_planned_where_they_may_go() -> None:
    memory = memory_of([[0.6, 0.4, 0.0]], [[True] * 3])
    allowed = np.ones((20, 3), dtype=np.bool_)
    allowed[10:, 0] = False
    assignment = hourly_lp(window(20, 3, allowed=allowed), regions(3), POLICY, NOW, memory)
    assert np.bincount(assignment.regions[:10]).tolist() == [6, 4]
    assert assignment.regions[10:].tolist() == [1] * 10
    assert len(assignment.memory.masks) == 2


def test_classes_are_bounded() -> None:
    rng = np.random.default_rng(1)
    allowed = rng.random((300, 9)) < 0.5
    allowed[:, 0] = True
    assignment = hourly_lp(window(300, 9, allowed=allowed), regions(9), POLICY, NOW)
    assert len(assignment.memory.masks) == MOST_CLASSES
    assert allowed[np.arange(300), assignment.regions].all()
    again = hourly_lp(window(300, 9, allowed=allowed), regions(9), POLICY, NOW, assignment.memory)
    assert again.memory.seen[0].sum() == 300


def test_plans_are_renewed_after_the_first_minute_and_every_full_hour() -> None:
    found = regions(2)
    start = HOUR + 600.0
    first = hourly_lp(window(1, 2), found, POLICY, start)
    assert first.work == 1
    assert first.memory.next_plan_s == start + SETTLED_AFTER_S
    before = hourly_lp(window(1, 2), found, POLICY, start + SETTLED_AFTER_S - 1.0, first.memory)
    assert before.work == 0
    settled = hourly_lp(window(1, 2), found, POLICY, start + SETTLED_AFTER_S, before.memory)
    assert settled.work == 1
    assert settled.memory.next_plan_s == HOUR + SECONDS_PER_HOUR
    assert hourly_lp(window(1, 2), found, POLICY, HOUR + SECONDS_PER_HOUR, settled.memory).work == 1
    assert hourly_lp(window(1, 3), regions(3), POLICY, start, first.memory).work == 1


def test_intensities_of_the_hour_decide_until_it_is_over() -> None:
    clean = regions(2, intensity_g_per_kwh=[100.0, 200.0])
    turned = regions(2, intensity_g_per_kwh=[200.0, 100.0])
    memory = hourly_lp(window(1, 2), clean, POLICY, HOUR).memory
    memory = hourly_lp(window(1, 2), clean, POLICY, HOUR + SETTLED_AFTER_S, memory).memory
    held = hourly_lp(window(2, 2), turned, POLICY, HOUR + SECONDS_PER_HOUR - 1.0, memory)
    assert held.regions.tolist() == [0, 0]
    assert hourly_lp(window(2, 2), turned, POLICY, HOUR + SECONDS_PER_HOUR, held.memory).regions.tolist() == [1, 1]


def test_greedy_decides_when_the_solver_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise SolverError("no")

    monkeypatch.setattr(hourly_plan, "facility_by_highs", failing)
    assignment = hourly_lp(window(3, 2), regions(2), POLICY, NOW)
    assert assignment.outcome is Outcome.FELL_BACK
    assert assignment.regions.tolist() == [0, 0, 0]
    assert assignment.memory is None
