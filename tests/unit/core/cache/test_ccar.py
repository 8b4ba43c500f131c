import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.cache.ccar import (
    TokenRatios,
    break_even_history,
    break_even_ratio,
    may_stay,
    prefill_seconds,
    propose,
    stays,
    turn_energy,
    within_latency,
)
from heliotrope.cache.gate import OFF, Gate
from heliotrope.cache.gate_features import FEATURES, Placement, Turn, features_of

RATIOS = TokenRatios(cached=0.05, output=6.0)
tokens = st.floats(1.0, 1e6)
histories = st.floats(0.0, 1e6)
gammas = st.floats(0.0, 0.9)


def test_the_papers_break_even_is_met_exactly() -> None:
    """With 4K history, 128 new and 256 output tokens the region must be 68 % cleaner; at a ratio of 0.5 H* is 1.8K."""
    assert break_even_ratio(128.0, 4096.0, 256.0, RATIOS) == pytest.approx(1868.8 / 5760.0)
    assert round(break_even_ratio(128.0, 4096.0, 256.0, RATIOS), 2) == 0.32
    assert break_even_history(0.5, 128.0, 256.0, RATIOS) == pytest.approx(832.0 / 0.45)


@given(tokens, histories, tokens, st.floats(0.01, 1e5), gammas, st.floats(0.0, 20.0))
def test_the_longer_the_history_the_stickier(
    new: float, history: float, output: float, more: float, gamma: float, kappa: float
) -> None:
    ratios = TokenRatios(gamma, kappa)
    shorter, longer = (break_even_ratio(new, h, output, ratios) for h in (history, history + more))
    assert longer <= shorter * (1.0 + 1e-12)
    assert 0.0 < longer <= 1.0


@given(tokens, tokens, st.floats(0.06, 0.99))
def test_the_break_even_history_is_where_the_ratio_is_met(new: float, output: float, ratio: float) -> None:
    history = break_even_history(ratio, new, output, RATIOS)
    assert break_even_ratio(new, history, output, RATIOS) == pytest.approx(ratio)


def test_below_the_price_of_a_cached_token_a_move_always_pays() -> None:
    assert break_even_history(0.05, 128.0, 256.0, RATIOS) == math.inf


@given(tokens, histories, st.floats(0.0, 1.0), tokens, gammas)
def test_a_miss_costs_what_is_not_cached(new: float, history: float, share: float, output: float, gamma: float) -> None:
    ratios = TokenRatios(gamma, 6.0)
    price = np.array([2.0, 2.0])
    cached = np.array([history, history * share])
    hit, miss = turn_energy(price, new, history, cached, output, ratios)
    assert miss - hit == pytest.approx(2.0 * (1.0 - gamma) * history * (1.0 - share), rel=1e-9, abs=1e-6)
    np.testing.assert_allclose(prefill_seconds(price, new, history, cached), (new + history - cached) / 2.0)


def test_only_latency_is_relaxed() -> None:
    ttft = np.array([9.0, 6.0, 6.0, 1.0, np.nan])
    allowed = np.array([True, True, True, False, True])
    feasible, best_effort = within_latency(allowed, ttft, 5.0)
    assert best_effort
    assert feasible.tolist() == [False, True, True, False, False]
    feasible, best_effort = within_latency(allowed, ttft, 6.0)
    assert not best_effort
    assert feasible.tolist() == [False, True, True, False, False]


def test_nothing_allowed_stays_nothing() -> None:
    feasible, best_effort = within_latency(np.zeros(2, dtype=bool), np.ones(2), 5.0)
    assert not feasible.any()
    assert not best_effort
    assert propose(np.ones(2), feasible) == -1


def test_where_no_latency_is_known_all_allowed_are_best_effort() -> None:
    allowed = np.array([True, False])
    feasible, best_effort = within_latency(allowed, np.full(2, np.nan), 5.0)
    assert best_effort
    assert feasible.tolist() == [True, False]


def test_the_least_known_carbon_is_proposed() -> None:
    grams = np.array([np.nan, 3.0, 2.0, 2.0])
    assert propose(grams, np.ones(4, dtype=bool)) == 2
    assert propose(grams, np.array([True, False, False, False])) == 0
    assert propose(np.array([np.nan, 5.0]), np.array([False, True])) == 1
    assert propose(np.full(3, np.nan), np.array([False, True, True])) == 1
    assert propose(np.array([np.inf, np.nan]), np.ones(2, dtype=bool)) == 0


def test_the_gate_is_asked_only_at_a_switch_from_a_feasible_cache() -> None:
    feasible, cached = np.array([True, True, False]), np.array([0.0, 10.0, 10.0])
    assert may_stay(0, 1, feasible, cached)
    assert not may_stay(1, 1, feasible, cached)
    assert not may_stay(1, 0, feasible, cached)
    assert not may_stay(0, 2, feasible, cached)
    assert not may_stay(0, -1, feasible, cached)
    assert not may_stay(-1, 1, feasible, cached)


class Fixed(Gate):
    """A gate with one answer."""

    answer: float | None

    @classmethod
    def of(cls, answer: float | None, threshold: float) -> "Fixed":
        gate = cls(threshold)
        object.__setattr__(gate, "answer", answer)
        return gate

    @property
    def on(self) -> bool:
        return math.isfinite(self.threshold)

    def advantage(self, features: object) -> float | None:
        return self.answer


def test_it_stays_only_above_the_threshold_and_never_on_what_is_unknown() -> None:
    there, here, turn = Placement(1.0, 0.0), Placement(1.5, 100.0), Turn(2, 10.0, 100.0, 10.0)
    assert stays(there, here, turn, Fixed.of(0.11, 0.1))
    assert not stays(there, here, turn, Fixed.of(0.1, 0.1))
    assert not stays(there, here, turn, Fixed.of(None, -1.0))
    assert not stays(there, here, turn, Fixed.of(5.0, math.inf))
    assert not stays(there, here, turn, OFF)


def test_features_are_ratios_and_unknown_stays_unknown() -> None:
    here = Placement(2.0, 50.0, 400.0, 1.1, 0.5, 0.2, "m", "r")
    there = Placement(1.0, 0.0, 100.0, 1.0, 0.1, 0.9, "m", "q")
    turn = Turn(4, 10.0, 100.0, 20.0, 30.0, 2.0, 1.0)
    named = dict(zip((name for name, _ in FEATURES), features_of(there, here, turn).values, strict=True))
    assert named["log_grams_ratio"] == pytest.approx(math.log(2.0))
    assert named["log_intensity_ratio"] == pytest.approx(math.log(4.0))
    assert named["previous_cached_share"] == 0.5
    assert (named["switch_share"], named["same_model"], named["same_region"]) == (0.5, 1.0, 0.0)
    scaled = features_of(replace(there, grams_co2e=1e-3), replace(here, grams_co2e=2e-3), turn)
    np.testing.assert_allclose(scaled.values, features_of(there, here, turn).values)
    unknown = features_of(replace(there, grams_co2e=math.nan), here, replace(turn, history_tokens=0.0)).values
    assert math.isnan(unknown[7])
    assert math.isnan(unknown[9])
