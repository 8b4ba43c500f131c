"""The smoothed load of the recent past, whatever pages come in."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.predict.recent_load import TIME_CONSTANT_SECONDS, RecentLoad, SmoothedMean, after_page

GAPS = st.floats(0.01, 120.0)


def read(pages: list[tuple[float, float | None, float | None]]) -> RecentLoad:
    recent = RecentLoad()
    for page in pages:
        recent = after_page(recent, *page)
    return recent


def test_nothing_is_known_before_the_second_page() -> None:
    for recent in (RecentLoad(), read([(5.0, 3.0, 100.0)])):
        assert math.isnan(recent.running)
        assert math.isnan(recent.prompt_tokens_per_second)


def test_a_step_up_is_followed_with_the_time_constant() -> None:
    recent = read([(0.0, 0.0, 0.0), (1000.0, 0.0, 0.0)])
    recent = after_page(recent, 1000.0 + TIME_CONSTANT_SECONDS, 10.0, 100.0 * TIME_CONSTANT_SECONDS)

    assert recent.running == pytest.approx(10.0 * (1.0 - math.exp(-1.0)))
    assert recent.prompt_tokens_per_second == pytest.approx(100.0 * (1.0 - math.exp(-1.0)))


def test_a_young_mean_is_not_drawn_towards_zero() -> None:
    recent = read([(0.0, 4.0, 0.0), (0.2, 4.0, 20.0)])

    assert recent.running == pytest.approx(4.0)
    assert recent.prompt_tokens_per_second == pytest.approx(100.0)


def test_what_an_engine_did_around_its_restart_is_unknown_and_not_negative() -> None:
    before = read([(0.0, 1.0, 500.0), (10.0, 1.0, 1500.0)])
    restarted = after_page(before, 20.0, 1.0, 30.0)
    after = after_page(restarted, 30.0, 1.0, 1030.0)

    assert restarted.prompt_tokens_per_second == pytest.approx(100.0)
    assert restarted.prompt_rate.weight < before.prompt_rate.weight
    assert after.prompt_tokens_per_second == pytest.approx(100.0)


def test_a_page_without_the_counter_leaves_its_time_to_the_next_one_with_it() -> None:
    recent = read([(0.0, 2.0, 0.0), (10.0, None, None), (20.0, 6.0, 4000.0)])

    assert recent.prompt_tokens_per_second == pytest.approx(200.0)
    assert recent.running == pytest.approx(6.0)  # the ten seconds before are unknown, not empty


def test_an_engine_without_the_counter_has_a_batch_all_the_same() -> None:
    recent = read([(0.0, 2.0, None), (1.0, 2.0, None), (2.0, 2.0, math.nan)])

    assert recent.running == pytest.approx(2.0)
    assert math.isnan(recent.prompt_tokens_per_second)


def test_a_page_that_is_not_later_changes_no_mean() -> None:
    recent = read([(0.0, 2.0, 0.0), (1.0, 2.0, 10.0)])

    for time_s in (1.0, 0.5):
        again = after_page(recent, time_s, 50.0, 10.0)
        assert (again.batch, again.prompt_rate) == (recent.batch, recent.prompt_rate)
        assert after_page(recent, time_s, 50.0, None) == recent


@given(st.lists(st.tuples(GAPS, st.floats(0.0, 500.0)), min_size=1, max_size=30))
def test_a_mean_lies_between_the_levels_and_forgets(levels: list[tuple[float, float]]) -> None:
    mean = SmoothedMean()
    for seconds, level in levels:
        mean = mean.after(seconds, level)

    assert min(x for _, x in levels) - 1e-9 <= mean.value <= max(x for _, x in levels) + 1e-9
    assert 0.0 < mean.weight < 1.0 + 1e-12
    assert mean.after(50.0 * TIME_CONSTANT_SECONDS, 7.0).value == pytest.approx(7.0)


@given(st.lists(GAPS, min_size=1, max_size=20), st.floats(0.0, 1e5), st.floats(0.0, 300.0))
def test_the_pace_of_the_pages_does_not_change_a_constant_load(gaps: list[float], rate: float, batch: float) -> None:
    pages: list[tuple[float, float | None, float | None]] = [(0.0, batch, 0.0)]
    for gap in gaps:
        at_s = pages[-1][0] + gap
        pages.append((at_s, batch, rate * at_s))

    recent = read(pages)

    assert recent.running == pytest.approx(batch)
    assert recent.prompt_tokens_per_second == pytest.approx(rate, rel=1e-6, abs=1e-6)


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 100.0),
            st.sampled_from([None, math.nan]) | st.floats(0.0, 500.0),
            st.none() | st.floats(0.0, 1e12),
        ),
        max_size=30,
    )
)
def test_no_order_of_pages_gives_a_negative_or_infinite_mean(
    pages: list[tuple[float, float | None, float | None]],
) -> None:
    recent = read(pages)

    for value in (recent.running, recent.prompt_tokens_per_second):
        assert math.isnan(value) or 0.0 <= value < math.inf
