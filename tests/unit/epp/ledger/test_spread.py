import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.ledger.spread import MAX_SLOTS, slots, split

TIMES = st.floats(min_value=0.0, max_value=4e9)


def test_an_interval_within_a_slot_is_in_it() -> None:
    assert slots(601.0, 899.0, 300) == [(600, 1.0)]


def test_an_interval_over_slots_is_shared_by_time() -> None:
    assert slots(750.0, 1_250.0, 300) == [(600, 0.3), (900, 0.6), (1_200, pytest.approx(0.1))]


def test_an_interval_up_to_the_edge_does_not_touch_the_next_slot() -> None:
    assert slots(450.0, 600.0, 300) == [(300, 1.0)]


def test_a_clock_that_was_set_back_puts_it_at_the_end() -> None:
    assert slots(5_000.0, 700.0, 300) == [(600, 1.0)]
    assert slots(700.0, 700.0, 300) == [(600, 1.0)]


@pytest.mark.parametrize("time", [float("nan"), float("inf")])
def test_no_time_is_refused(time: float) -> None:
    with pytest.raises(ValueError, match="no interval"):
        slots(time, 1.0, 300)
    with pytest.raises(ValueError, match="no interval"):
        slots(1.0, time, 300)


@given(TIMES, TIMES, st.sampled_from([1, 5, 300, 3_600]))
def test_shares_are_whole_slots_are_in_order_and_few(start: float, end: float, slot_seconds: int) -> None:
    found = slots(start, end, slot_seconds)
    assert sum(share for _, share in found) == pytest.approx(1.0)
    assert all(share >= 0.0 for _, share in found)
    starts = [slot for slot, _ in found]
    assert starts == sorted(set(starts))
    assert all(slot % slot_seconds == 0 for slot in starts)
    assert len(found) <= MAX_SLOTS


@given(st.integers(-(10**15), 10**15), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50))
def test_parts_of_a_whole_number_sum_to_it_and_have_its_sign(total: int, weights: list[float]) -> None:
    whole = sum(weights) or 1.0
    parts = split(total, [weight / whole for weight in weights])
    assert sum(parts) == total
    assert all(part * total >= 0 for part in parts)


def test_parts_are_in_proportion() -> None:
    assert split(1_000, [0.25, 0.5, 0.25]) == [250, 500, 250]
    assert split(10, [1 / 3, 1 / 3, 1 / 3]) == [3, 3, 4]
