"""Answers to the grid: ramps, frozen baselines, events that follow each other, restarts."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.power.demand import Answer, Event, Ramps, answer, limit_at

RAMPS = Ramps(in_seconds=300.0, out_seconds=600.0, reduction=0.3)
EVENT = Event("evening", 1_000.0, 4_000.0)


def watts(given: Answer | None, now: float, ramps: Ramps = RAMPS) -> float | None:
    limit = limit_at(given, now, ramps)
    return None if limit is None else limit.watts


def followed(
    events: list[Event], until: float, power: float = 10_000.0, step: float = 50.0
) -> dict[float, float | None]:
    """Limits over time, with the answer kept from step to step as a status keeps it; power follows the limit."""
    found, kept, now = {}, None, 0.0
    while now <= until:
        limit = watts(kept, now)
        kept = answer(kept, events, now, RAMPS, power if limit is None else min(power, limit))
        found[now] = watts(kept, now)
        now += step
    return found


def test_power_is_down_at_the_start_and_back_after_the_end() -> None:
    found = followed([EVENT], 5_000.0)
    assert found[650.0] is None
    assert found[700.0] == 10_000.0
    assert found[850.0] == pytest.approx(8_500.0)
    assert {found[at] for at in (1_000.0, 2_000.0, 3_950.0)} == {7_000.0}
    assert found[4_300.0] == pytest.approx(8_500.0)
    assert found[4_600.0] is None


def test_the_baseline_is_frozen_and_survives_a_restart() -> None:
    kept = answer(None, [EVENT], 700.0, RAMPS, 10_000.0)
    for now, power in ((900.0, 8_000.0), (1_500.0, 7_000.0), (3_000.0, 2_000.0)):
        kept = answer(None if kept is None else replace(kept), [EVENT], now, RAMPS, power)
        assert kept is not None
        assert (kept.baseline_watts, kept.target_watts, kept.since_unix_s) == (10_000.0, 7_000.0, 700.0)


def test_events_that_follow_each_other_share_a_baseline() -> None:
    first, second = Event("a", 1_000.0, 2_000.0), Event("b", 2_000.0, 3_000.0, reduction=0.5)
    found = followed([first, second], 4_000.0)
    assert found[1_500.0] == 7_000.0
    assert found[2_500.0] == 5_000.0
    assert followed([first, Event("b", 2_300.0, 3_000.0, reduction=0.5)], 4_000.0)[2_500.0] == 5_000.0


def test_of_several_the_lowest_counts() -> None:
    both = [Event("mild", 0.0, 9_000.0, watts=9_000.0), Event("hard", 1_000.0, 4_000.0, watts=4_000.0)]
    found = followed(both, 5_000.0)
    assert (found[500.0], found[2_000.0], found[5_000.0]) == (9_000.0, 4_000.0, 9_000.0)


def test_a_late_event_goes_down_in_the_time_that_is_left() -> None:
    late = answer(None, [EVENT], 900.0, RAMPS, 10_000.0)
    assert late is not None
    assert late.since_unix_s == 900.0
    assert [watts(late, at) for at in (900.0, 950.0, 1_000.0)] == [10_000.0, 8_500.0, 7_000.0]
    begun = answer(None, [EVENT], 1_500.0, RAMPS, 10_000.0)
    assert watts(begun, 1_500.0) == 7_000.0


def test_an_event_that_is_gone_is_over_now_and_power_returns() -> None:
    kept = answer(None, [Event("prometheus", 1_000.0, inf, watts=6_000.0)], 1_000.0, RAMPS, 10_000.0)
    kept = answer(kept, [], 2_000.0, RAMPS, 6_000.0)
    assert kept is not None
    assert kept.end_unix_s == 2_000.0
    assert not kept.holds(2_000.0)
    kept = answer(kept, [], 2_300.0, RAMPS, 8_000.0)
    assert watts(kept, 2_300.0) == pytest.approx(8_000.0)
    assert answer(kept, [], 2_600.0, RAMPS, 10_000.0) is None


def test_without_a_baseline_a_share_is_unknown_and_limits_nothing_until_it_is_known() -> None:
    kept = answer(None, [EVENT], 1_100.0, RAMPS, None)
    assert kept is not None
    assert (kept.target_watts, watts(kept, 1_100.0), kept.holds(1_100.0)) == (None, None, True)
    kept = answer(kept, [EVENT], 1_200.0, RAMPS, 10_000.0)
    assert watts(kept, 1_200.0) == 7_000.0
    stated = answer(None, [Event("w", 1_000.0, 4_000.0, watts=5_000.0)], 700.0, RAMPS, None)
    assert watts(stated, 700.0) == 5_000.0  # nothing to ramp from: in time rather than late
    assert answer(stated, [], 4_100.0, RAMPS, None) is None


def test_a_limit_above_what_is_drawn_is_no_ramp_upwards() -> None:
    kept = answer(None, [Event("w", 1_000.0, 4_000.0, watts=12_000.0)], 700.0, RAMPS, 10_000.0)
    assert watts(kept, 850.0) == 12_000.0


@given(st.floats(0, 5_000), st.floats(1, 20_000), st.floats(0.01, 1.0), st.floats(0, 1_000), st.floats(0, 1_000))
def test_limits_stay_between_target_and_baseline(
    now: float, power: float, reduction: float, ramp_in: float, ramp_out: float
) -> None:
    ramps = Ramps(ramp_in, ramp_out, reduction)
    begun = answer(None, [EVENT], EVENT.start_unix_s - ramp_in, ramps, power)
    kept = answer(begun, [EVENT], now, ramps, 0.0) if now < EVENT.end_unix_s else begun
    limit = watts(kept, now, ramps)
    if limit is not None:
        assert power * (1 - reduction) - 1e-6 <= limit <= power + 1e-6
    if EVENT.start_unix_s <= now < EVENT.end_unix_s:
        assert limit == pytest.approx(power * (1 - reduction))
