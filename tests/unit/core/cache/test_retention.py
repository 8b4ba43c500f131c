"""How long prefixes are held: by hand, what it is monotone in, and what is learned of gaps."""

from math import exp, inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.cache.costs import recompute
from heliotrope.cache.gaps import BINS, EDGES, GapDistribution, ReturnTimes, exponential, of_session
from heliotrope.cache.retention import (
    best_time,
    lru_seconds,
    price_joules_per_token_second,
    retention,
)
from heliotrope.engine.profiles import load

ENGINE = load("llama-3.1-8b-h100")
POOL = exponential(0.5, 60.0)

times = st.lists(st.floats(0.0, 1.0), min_size=BINS, max_size=BINS).flatmap(
    lambda gains: st.floats(0.0, 1.0).map(
        lambda share: ReturnTimes(share * np.concatenate([[0.0], np.cumsum(gains) / max(sum(gains), 1e-9)]))
    )
)


def test_a_free_memory_holds_for_as_long_as_it_may() -> None:
    assert retention(ENGINE, 8_000.0, POOL, POOL, inf, 300.0).seconds == 300.0
    assert retention(ENGINE, 8_000.0, POOL, POOL, inf, 0.0).seconds == 0.0
    assert retention(ENGINE, 0.0, POOL, POOL, inf, 300.0).seconds == 0.0


def test_a_session_that_returns_sooner_than_others_is_held_under_pressure() -> None:
    quick, slow = exponential(0.95, 3.0), exponential(0.3, 900.0)
    held = retention(ENGINE, 8_000.0, quick, POOL, 1.0, 300.0)
    assert held.needs_holding
    assert held.saved_joules > 0.0
    assert retention(ENGINE, 8_000.0, slow, POOL, 1.0, 300.0).seconds == 0.0


def test_values_by_hand() -> None:
    # By 1 s half have returned, by 2 s all: V(1) = 100·0.5 − 40·0.75, V(2) = 100·1 − 40·(0.75 + 0.25).
    by = np.ones(BINS + 1)
    by[:3] = [0.0, 0.5, 1.0]
    best = best_time(ReturnTimes(by), 100.0, 40.0, inf, 300.0)
    assert (best.seconds, best.saved_joules) == (2.0, pytest.approx(60.0))
    # At 130 J a second it is best not to hold: V(1) = 50 − 97.5.
    assert best_time(ReturnTimes(by), 100.0, 130.0, inf, 300.0).seconds == 0.0
    # Half of those that wait return in the first second, all others in the second one.
    assert ReturnTimes(by).hazard()[:3].tolist() == pytest.approx([0.5, 1.0, 0.0])
    assert price_joules_per_token_second(0.02, 0.0, ReturnTimes(by)) == pytest.approx(0.02)
    assert price_joules_per_token_second(0.02, 3.0, ReturnTimes(by)) == 0.0


def test_an_engine_keeps_what_is_not_used_for_as_long_as_its_memory_takes_to_fill() -> None:
    assert lru_seconds(100_000.0, 300_000.0, 4_000.0) == 50.0
    assert lru_seconds(400_000.0, 300_000.0, 4_000.0) == 0.0
    assert lru_seconds(0.0, 300_000.0, 0.0) == inf
    for unknown in ((nan, 1.0, 1.0), (1.0, nan, 1.0), (1.0, 1.0, nan)):
        assert isnan(lru_seconds(*unknown))


def test_unknown_pressure_leaves_the_answer_unknown() -> None:
    assert isnan(retention(ENGINE, 100.0, POOL, POOL, nan, 300.0).seconds)
    assert not retention(ENGINE, 100.0, POOL, POOL, nan, 300.0).needs_holding


