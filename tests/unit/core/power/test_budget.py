"""Watt budgets by the hour: days, time zones, midnight, changes of clocks."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.controls import BudgetWindow, WattBudget, Weekday
from heliotrope.power.budget import LimitSource, planned, window_spans

MADRID = ZoneInfo("Europe/Madrid")


def at(text: str, zone: ZoneInfo = MADRID, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


def window(start: str, end: str, watts: int = 1_000, **changes: Any) -> BudgetWindow:
    values = {"name": f"{start}-{end}", "start": start, "end": end, "time_zone": "Europe/Madrid", "watts": watts}
    return BudgetWindow(**(values | changes))


def watts(budget: WattBudget, unix_s: float) -> float | None:
    limit = planned(budget, unix_s).limit
    return None if limit is None else limit.watts


def test_the_lowest_of_all_that_hold_counts() -> None:
    budget = WattBudget(watts=5_000, schedule=(window("17:00", "21:00", 4_000), window("18:00", "19:00", 3_000)))
    hours = ("16:59", "17:00", "18:00", "18:59", "19:00", "21:00")
    found = [watts(budget, at(f"2026-12-01T{hour}:00")) for hour in hours]
    assert found == [5_000, 4_000, 3_000, 3_000, 4_000, 5_000]
    assert planned(budget, at("2026-12-01T12:00:00")).limit.source is LimitSource.CONSTANT  # type: ignore[union-attr]
    assert planned(budget, at("2026-12-01T18:30:00")).limit.name == "18:00-19:00"  # type: ignore[union-attr]
    assert planned(budget, at("2026-12-01T17:30:00")).changes_unix_s == at("2026-12-01T18:00:00")
    assert planned(None, 0.0).limit is None


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_starts() -> None:
    budget = WattBudget(schedule=(window("22:00", "06:00", days=(Weekday.FRIDAY,)),))
    friday = "2026-12-04"
    assert watts(budget, at(f"{friday}T05:00:00")) is None
    assert watts(budget, at(f"{friday}T22:00:00")) == 1_000
    assert watts(budget, at("2026-12-05T05:59:59")) == 1_000
    assert watts(budget, at("2026-12-05T06:00:00")) is None
    assert watts(budget, at("2026-12-05T23:00:00")) is None


def test_where_the_clock_is_put_forward_a_window_comes_as_much_later() -> None:
    # 2026-03-29, Madrid: 02:00 becomes 03:00.
    budget = WattBudget(schedule=(window("02:30", "04:00"),))
    assert watts(budget, at("2026-03-29T03:15:00")) is None
    assert watts(budget, at("2026-03-29T03:30:00")) == 1_000
    assert watts(budget, at("2026-03-29T04:00:00")) is None


def test_where_the_clock_is_put_back_a_window_is_the_longer_one() -> None:
    # 2026-10-25, Madrid: 03:00 becomes 02:00; 02:30 is there twice.
    budget = WattBudget(schedule=(window("02:15", "02:45"),))
    (start, end) = next(
        span
        for span in window_spans(budget.schedule[0], at("2026-10-25T02:20:00"))
        if span[1] > at("2026-10-25T01:00:00")
    )
    assert (start, end) == (at("2026-10-25T02:15:00"), at("2026-10-25T02:45:00", fold=1))
    assert end - start == 5_400.0
    assert watts(budget, at("2026-10-25T02:50:00")) == 1_000
    assert watts(budget, at("2026-10-25T02:50:00", fold=1)) is None


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_said_and_the_rest_holds(zone: str) -> None:
    window_of = window("00:00", "12:00", 500).model_copy(update={"time_zone": zone, "name": "lost"})
    found = planned(WattBudget(watts=2_000, schedule=(window_of,)), at("2026-12-01T06:00:00"))
    assert found.limit is not None
    assert found.limit.watts == 2_000
    assert len(found.problems) == 1
    assert zone in found.problems[0]
    assert "lost" in found.problems[0]


minutes = st.integers(0, 1_439).map(lambda each: f"{each // 60:02}:{each % 60:02}")


@given(
    minutes,
    minutes,
    st.sets(st.sampled_from(Weekday), min_size=1),
    st.sampled_from(["Europe/Madrid", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]),
    st.floats(datetime(2026, 1, 1, tzinfo=UTC).timestamp(), datetime(2027, 1, 1, tzinfo=UTC).timestamp()),
)
def test_the_next_change_is_the_next_change(start: str, end: str, days: set[Weekday], zone: str, now: float) -> None:
    if start == end:
        return
    budget = WattBudget(schedule=(window(start, end, days=tuple(days), time_zone=zone),))
    found = planned(budget, now)
    assert now < found.changes_unix_s <= now + 8 * 86_400
    steps = [now + share * (found.changes_unix_s - now) for share in (0.0, 0.3, 0.7, 0.999)]
    assert len({watts(budget, each) for each in steps}) == 1
    (wall,) = {span for span in window_spans(budget.schedule[0], now) if found.changes_unix_s in span} or {None}
    assert wall is not None
