"""What depths draw, and from which idle time on they pay."""

from math import inf, isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.engine import profiles
from heliotrope.scale.depths import ORDER, Rest, RestTable, WakeTimes, rest_table

A100 = profiles.load("llama-3.1-8b-a100-40gb")
EXIT, OFF = ActivationDepth.PROCESS_EXIT, ActivationDepth.NODE_OFF


def test_break_even_by_hand() -> None:
    """100 W awake, 40 W at rest; 10 s and 2,200 J to come back: (2200 - 40·10) / 60 = 30 s."""
    table = RestTable(100.0, 50.0, {EXIT: Rest(40.0, 10.0, 2_200.0)})
    assert table.break_even_seconds(EXIT) == pytest.approx(30.0)
    assert table.saved_joules(EXIT, 30.0) == pytest.approx(0.0)
    assert table.saved_joules(EXIT, 130.0) == pytest.approx(6_000.0)
    assert table.saved_watts(EXIT) == 60.0


def test_the_host_is_saved_only_with_the_whole_node() -> None:
    table = RestTable(100.0, 50.0, {depth: Rest(0.0, 1.0) for depth in ORDER})
    assert [table.saved_watts(depth) for depth in ORDER] == [100.0, 100.0, 100.0, 150.0]


def test_what_was_not_measured_is_never_free() -> None:
    table = RestTable(100.0, 50.0)
    assert table.break_even_seconds(EXIT) == inf
    assert (table.saved_watts(EXIT), table.saved_joules(EXIT, 1e6)) == (0.0, 0.0)
    assert table.wake_seconds(EXIT) == inf
    assert RestTable(60.0, 0.0, {EXIT: Rest(60.0, 1.0)}).break_even_seconds(EXIT) == inf


@pytest.mark.parametrize("name", profiles.available())
def test_a_profile_gives_the_depths_that_it_knows(name: str) -> None:
    model = profiles.load(name)
    table = rest_table(model, WakeTimes(node_off=None))
    assert OFF not in table.depths
    assert (EXIT in table.depths) is (model.unloaded_watts is not None)
    assert all(rest.watts <= table.awake_watts + 1e-9 for rest in table.depths.values())
    assert not table.depths[ActivationDepth.IDLE_CLOCK].loses_cache


@given(
    st.floats(10.0, 1e3), st.floats(0.0, 1e3), st.floats(0.0, 600.0), st.floats(0.0, 1e6), st.floats(0.0, 60.0),
    st.floats(1e-3, 1e5),
)  # fmt: skip
def test_a_depth_pays_exactly_from_its_break_even_time_on(
    awake: float, rest: float, wake_s: float, wake_joules: float, enter_s: float, idle_s: float
) -> None:
    table = RestTable(awake, 0.0, {EXIT: Rest(rest, wake_s, wake_joules, enter_s)})
    least = table.break_even_seconds(EXIT)
    if not isfinite(least):
        assert rest >= awake
    elif idle_s >= least * (1.0 + 1e-9):
        assert table.saved_joules(EXIT, idle_s) >= -1e-6 * (wake_joules + awake * idle_s)
    elif wake_s + enter_s < idle_s < least * (1.0 - 1e-9):
        assert table.saved_joules(EXIT, idle_s) <= 1e-6 * (wake_joules + awake * idle_s)