@settings(deadline=None)
@given(
    times, times, st.floats(1.0, 50_000.0), st.floats(0.0, 2_000.0), st.floats(0.0, 2_000.0), st.floats(0.0, 4_000.0)
)
def test_more_pressure_never_holds_longer(own, others, tokens, one, other, longest) -> None:  # type: ignore[no-untyped-def]
    tight, loose = sorted((one, other))
    short = retention(ENGINE, tokens, own, others, tight, longest)
    long = retention(ENGINE, tokens, own, others, loose, longest)
    assert short.seconds <= long.seconds + 1e-9
    assert short.saved_joules <= long.saved_joules + 1e-9
    assert 0.0 <= short.seconds <= longest + 1e-9
    assert short.saved_joules >= 0.0


@settings(deadline=None)
@given(times, st.floats(0.0, 1e4), st.floats(0.0, 1e3), st.floats(1.0, 4.0), st.floats(0.0, 4_000.0))
def test_dearer_prefixes_are_held_no_shorter(own, joules, price, factor, longest) -> None:  # type: ignore[no-untyped-def]
    cheap = best_time(own, joules, price, inf, longest)
    dear = best_time(own, joules * factor, price, inf, longest)
    assert cheap.seconds <= dear.seconds + 1e-9


@settings(deadline=None)
@given(times, times, st.floats(1.0, 50_000.0), st.floats(0.0, 500.0), st.floats(0.0, 4_000.0), st.floats(0.0, 4_000.0))
def test_a_policy_that_allows_more_saves_no_less(own, others, tokens, lru, a, b) -> None:  # type: ignore[no-untyped-def]
    less, more = (retention(ENGINE, tokens, own, others, lru, longest) for longest in sorted((a, b)))
    # The time of the stricter policy is no edge of the laxer one: between edges the value is a little coarser.
    slack = recompute(ENGINE, 0.0, tokens).joules
    assert less.saved_joules <= more.saved_joules + 0.05 * slack


def test_gaps_are_learned_by_class() -> None:
    learned = GapDistribution()
    rng = np.random.default_rng(3)
    for i in range(600):
        now_s = float(i)
        learned.ended("agent", now_s)
        if i % 10:
            learned.returned("agent", float(rng.exponential(3.0)), now_s)
        learned.ended("chat", now_s)
        if i % 10 < 4:
            learned.returned("chat", float(rng.exponential(200.0)), now_s)
    agent, chat, new = (learned.times(name) for name in ("agent", "chat", "new"))
    assert agent.probability(16.0) == pytest.approx(0.9 * (1.0 - exp(-16.0 / 3.0)), abs=0.05)
    assert chat.probability(256.0) == pytest.approx(0.4 * (1.0 - exp(-256.0 / 200.0)), abs=0.06)
    assert chat.probability(16.0) < new.probability(16.0) < agent.probability(16.0)


def test_a_sessions_own_pace_counts_more_with_every_turn() -> None:
    slow = exponential(0.5, 600.0)
    one, many = of_session(slow, 2.0, 1), of_session(slow, 2.0, 30)
    assert slow.probability(8.0) < one.probability(8.0) < many.probability(8.0)
    assert many.by[-1] <= 0.5
    assert of_session(slow, nan, 5) is slow
    assert of_session(slow, 2.0, 0) is slow


def test_classes_are_bounded_and_nonsense_teaches_nothing() -> None:
    learned = GapDistribution(max_classes=2)
    for name in "abc":
        learned.ended(name, 0.0)
    assert len(learned) == 2
    assert learned.forgotten_total == 1
    before = learned.times("c").by
    for gap in (nan, -1.0, inf):
        learned.returned("c", gap, 0.0)
    np.testing.assert_array_equal(learned.times("c").by, before)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 5_000.0), st.floats(0.0, 1e4)), max_size=60))
def test_learned_times_are_distributions(script: list[tuple[bool, float, float]]) -> None:
    learned, now_s = GapDistribution(), 0.0
    for ends, gap, pause_s in script:
        now_s += pause_s
        if ends:
            learned.ended("c", now_s)
        else:
            learned.returned("c", gap, now_s)
    by = learned.times("c").by
    assert by[0] == 0.0
    assert (np.diff(by) >= -1e-12).all()
    assert by[-1] <= 1.0 + 1e-12
    assert (learned.times("c").hazard() >= -1e-12).all()
    assert len(by) == len(EDGES)
