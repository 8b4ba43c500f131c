"""The corrected time."""

from hypothesis import given
from hypothesis import strategies as st

from heliotrope_operator.deferral.clock import ServerClock

times = st.floats(0, 1e6)


@given(own=times, seen=st.lists(times, max_size=5), passed=st.floats(0, 1e5), step=st.floats(-1e5, 1e5))
def test_it_is_never_behind_what_was_seen_nor_behind_its_own_clock(
    own: float, seen: list[float], passed: float, step: float
) -> None:
    """Also when the process's clock is set back or forth meanwhile."""
    wall, ticks = [own], [0.0]
    clock = ServerClock(lambda: wall[0], lambda: ticks[0])
    for each in seen:
        clock.saw(each)
    wall[0], ticks[0] = own + passed + step, passed

    assert clock.now_unix_s() >= wall[0]
    assert all(clock.now_unix_s() >= each + passed - 1e-6 for each in seen)
    assert clock.behind_s() >= 0.0
    if not seen:
        assert clock.now_unix_s() == wall[0]
