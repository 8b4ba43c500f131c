"""Options as a sequence and as columns say the same."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.plugins.builders import NOW_S, STALE_AFTER_S, metrics, state

from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Options


def pool(n: int) -> list[EndpointState]:
    states = [state(f"e{i}", metrics=metrics(running=float(i), age_s=0.1 + 3.0 * (i % 3 == 2))) for i in range(n)]
    for i, each in enumerate(states):
        each.inflight.add(Dispatch(NOW_S - 1.0, 100.0 + i, 50.0, NOW_S + 0.5 * (-1) ** i), 0.1)
    return states


def values(load: object) -> list[float]:
    return [getattr(load, name) for name in load.__slots__]  # type: ignore[attr-defined]


@given(st.integers(0, 9))
def test_each_option_has_the_load_that_its_endpoint_tells(n: int) -> None:
    states = pool(n)
    options = Options.at(states, [float(i) for i in range(n)], NOW_S, STALE_AFTER_S)
    assert [option.state for option in options] == states == list(options.states)
    assert [option.cached_tokens for option in options] == [float(i) for i in range(n)]
    for option in options:
        np.testing.assert_array_equal(values(option.load), values(option.state.load(NOW_S, STALE_AFTER_S)))
    assert sum(math.isnan(option.load.running) for option in options) == n // 3


@given(st.integers(0, 9), st.data())
def test_what_is_kept_keeps_its_numbers(n: int, data: st.DataObject) -> None:
    options = Options.at(pool(n), [float(i) for i in range(n)], NOW_S, STALE_AFTER_S)
    rows = sorted(data.draw(st.sets(st.integers(0, n - 1)))) if n else []
    kept, built = options.kept(rows), Options.of([options[i] for i in rows])
    for each in (kept, built, options.kept(range(n)).kept(rows)):
        assert [option.key for option in each] == [options[i].key for i in rows]
        np.testing.assert_array_equal(each.loads.table, options.loads.table[:, rows])
        np.testing.assert_array_equal(each.cached_tokens, options.cached_tokens[rows])


def test_positions_beyond_the_end_are_an_error() -> None:
    with pytest.raises(IndexError):
        Options.at(pool(2), [0.0, 0.0], NOW_S, STALE_AFTER_S)[2]


def test_a_request_that_falls_due_between_two_decisions_waits_no_longer() -> None:
    there = state("e", metrics=metrics())
    there.inflight.add(Dispatch(NOW_S, 100.0, 50.0, NOW_S + 0.5), 0.0)
    before = Options.at([there], [0.0], NOW_S, STALE_AFTER_S)
    after = Options.at([there], [0.0], NOW_S + 1.0, STALE_AFTER_S)
    assert (before.loads.waiting[0], after.loads.waiting[0]) == (1.0, 0.0)
