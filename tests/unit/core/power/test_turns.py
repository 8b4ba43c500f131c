"""Clocks and replicas take turns."""

from hypothesis import example, given
from hypothesis import strategies as st

from heliotrope.power.turns import Recent, Turn, may_lower_clocks, may_remove_replicas

times = st.floats(0.0, 1_000.0)


def test_after_replicas_changed_clocks_wait_and_the_other_way_round() -> None:
    replicas, clocks = Recent(replicas_changed_unix_s=100.0), Recent(clocks_changed_unix_s=100.0)
    assert may_lower_clocks(replicas, 219.0, dwell_seconds=0.0) is Turn.OTHERS_TURN
    assert may_lower_clocks(replicas, 220.0, dwell_seconds=0.0) is Turn.FREE
    assert may_remove_replicas(clocks, 219.0, dwell_seconds=0.0) is Turn.OTHERS_TURN
    assert may_remove_replicas(clocks, 220.0, dwell_seconds=0.0) is Turn.FREE


def test_nothing_is_reduced_while_replicas_start_or_end() -> None:
    moving = Recent(replicas_in_transition=True)
    assert may_lower_clocks(moving, 1e9, dwell_seconds=0.0) is Turn.IN_TRANSITION
    assert may_remove_replicas(moving, 1e9, dwell_seconds=0.0) is Turn.IN_TRANSITION


def test_saturated_or_unknown_engines_keep_their_replicas() -> None:
    assert may_remove_replicas(Recent(), 0.0, dwell_seconds=0.0, utilizations=[0.2, 0.71]) is Turn.SATURATED
    assert may_remove_replicas(Recent(), 0.0, dwell_seconds=0.0, utilizations=[float("nan")]) is Turn.SATURATED
    assert may_remove_replicas(Recent(), 0.0, dwell_seconds=0.0, utilizations=[0.2, 0.7]) is Turn.FREE


@example(clocks=2.0, replicas=0.0, now=1.0, dwell=0.0, settle=1.0)
@given(times, times, times, st.floats(0.0, 500.0), st.floats(1.0, 500.0))
def test_never_both_within_one_settle_window(
    clocks: float, replicas: float, now: float, dwell: float, settle: float
) -> None:
    recent = Recent(clocks, replicas)
    lowers = may_lower_clocks(recent, now, dwell_seconds=dwell, settle_seconds=settle)
    removes = may_remove_replicas(recent, now, dwell_seconds=dwell, settle_seconds=settle)
    if lowers is Turn.FREE:
        assert now - replicas >= settle
        assert max(now - clocks, 0.0) >= dwell  # a change in the future is one of just now
        assert (
            may_remove_replicas(Recent(now, replicas), now, dwell_seconds=0.0, settle_seconds=settle) is not Turn.FREE
        )
    if removes is Turn.FREE:
        assert now - clocks >= settle
        assert may_lower_clocks(Recent(clocks, now), now, dwell_seconds=0.0, settle_seconds=settle) is not Turn.FREE
