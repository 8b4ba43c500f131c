"""Deferral: the cleanest window within the deadline, never later, and only when waiting is worth it."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.errors import InvalidInputError
from heliotrope.scale.deferral import Reason, Rules, Work, latest_start, plan

HOUR = 3600.0
RULES = Rules(longest_delay_s=24 * HOUR, safety_margin_s=0.5 * HOUR, least_gain=0.03, sigmas=0.5)


def forecast(*values: float, spread: float | None = 0.0, start: float = 0.0) -> CarbonForecast:
    """Hourly values with a spread of this many g/kWh to either side; None: it states none."""
    times = [start + HOUR * i for i in range(len(values))]
    lower = None if spread is None else [max(value - spread, 0.0) for value in values]
    upper = None if spread is None else [value + spread for value in values]
    return CarbonForecast.of(times, values, lower, upper, issued_unix_s=start, source="test")


def work(hours: float = 1.0, *, deadline: float | None = None, longest: float | None = None) -> Work:
    """Work that arrived at 0, in hours."""
    return Work(
        0.0, hours * HOUR, (longest or hours) * HOUR, deadline_unix_s=None if deadline is None else deadline * HOUR
    )


def test_it_waits_for_the_cleanest_hour_that_meets_the_deadline() -> None:
    grid = forecast(300, 280, 120, 90, 200, 50)

    found = plan(work(deadline=5.0), RULES, grid, 0.0)

    # The hour of 50 begins at 5 h; with the margin of half an hour work of an hour must start by 3.5 h.
    assert (found.start, found.reason, found.planned_unix_s) == (False, Reason.CLEANER_LATER, 3 * HOUR)
    assert found.saving == pytest.approx(1 - 90 / 300)


def test_windows_longer_than_a_point_are_averaged_and_may_begin_between_points() -> None:
    grid = forecast(300, 100, 100, 300, 300, 300)

    found = plan(work(1.5, deadline=6.0), RULES, grid, 0.0)

    assert HOUR <= found.planned_unix_s <= 1.5 * HOUR
    assert found.planned is not None
    assert found.planned.expected == 100


@pytest.mark.parametrize(
    ("grid", "job", "reason"),
    [
        (forecast(100, 200, 300, 300), work(deadline=4.0), Reason.CLEANEST_NOW),
        (forecast(100, 100, 100, 100), work(deadline=4.0), Reason.CLEANEST_NOW),
        (forecast(0, 0, 0, 0), work(deadline=4.0), Reason.CLEANEST_NOW),
        (forecast(100, 98, 99, 300), work(deadline=4.0), Reason.GAIN_TOO_SMALL),
        (forecast(100, 90, 99, 300, spread=60), work(deadline=4.0), Reason.WITHIN_NOISE),
        (forecast(300, 90, 99, 300), work(deadline=1.2), Reason.DEADLINE_RISK),
        (forecast(300, 90, 99, 300), work(deadline=-5.0), Reason.DEADLINE_RISK),
        (None, work(deadline=4.0), Reason.SIGNAL_LOST),
        (forecast(300, 90), work(3.0, deadline=9.0), Reason.FORECAST_TOO_SHORT),
        (forecast(300, 90, start=HOUR), work(1.0, deadline=9.0), Reason.FORECAST_TOO_SHORT),
    ],
)
def test_it_starts_at_once_and_says_why(grid: CarbonForecast | None, job: Work, reason: Reason) -> None:
    found = plan(job, RULES, grid, 0.0)

    assert (found.start, found.reason, found.planned_unix_s) == (True, reason, 0.0)


def test_a_grid_at_zero_is_clean_and_worth_waiting_for() -> None:
    found = plan(work(deadline=4.0), RULES, forecast(300, 300, 0, 300), 0.0)

    assert (found.start, found.planned_unix_s, found.saving) == (False, 2 * HOUR, 1.0)


def test_a_spread_that_is_not_stated_is_not_certainty() -> None:
    rules = replace(RULES, sigmas=1.0)
    assert not plan(work(deadline=4.0), rules, forecast(100, 88, 300, spread=0.0), 0.0).start
    assert plan(work(deadline=4.0), rules, forecast(100, 88, 300, spread=None), 0.0).reason is Reason.WITHIN_NOISE


def test_what_two_windows_share_is_no_noise_between_them() -> None:
    """Work of 20 hours moved by one: only the hours at the ends are uncertain between the two."""
    values = [300.0] + [200.0] * 19 + [100.0] * 4
    short = plan(work(1.0, deadline=23.0), RULES, forecast(300, 290, spread=100), 0.0)
    assert short.reason is Reason.WITHIN_NOISE
    grid = forecast(*values, spread=40)

    found = plan(work(20.0, deadline=23.0), replace(RULES, least_gain=0.0, sigmas=1.0), grid, 0.0)

    assert not found.start


def test_the_longest_delay_limits_the_wait_whatever_the_deadline() -> None:
    rules = replace(RULES, longest_delay_s=2 * HOUR)
    grid = forecast(300, 280, 270, 50, 50, 50)

    assert latest_start(work(deadline=100.0), rules) == (2 * HOUR, Reason.LONGEST_DELAY)
    assert plan(work(deadline=100.0), rules, grid, 0.0).planned_unix_s == 2 * HOUR
    assert plan(work(deadline=100.0), rules, grid, 2 * HOUR).reason is Reason.LONGEST_DELAY
    assert plan(work(deadline=100.0), rules, grid, 2 * HOUR, 2 * HOUR).reason is Reason.PLANNED_START
    assert plan(work(deadline=100.0), rules, grid, 3 * HOUR, 2 * HOUR).reason is Reason.LONGEST_DELAY, "it is late"


def test_the_longest_duration_counts_for_the_deadline_and_the_expected_one_for_the_window() -> None:
    job = work(1.0, deadline=6.0, longest=3.0)

    assert latest_start(job, RULES) == (2.5 * HOUR, Reason.DEADLINE_RISK)


def test_a_plan_survives_small_changes_of_the_forecast_and_yields_to_large_ones() -> None:
    planned = 3 * HOUR
    little = forecast(300, 280, 119, 120, 200)
    much = forecast(300, 280, 60, 120, 200)

    assert plan(work(deadline=9.0), RULES, little, 0.0, planned).planned_unix_s == planned
    assert plan(work(deadline=9.0), RULES, much, 0.0, planned).planned_unix_s == 2 * HOUR


def test_a_plan_whose_gain_has_gone_starts() -> None:
    found = plan(work(deadline=5.0), RULES, forecast(120, 280, 300, 119, 200), 0.0, 3 * HOUR)

    assert (found.start, found.reason) == (True, Reason.GAIN_TOO_SMALL)


def test_the_planned_time_comes() -> None:
    found = plan(work(deadline=9.0), RULES, forecast(300, 280, 270, 100, 110), 3 * HOUR, 3 * HOUR)

    assert (found.start, found.reason) == (True, Reason.PLANNED_START)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Work(0.0, 0.0, 1.0), "expected_s"),
        (lambda: Work(0.0, math.nan, 1.0), "expected_s"),
        (lambda: Work(0.0, 2.0, 1.0), "longest_s"),
        (lambda: Work(0.0, 2.0, math.inf), "longest_s"),
        (lambda: Rules(-1.0, 0.0), "longest_delay_s"),
        (lambda: Rules(1.0, math.nan), "safety_margin_s"),
        (lambda: Rules(1.0, 1.0, least_gain=1.0), "least_gain"),
    ],
)
def test_nonsense_is_refused_by_name(make: object, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.path == field


# Properties

grids = st.lists(st.floats(0, 900, allow_nan=False), min_size=2, max_size=30)
spreads = st.floats(0, 200)
hours = st.floats(0.1, 8.0)
deadlines = st.none() | st.floats(0.0, 40.0)


@given(grid=grids, spread=spreads, job=hours, over=st.floats(1.0, 3.0), deadline=deadlines, now=st.floats(0.0, 20.0))
def test_it_never_plans_past_a_limit_nor_into_the_past_nor_dirtier_than_now(
    grid: list[float], spread: float, job: float, over: float, deadline: float | None, now: float
) -> None:
    item = work(job, deadline=deadline, longest=job * over)

    found = plan(item, RULES, forecast(*grid, spread=spread), now * HOUR)

    latest, _ = latest_start(item, RULES)
    assert found.latest_unix_s == latest
    if found.start:
        assert found.planned_unix_s == now * HOUR
    else:
        assert now * HOUR < found.planned_unix_s <= latest
        assert found.planned_unix_s <= item.arrived_unix_s + RULES.longest_delay_s
        assert found.now is not None
        assert found.planned is not None
        assert found.planned.expected < found.now.expected
    if now * HOUR >= latest:
        assert found.start


@given(grid=grids, job=hours, deadline=deadlines, low=spreads, more=st.floats(1.0, 3.0))
def test_more_uncertainty_never_makes_it_wait(
    grid: list[float], job: float, deadline: float | None, low: float, more: float
) -> None:
    sure = plan(work(job, deadline=deadline), RULES, forecast(*grid, spread=low), 0.0)
    unsure = plan(work(job, deadline=deadline), RULES, forecast(*grid, spread=low * more), 0.0)
    wild = plan(work(job, deadline=deadline, longest=job * more), RULES, forecast(*grid, spread=low), 0.0)

    assert sure.start <= unsure.start
    assert wild.latest_unix_s <= sure.latest_unix_s


@given(grids=st.lists(grids, min_size=1, max_size=12), job=hours, deadline=deadlines, spread=spreads)
def test_under_forecasts_that_change_it_starts_by_its_limit_and_never_goes_back(
    grids: list[list[float]], job: float, deadline: float | None, spread: float
) -> None:
    """Every quarter of an hour another forecast; some reach far enough, some do not."""
    item = work(job, deadline=deadline)
    latest, _ = latest_start(item, RULES)
    now, planned = 0.0, None
    for step in range(200):
        grid = forecast(*grids[step % len(grids)], spread=spread, start=HOUR * (now // HOUR))
        found = plan(item, RULES, grid, now, planned)
        if found.start:
            break
        planned = found.planned_unix_s
        now = min(now + 0.25 * HOUR, found.planned_unix_s)
    assert found.start
    assert now <= max(latest, 0.0)


@given(grid=grids, wobble=st.lists(st.floats(0.995, 1.005), min_size=30, max_size=30), deadline=st.floats(2.0, 30.0))
def test_a_plan_does_not_flap_with_a_forecast_that_barely_moves(
    grid: list[float], wobble: list[float], deadline: float
) -> None:
    item, steady = work(1.0, deadline=deadline), forecast(*grid)
    first = plan(item, RULES, steady, 0.0)
    if first.start:
        return
    moved = forecast(*[value * factor for value, factor in zip(grid, wobble, strict=False)])

    again = plan(item, RULES, moved, 0.0, first.planned_unix_s)

    assert (again.start, again.planned_unix_s) == (False, first.planned_unix_s)
