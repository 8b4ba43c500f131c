"""Whole parts of a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.engine.attribution import Split, largest_remainder, split

WEIGHTS = st.lists(st.floats(0.0, 1e12, allow_subnormal=True), min_size=1, max_size=40)


def test_remainders_go_to_the_largest() -> None:
    assert largest_remainder(10, [1.0, 1.0, 1.0]) == [4, 3, 3]
    assert largest_remainder(100, [1.0, 2.0, 4.0]) == [14, 29, 57]
    assert largest_remainder(3, [0.0, 1.0, 0.0]) == [0, 3, 0]
    assert largest_remainder(0, [0.0]) == [0]


@given(total=st.integers(0, 1 << 62), weights=WEIGHTS)
def test_parts_add_up_and_are_within_one_of_their_share(total: int, weights: list[float]) -> None:
    if max(weights) <= 0.0:
        weights = [*weights, 1.0]

    parts = largest_remainder(total, weights)

    assert sum(parts) == total
    assert all(part >= 0 for part in parts)
    if total < 1 << 40:
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - total * (weight / sum(weights))) <= 1.0 + total * 1e-9


@pytest.mark.parametrize("weights", [[], [0.0], [-1.0, 2.0], [float("nan"), 1.0], [float("inf")]])
def test_what_cannot_be_shared_is_an_error(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        largest_remainder(5, weights)


def test_idle_time_has_its_own_energy() -> None:
    # 100 W for 4 of 10 s.
    assert split(1_000_000, [3.0, 1.0], idle_watts=100.0, idle_seconds=4.0, seconds=10.0) == Split(
        (450_000, 150_000), 400_000, 0
    )


def test_idle_energy_is_never_more_than_its_share_of_time() -> None:
    parts = split(1_000, [1.0], idle_watts=1e9, idle_seconds=4.0, seconds=10.0)

    assert parts == Split((600,), 400, 0)


def test_an_idle_interval_is_all_idle() -> None:
    assert split(777, [0.0], idle_watts=1.0, idle_seconds=2.0, seconds=2.0) == Split((0,), 777, 0)


def test_work_that_nobody_did_is_nobodys() -> None:
    assert split(1_000, [0.0, 0.0], idle_watts=0.1, idle_seconds=1.0, seconds=2.0) == Split((0, 0), 100, 900)


@given(
    total=st.integers(0, 1 << 50),
    weights=WEIGHTS,
    watts=st.floats(0.0, 1e6),
    idle=st.floats(-1.0, 200.0),
    seconds=st.floats(0.0, 100.0),
)
def test_a_split_loses_nothing(total: int, weights: list[float], watts: float, idle: float, seconds: float) -> None:
    parts = split(total, weights, idle_watts=watts, idle_seconds=idle, seconds=seconds)

    assert sum(parts.parts) + parts.idle + parts.unattributed == total
    assert min(*parts.parts, parts.idle, parts.unattributed) >= 0
