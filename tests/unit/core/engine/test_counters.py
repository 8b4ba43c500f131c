"""Energy counters that rise, stand still, wrap, fall, lie and go missing."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from heliotrope.engine.counters import CounterGroup, CounterLimits, Refusal, Rise, Span, rise

LIMITS = CounterLimits(max_watts=1_000.0, slack_seconds=1.0, longest_seconds=90.0)


def test_a_rise_is_what_was_drawn() -> None:
    assert rise(1_000, 51_000, 1.0, LIMITS) == Rise(50_000)


def test_more_than_the_hardware_can_draw_is_refused() -> None:
    # 1 kW for the second between and the second of slack are 2 MJ·10⁻³.
    assert rise(0, 2_000_000, 1.0, LIMITS) == Rise(2_000_000)
    assert rise(0, 2_000_001, 1.0, LIMITS) == Rise(None, Refusal.ABSURD)


def test_a_fall_near_the_top_of_the_counter_is_a_wrap() -> None:
    assert rise((1 << 32) - 100, 400, 1.0, LIMITS) == Rise(500)
    assert rise((1 << 64) - 100, 400, 1.0, LIMITS) == Rise(500)


def test_a_width_that_the_counter_is_not_known_to_have_makes_a_reset() -> None:
    limits = CounterLimits(max_watts=1_000.0, widths_bits=(64,))

    assert rise((1 << 32) - 100, 400, 1.0, limits) == Rise(400, Refusal.RESET)


def test_after_a_reset_at_least_what_shows_was_drawn() -> None:
    assert rise(5_000_000, 700, 1.0, LIMITS) == Rise(700, Refusal.RESET)


def test_a_fall_to_what_cannot_have_been_drawn_since_is_unknown() -> None:
    assert rise(1 << 40, 1 << 39, 1.0, LIMITS) == Rise(None, Refusal.RESET)


def group(expected: int | None = None, **changes: float) -> CounterGroup:
    limits = {"max_watts": 1_000.0, "longest_seconds": 90.0} | changes
    return CounterGroup(CounterLimits(**limits), expected)


def test_the_first_span_begins_at_the_first_change() -> None:
    counters = group()

    assert counters.observe({"a": 900_000}, 0.0) is None
    assert counters.observe({"a": 900_000}, 1.0) is None
    assert counters.observe({"a": 900_700}, 2.0) is None  # since when, nobody knows
    assert counters.observe({"a": 901_000}, 3.0) == Span(2.0, 3.0, 300)


def test_a_span_runs_from_one_change_to_the_next() -> None:
    counters = group()
    for now_s, value in ((0.0, 0), (1.0, 10)):
        counters.observe({"a": value}, now_s)

    assert [counters.observe({"a": 10}, now_s) for now_s in (2.0, 11.0, 30.9)] == [None] * 3
    assert counters.observe({"a": 9_010}, 31.0) == Span(1.0, 31.0, 9_000)


def test_a_tensor_parallel_group_is_the_sum_once_all_have_moved() -> None:
    counters = group(2)
    counters.observe({"a": 0, "b": 100}, 0.0)
    counters.observe({"a": 10, "b": 110}, 1.0)

    assert counters.observe({"a": 20, "b": 110}, 2.0) is None
    assert counters.observe({"a": 20, "b": 140}, 3.0) == Span(1.0, 3.0, 40)


def test_with_one_missing_the_sum_is_unknown_and_not_smaller() -> None:
    counters = group(2)
    counters.observe({"a": 0, "b": 0}, 0.0)
    counters.observe({"a": 10, "b": 10}, 1.0)

    assert counters.observe({"a": 20}, 2.0) is None
    assert counters.observe({"a": 25, "b": None}, 3.0) is None
    assert counters.observe({"a": 30, "b": 30}, 4.0) == Span(1.0, 4.0, 40)
    assert counters.refused == {Refusal.MISSING: 1}


def test_fewer_accelerators_than_the_engine_has_give_nothing() -> None:
    counters = group(4)

    assert [counters.observe({"a": i * 10, "b": i * 10}, float(i)) for i in range(5)] == [None] * 5
    assert counters.refused == {Refusal.MISSING: 1}


def test_a_reset_ends_the_span_and_the_next_one_is_good() -> None:
    counters = group()
    for now_s, value in ((0.0, 5_000), (1.0, 6_000)):
        counters.observe({"a": value}, now_s)

    assert counters.observe({"a": 50}, 2.0) == Span(1.0, 2.0, 50, Refusal.RESET)
    assert counters.observe({"a": 150}, 3.0) == Span(2.0, 3.0, 100)
    assert counters.refused == {Refusal.RESET: 1}


def test_one_absurd_reading_spoils_two_spans_and_no_more() -> None:
    counters = group()
    for now_s, value in ((0.0, 1_000), (1.0, 2_000)):
        counters.observe({"a": value}, now_s)

    assert counters.observe({"a": 1 << 50}, 2.0) == Span(1.0, 2.0, None, Refusal.ABSURD)
    assert counters.observe({"a": 4_000}, 3.0) == Span(2.0, 3.0, None, Refusal.RESET)
    assert counters.observe({"a": 5_000}, 4.0) == Span(3.0, 4.0, 1_000)


def test_standing_still_for_too_long_is_a_gap_and_what_follows_is_nobodys() -> None:
    counters = group()
    for now_s, value in ((0.0, 0), (1.0, 10)):
        counters.observe({"a": value}, now_s)

    assert counters.observe({"a": 10}, 91.0) is None
    assert counters.observe({"a": 10}, 91.5) == Span(1.0, 91.5, 0, Refusal.GAP)
    assert counters.observe({"a": 910}, 95.0) == Span(91.5, 95.0, 900, Refusal.GAP)
    assert counters.observe({"a": 920}, 96.0) == Span(95.0, 96.0, 10)


def test_silence_is_a_gap_too() -> None:
    counters = group()
    for now_s, value in ((0.0, 0), (1.0, 10)):
        counters.observe({"a": value}, now_s)

    assert counters.silent(50.0) is None
    assert counters.silent(92.0) == Span(1.0, 92.0, 0, Refusal.GAP)


def test_other_accelerators_than_before_begin_anew() -> None:
    counters = group()
    for now_s, value in ((0.0, 0), (1.0, 10)):
        counters.observe({"a": value}, now_s)

    assert counters.observe({"a": 20, "b": 7}, 2.0) == Span(1.0, 2.0, None, Refusal.CHANGED)
    assert counters.observe({"a": 30, "b": 17}, 3.0) is None
    assert counters.observe({"a": 40, "b": 27}, 4.0) == Span(3.0, 4.0, 20)


def test_short_spans_wait_for_a_change_late_enough() -> None:
    counters = group(shortest_seconds=5.0)
    for now_s, value in ((0.0, 0), (1.0, 10)):
        counters.observe({"a": value}, now_s)

    assert counters.observe({"a": 20}, 5.5) is None
    assert counters.observe({"a": 20}, 6.5) is None  # late enough, but nothing has changed just now
    assert counters.observe({"a": 30}, 7.0) == Span(1.0, 7.0, 20)


@given(
    steps=st.lists(st.tuples(st.floats(0.05, 20.0), st.lists(st.integers(0, 20_000), min_size=3, max_size=3))),
    start=st.integers(0, 1 << 40),
    shortest=st.sampled_from([0.0, 5.0]),
)
def test_spans_follow_each_other_and_lose_nothing(
    steps: list[tuple[float, list[int]]], start: int, shortest: float
) -> None:
    counters = group(3, max_watts=1e6, shortest_seconds=shortest)
    values = {"a": start, "b": start + 5, "c": start + 9}
    now_s = 0.0
    begun: int | None = None
    spans: list[Span] = []
    counters.observe(values, now_s)
    for seconds, moved in steps:
        now_s += seconds
        values = {key: value + risen for (key, value), risen in zip(values.items(), moved, strict=True)}
        span = counters.observe(values, now_s)
        if span is not None:
            spans.append(span)
        if counters.start_s == now_s and begun is None:
            begun = sum(values.values())
        if counters.start_s == now_s and begun is not None:
            assert sum(each.millijoules or 0 for each in spans) == sum(values.values()) - begun
    assert all(a.end_s == b.start_s for a, b in pairwise(spans))


def test_nothing_but_nonsense_is_no_reading() -> None:
    counters = group()

    assert [counters.observe({"a": None}, float(i)) for i in range(3)] == [None] * 3
    assert counters.refused == {Refusal.NOT_A_NUMBER: 1}
