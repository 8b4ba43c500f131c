"""What was sent is on its way, waits, runs and leaves; a projection never invents or loses load."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.place.cases import ENGINE, NAN, NOW, cases, regions, window

from heliotrope.place.dispatches import (
    DISPATCH_LINES,
    DUTY_SECONDS,
    FORGET_AFTER_S,
    Dispatch,
    DispatchLog,
    dispatched,
)
from heliotrope.place.estimate import estimate
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.projection import peers_seen, project, with_assigned
from heliotrope.place.regions import Regions
from heliotrope.place.window import FloatMatrix, Window

POLICY = PlacementPolicy()
LOADS = ("running", "waiting", "waiting_tokens", "kv_tokens", "prefill_duty", "idle_engines")


def measured(found: Regions, at: float = NOW) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.full(len(found), at)


@st.composite
def sent(draw: st.DrawFn, *, since: float = -20.0) -> tuple[Regions, FloatMatrix]:
    """Regions of known load and requests sent to them around the time of the measurement."""
    _, found = draw(cases(unknowns=False))
    count = draw(st.integers(0, 12))
    matrix = np.empty((DISPATCH_LINES, count))
    for j in range(count):
        arrives = NOW + draw(st.floats(since, 5.0))
        first = arrives + draw(st.floats(0.0, 3.0))
        matrix[:, j] = (
            draw(st.integers(0, len(found) - 1)),
            arrives,
            first,
            first + draw(st.floats(0.0, 9.0)),
            draw(st.floats(1.0, 4_000.0)),
            draw(st.floats(1.0, 4_000.0)),
            draw(st.floats(1.0, 300.0)),
            draw(st.floats(0.0, 1.0)),
        )
    return found, matrix


def in_flight(found: Regions) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return found.engines * (found.running + found.waiting)


@given(sent(), st.floats(0.0, 30.0), st.floats(0.0, 3.0))
@settings(max_examples=120, deadline=None)
def test_loads_are_never_negative_and_nothing_else_changes(
    case: tuple[Regions, FloatMatrix], after: float, peers: float
) -> None:
    found, matrix = case
    now = project(found, measured(found), matrix, NOW + after, peers)
    for name in LOADS:
        column = getattr(now, name)
        assert (column >= 0.0).all()
        assert np.isfinite(column).all()
    assert (now.prefill_duty[found.engines > 0.0] <= 0.95).all()
    assert (now.age_seconds == NOW + after - NOW).all()
    for name in ("engines", "batch_capacity", "intensity_g_per_kwh", "rtt_seconds"):
        assert getattr(now, name) is getattr(found, name)


@given(sent(since=0.001), st.floats(0.0, 30.0), st.floats(0.0, 3.0))
@settings(max_examples=120, deadline=None)
def test_each_request_sent_since_adds_itself_and_what_peers_send_like_it(
    case: tuple[Regions, FloatMatrix], after: float, peers: float
) -> None:
    found, matrix = case
    now = project(found, measured(found), matrix, NOW + after, peers)
    there = matrix[Dispatch.ENDS_S] > NOW + after
    for d in np.flatnonzero(found.engines > 0.0):
        own = int((there & (matrix[Dispatch.REGION] == d)).sum())
        np.testing.assert_allclose(in_flight(now)[d], in_flight(found)[d] + own * (1.0 + peers), rtol=1e-9, atol=1e-9)


@given(sent(since=0.001), st.floats(0.0, 30.0))
@settings(max_examples=100, deadline=None)
def test_more_requests_are_never_less_load(case: tuple[Regions, FloatMatrix], after: float) -> None:
    found, matrix = case
    fewer = project(found, measured(found), matrix[:, : matrix.shape[1] // 2], NOW + after)
    more = project(found, measured(found), matrix, NOW + after)
    for name in ("running", "waiting", "waiting_tokens", "kv_tokens", "prefill_duty"):
        assert (getattr(more, name) >= getattr(fewer, name) - 1e-9).all()
    assert (more.idle_engines <= fewer.idle_engines + 1e-9).all()


@given(sent(since=0.001))
@settings(max_examples=60, deadline=None)
def test_it_decays_to_the_snapshot_when_all_have_left(case: tuple[Regions, FloatMatrix]) -> None:
    found, matrix = case
    later = project(found, measured(found), matrix, NOW + 60.0)
    for name in LOADS:
        column = np.minimum(getattr(found, name), 0.95) if name == "prefill_duty" else getattr(found, name)
        up = found.engines > 0.0
        np.testing.assert_array_equal(getattr(later, name)[up], column[up])


@given(sent(), st.floats(0.0, 9.0))
@settings(max_examples=60, deadline=None)
def test_projecting_nothing_on_a_projection_changes_nothing(case: tuple[Regions, FloatMatrix], after: float) -> None:
    found, matrix = case
    once = project(found, measured(found), matrix, NOW + after)
    again = project(once, measured(found, NOW + after), matrix[:, :0], NOW + after)
    same = project(found, measured(found), matrix, NOW + after)
    for name in LOADS:
        np.testing.assert_array_equal(getattr(same, name), getattr(once, name))
        if name != "idle_engines":
            np.testing.assert_array_equal(getattr(again, name), getattr(once, name))


@given(cases(), st.floats(0.0, 9.0))
@settings(max_examples=60, deadline=None)
def test_unknown_load_stays_unknown(case: tuple[Window, Regions], after: float) -> None:
    asked, found = case
    places = np.where(asked.allowed[:, 0], 0, -1)
    matrix = dispatched(asked, found, POLICY, places, NOW)
    now = project(found, measured(found), matrix, NOW + after)
    for name in LOADS:
        assert (np.isnan(getattr(now, name)) == np.isnan(getattr(found, name))).all()


def test_one_request_from_its_way_to_its_end() -> None:
    found = regions(1, engines=2.0, idle_engines=2.0, rtt_seconds=0.2, dispatch_seconds=0.1)
    matrix = dispatched(window(1, 1), found, POLICY, np.array([0]), NOW)
    e = estimate(window(1, 1), found, POLICY)
    ttft, latency = float(e.ttft_seconds[0, 0]), float(e.latency_seconds[0, 0])
    assert matrix[Dispatch.ARRIVES_S, 0] == pytest.approx(NOW + 0.3)
    assert matrix[Dispatch.FIRST_TOKEN_S, 0] == pytest.approx(NOW + ttft)
    assert matrix[Dispatch.ENDS_S, 0] == pytest.approx(NOW + latency)

    def at(seconds: float) -> Regions:
        return project(found, measured(found, NOW - 1.0), matrix, NOW + seconds)

    for seconds in (0.0, 0.3, ttft - 0.01):
        assert (at(seconds).waiting[0], at(seconds).running[0]) == (0.5, 0.0)
        assert at(seconds).waiting_tokens[0] == 841.0 / 2.0
    half = at((ttft + latency) / 2.0)
    assert (half.waiting[0], half.running[0]) == (0.0, 0.5)
    assert half.kv_tokens[0] == pytest.approx((841.0 + 71.0 / 2.0) / 2.0)
    assert half.idle_engines[0] == 1.0
    assert half.prefill_duty[0] == pytest.approx(ENGINE.prefill_seconds(841.0) / DUTY_SECONDS / 2.0)
    assert at(latency + 0.01).running[0] == 0.0
    assert at(latency + 0.01).prefill_duty[0] > 0.0
    assert at(latency + DUTY_SECONDS).prefill_duty[0] == 0.0


def test_what_the_measurement_counted_is_taken_away_when_it_leaves() -> None:
    empty = regions(1, engines=1.0, idle_engines=0.0)
    matrix = dispatched(window(3, 1), empty, POLICY, np.zeros(3, dtype=np.int64), NOW - 0.5)
    seen = project(empty, measured(empty, NOW - 9.0), matrix, NOW)
    assert in_flight(seen)[0] == 3.0
    others = replace(seen, running=seen.running + 4.0)
    later = project(others, measured(others), matrix, NOW + 60.0)
    assert in_flight(later)[0] == pytest.approx(4.0)


def test_what_is_still_on_its_way_is_not_in_the_measurement() -> None:
    far = regions(1, rtt_seconds=0.3, idle_engines=0.0)
    matrix = dispatched(window(2, 1), far, POLICY, np.zeros(2, dtype=np.int64), NOW - 0.1)
    now = project(far, measured(far), matrix, NOW + 0.05)
    assert in_flight(now)[0] == pytest.approx(2.0)


def test_a_window_waits_for_itself() -> None:
    one_engine = regions(1, engines=1.0)
    matrix = dispatched(window(3, 1), one_engine, POLICY, np.zeros(3, dtype=np.int64), NOW)
    assert (np.diff(matrix[Dispatch.FIRST_TOKEN_S]) > 0.0).all()
    assert dispatched(window(3, 1), one_engine, POLICY, np.array([-1, 0, -1]), NOW).shape[1] == 1


def test_requests_of_regions_without_a_step_model_count_until_they_are_measured() -> None:
    unknown = regions(1, engine=None, engines=2.0)
    matrix = dispatched(window(2, 1), unknown, POLICY, np.zeros(2, dtype=np.int64), NOW)
    assert in_flight(project(unknown, measured(unknown, NOW - 1.0), matrix, NOW + 300.0))[0] == 2.0
    assert in_flight(project(unknown, measured(unknown, NOW + 1.0), matrix, NOW + 300.0))[0] == 0.0


def test_an_unknown_round_trip_does_not_hide_what_was_sent() -> None:
    distant = regions(1, rtt_seconds=NAN)
    matrix = dispatched(window(2, 1), distant, POLICY, np.zeros(2, dtype=np.int64), NOW)
    assert np.isfinite(matrix).all()


def test_a_region_that_was_never_measured_has_all_that_was_sent() -> None:
    found = regions(1)
    matrix = dispatched(window(2, 1), found, POLICY, np.zeros(2, dtype=np.int64), NOW)
    assert in_flight(project(found, measured(found, NAN), matrix, NOW))[0] == pytest.approx(2.0)


@given(cases(unknowns=False))
@settings(max_examples=60, deadline=None)
def test_an_assigned_window_is_its_dispatches_at_once(case: tuple[Window, Regions]) -> None:
    asked, found = case
    places = np.arange(len(asked)) % len(found)
    queued = with_assigned(asked, found, places)
    matrix = dispatched(asked, found, POLICY, places, NOW)
    up = found.engines > 0.0
    now = project(found, measured(found, NOW - 60.0), matrix, NOW)
    for name in ("running", "waiting", "waiting_tokens"):
        np.testing.assert_allclose(getattr(now, name)[up], getattr(queued, name)[up], rtol=1e-9, atol=1e-9)


def test_peers_are_what_regions_have_beside_ours() -> None:
    found = regions(2, engines=4.0)
    matrix = dispatched(window(4, 2), found, POLICY, np.array([0, 0, 1, 1]), NOW - 0.1)
    seen = replace(found, running=np.array([1.5, NAN]))
    assert peers_seen(seen, measured(seen), matrix, otherwise=3.0) == pytest.approx(2.0)
    assert peers_seen(seen, measured(seen, NOW - 5.0), matrix, otherwise=3.0) == 3.0


@given(sent(), st.floats(0.0, 20.0), st.floats(0.0, 9.0))
@settings(max_examples=80, deadline=None)
def test_what_a_log_forgets_no_projection_misses(
    case: tuple[Regions, FloatMatrix], measure: float, after: float
) -> None:
    found, matrix = case
    log = DispatchLog()
    log.add(matrix)
    at = measured(found, NOW + measure)
    log.forget(at)
    full = project(found, at, matrix, NOW + measure + after)
    kept = project(found, at, log.matrix, NOW + measure + after)
    for name in LOADS:
        np.testing.assert_allclose(getattr(kept, name), getattr(full, name), rtol=1e-9, atol=1e-9)


def test_a_log_forgets_what_has_left_and_what_nobody_heard_of_again() -> None:
    found = regions(1)
    log = DispatchLog()
    log.add(dispatched(window(2, 1), found, POLICY, np.zeros(2, dtype=np.int64), NOW))
    endless = dispatched(window(1, 1), regions(1, engine=None), POLICY, np.zeros(1, dtype=np.int64), NOW)
    log.add(endless)
    log.forget(measured(found, NAN))
    assert len(log) == 3
    log.forget(measured(found, NOW + 60.0))
    assert len(log) == 1
    log.forget(measured(found, NOW + FORGET_AFTER_S + 1.0))
    assert len(log) == 0


def test_an_answer_that_ended_early_has_left() -> None:
    found = regions(1, engines=1.0)
    log = DispatchLog()
    first = log.add(dispatched(window(3, 1), found, POLICY, np.zeros(3, dtype=np.int64), NOW))
    log.ended(first + 1, NOW + 0.01)
    log.ended(99, NOW)
    now = project(found, measured(found, NOW - 1.0), log.matrix, NOW + 0.02)
    assert in_flight(now)[0] == 2.0


def test_a_log_is_bounded_and_tells_what_it_dropped() -> None:
    found = regions(1)
    log = DispatchLog(limit=3_000)
    for _ in range(4):
        last = log.add(dispatched(window(1_000, 1), found, POLICY, np.zeros(1_000, dtype=np.int64), NOW))
    assert len(log) == 3_000
    assert log.dropped == 1_000
    log.ended(last, NOW)
    assert log.matrix[Dispatch.ENDS_S, 2_000] == NOW
    log.add(np.tile(log.matrix[:, :1], (1, 5_000)))
    assert len(log) == 3_000
    assert log.dropped == 6_000
