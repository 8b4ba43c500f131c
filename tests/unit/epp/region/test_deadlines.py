"""Requests that may wait: for a cleaner hour, never too long, never more than the queue holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.region.bench import Bench, chat, policy
from tests.unit.epp.region.builders import NOW_UNIX_S, Client, view

from heliotrope.carbon.series import Point, Series
from heliotrope.carbon.signal import SignalType
from heliotrope_epp.region.deadlines import Curve, curve_of

ALLOWED = {"overrides": {"allowed": ["Deadline", "Regions"]}}
DIRTY_NOW = {"a": 400.0, "b": 300.0}
LONG = "deadlines: {longestWait: 4h}"


def forecast(*values: float) -> Series:
    """Hour by hour from now on."""
    return Series.from_points([Point(NOW_UNIX_S + 3600.0 * i, value) for i, value in enumerate(values)])


def bench(extra: str = LONG, **options: object) -> Bench:
    made = Bench(DIRTY_NOW, carbon_policy=policy(spec=ALLOWED), extra=extra, **options)  # type: ignore[arg-type]
    made.intensities(DIRTY_NOW, {"a": forecast(400, 50, 300), "b": forecast(300, 200, 20, 300)})
    return made


def patient(deadline: str, **headers: str) -> Client:
    return Client(chat(), {"x-heliotrope-deadline": deadline} | {k.replace("_", "-"): v for k, v in headers.items()})


async def test_it_waits_for_the_best_region_and_hour_and_goes_then() -> None:
    it = bench()
    client = patient("3h")
    it.director.decide(client)
    assert (len(it.deadlines), client.answered) == (1, False)
    it.later(3600.0, "a", "b")
    it.deadlines.look()
    assert len(it.deadlines) == 1  # region b is cleaner still an hour later
    it.later(3600.0, "a", "b")
    it.intensities({"a": 300.0, "b": 20.0})
    it.deadlines.look()
    it.collector.close()
    assert client.sent["x-heliotrope-region"] == "b"
    assert it.deadlines.ends["planned"] == 1
    assert it.log.newest(1)[0]["held_seconds"] == 7200.0


async def test_a_near_deadline_takes_what_it_can_reach() -> None:
    it = bench()
    client = patient("70m")
    it.director.decide(client)
    it.later(3600.0, "a", "b")
    it.deadlines.look()
    it.collector.close()
    assert client.answered


async def test_a_forecast_that_turns_bad_holds_nobody_past_the_latest_start() -> None:
    it = bench()
    client = patient("150m")
    it.director.decide(client)
    it.later(3600.0, "a", "b")
    it.intensities(DIRTY_NOW)
    it.deadlines.plan()
    it.deadlines.look()
    it.collector.close()
    assert client.answered


async def test_nobody_waits_longer_than_anybody_may() -> None:
    it = bench("deadlines: {longestWait: 90m}")
    client = patient("48h", x_heliotrope_regions="b")
    it.director.decide(client)
    assert len(it.deadlines) == 1
    it.later(3500.0, "a", "b")
    it.deadlines.look()
    assert len(it.deadlines) == 1
    it.later(1_900.0, "a", "b")
    it.deadlines.look()
    it.collector.close()
    assert client.answered


@pytest.mark.parametrize("deadline", ["1s", "2000-01-01T00:00:00Z", "5m"])
async def test_where_nothing_is_gained_or_left_it_goes_at_once(deadline: str) -> None:
    it = bench()
    (client,) = it.send(patient(deadline))
    assert client.answered
    assert it.deadlines.ends["now"] == 1


async def test_without_forecasts_or_fresh_signals_it_goes_at_once() -> None:
    it = bench()
    it.intensities(DIRTY_NOW)
    it.deadlines.plan()
    assert it.send(patient("3h"))[0].answered
    it.store.set_signals({})
    it.deadlines.plan()
    assert it.send(patient("3h"))[0].answered


async def test_a_full_queue_places_at_once_or_refuses_as_configured() -> None:
    it = bench("deadlines: {longestWait: 4h, maxRequests: 1}")
    first, second = patient("3h"), patient("3h")
    it.send(first, second)
    assert (first.answered, second.answered) == (False, True)
    assert second.rejected is None
    it = bench("deadlines: {longestWait: 4h, maxRequests: 1, whenFull: Refuse}")
    first, second = patient("3h"), patient("3h")
    it.send(first, second)
    assert second.rejected is not None
    assert second.rejected[0] == 429
    assert it.director.inflight == 1
    assert it.metric("heliotrope_region_deadline_requests_total", result="refused") == 1


async def test_clients_that_leave_and_a_drain_empty_the_queue() -> None:
    it = bench()
    first, second = patient("3h"), patient("3h")
    it.send(first, second)
    first.cancelled = True
    it.director.cancelled(first)
    assert len(it.deadlines) == 1
    it.deadlines.drain()
    it.collector.close()
    assert second.answered
    assert (it.deadlines.ends["left"], it.deadlines.ends["draining"], it.director.inflight) == (1, 1, 1)


async def test_types_of_signals_are_never_compared() -> None:
    views = [view("a", 400.0), view("b", 20.0, kind=SignalType.MARGINAL)]
    assert np.isnan(curve_of(views, NOW_UNIX_S, 3600.0).grams).all()
    assert curve_of([view("a", 400.0)], NOW_UNIX_S, 3600.0).grams[0] == pytest.approx(480.0)


@given(
    grams=st.lists(st.one_of(st.floats(0.0, 1000.0), st.just(float("nan"))), min_size=1, max_size=50),
    latest=st.floats(-100.0, 20_000.0),
)
def test_a_start_is_never_late_never_dirtier_than_now_and_the_best_that_is_reached(
    grams: list[float], latest: float
) -> None:
    starts = np.arange(len(grams)) * 300.0
    curve = Curve(starts, np.array(grams))
    start = curve.best_start(latest)
    if start == 0.0:
        reach = [g for s, g in zip(starts, grams, strict=True) if s <= latest and not np.isnan(g)]
        assert np.isnan(grams[0]) or all(g >= grams[0] * 0.98 for g in reach)
        return
    assert start <= latest
    chosen = grams[int(start // 300.0)]
    assert chosen < grams[0]
    assert all(g >= chosen for s, g in zip(starts, grams, strict=True) if s <= latest and not np.isnan(g))
