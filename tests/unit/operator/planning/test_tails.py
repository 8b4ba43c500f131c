"""The tail of latencies: windows, restarts, and the quantile against the values themselves."""

from bisect import bisect_left
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_operator.planning.tails import (
    LEAST_REQUESTS,
    LONG_WINDOWS,
    Buckets,
    Recent,
    TailMemory,
    quantile,
    tail_seconds,
)

UPPER = (0.1, 0.25, 0.5, 1.0, 2.5)


def buckets(values: list[float], upper: tuple[float, ...] = UPPER) -> Buckets:
    return Buckets(upper, (*(float(sum(value <= bound for value in values)) for bound in upper), float(len(values))))


def recent(values: list[float]) -> Recent:
    return Recent(buckets(values), buckets(values))


@given(st.lists(st.floats(0.0, 4.0), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_the_quantile_lies_in_the_bucket_that_holds_it(values: list[float], share: float) -> None:
    found = quantile(UPPER, buckets(values).cumulative, share)

    ordered = sorted(values)
    below = next(value for at, value in enumerate(ordered, 1) if at >= share * len(ordered) - 1e-9)
    slot = bisect_left(UPPER, below)
    upper, lower = (inf if slot == len(UPPER) else UPPER[slot]), (UPPER[slot - 1] if slot else 0.0)
    assert lower - 1e-9 <= found <= upper + 1e-9


def test_a_value_beyond_the_last_bound_is_at_least_that() -> None:
    assert quantile(UPPER, buckets([9.0] * 10).cumulative, 0.99) == 2.5


def test_what_came_before_the_window_does_not_count() -> None:
    memory, window_s = TailMemory(), 100.0
    slow, fast = [2.0] * 200, [0.05] * 200
    assert memory.take(0.0, buckets(slow), window_s) == Recent(*[Buckets(UPPER, (0.0,) * 6)] * 2)
    for now_s in range(10, 301, 10):
        grown = memory.take(float(now_s), buckets(slow + fast[: now_s // 2]), window_s)
    assert grown is not None
    assert grown.short.count == 60.0, "of the last 100 s, begun with a snapshot"
    assert grown.long.count == 135.0, "of the last 250 s, likewise"
    assert tail_seconds([grown]) == pytest.approx(0.099)


def test_the_longer_window_answers_where_the_first_holds_too_few() -> None:
    few, many = recent([1.0] * 50).short, recent([0.2] * 150).long
    assert tail_seconds([Recent(few, many)]) == pytest.approx(0.2485)
    assert tail_seconds([Recent(few, few)]) is None, "the slowest hundredth of 50 is nobody"
    assert tail_seconds([Recent(few, few)] * 2) == pytest.approx(0.995), f"together {LEAST_REQUESTS:.0f}"


def test_an_engine_that_restarts_begins_anew() -> None:
    memory = TailMemory()
    memory.take(0.0, buckets([2.0] * 200), 100.0)
    memory.take(50.0, buckets([2.0] * 300), 100.0)
    after = memory.take(100.0, buckets([0.05] * 10), 100.0)
    assert after is not None
    assert (after.short.count, after.long.count) == (0.0, 0.0)
    later = memory.take(150.0, buckets([0.05] * 130), 100.0)
    assert later is not None
    assert later.short.cumulative == (120.0,) * 6


def test_other_bounds_are_another_engine_and_do_not_mix() -> None:
    memory = TailMemory()
    memory.take(0.0, buckets([0.05] * 5), 100.0)
    other = memory.take(50.0, buckets([0.05] * 50, (1.0, 2.0)), 100.0)
    assert other is not None
    assert other.short == Buckets((1.0, 2.0), (0.0, 0.0, 0.0))
    assert tail_seconds([recent([0.05] * 200), Recent(other.short, other.long)]) is None


def test_an_engine_without_histogram_makes_the_tail_unknown() -> None:
    assert TailMemory().take(0.0, None, 100.0) is None
    assert tail_seconds([recent([0.05] * 200), None]) is None
    assert tail_seconds([]) is None


def test_what_is_remembered_is_bounded() -> None:
    memory = TailMemory()
    for now_s in range(10_000):
        memory.take(float(now_s), buckets([0.05]), 100.0)
    assert len(memory._snapshots) <= 4 * LONG_WINDOWS + 2
