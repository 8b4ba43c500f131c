"""Errors, coverage and their intervals."""

import math

import numpy as np
import pytest

from heliotrope_sim.evaluation.scores import coverage, mape, mean_score

GROUPS = np.array([0, 0, 1, 1])


def test_an_error_is_a_fraction_of_the_truth() -> None:
    score = mape(np.array([1.0, 2.0, 4.0, 10.0]), np.array([1.1, 1.0, 4.0, 5.0]), GROUPS, seed=1)
    assert score.value == pytest.approx((0.1 + 0.5 + 0.0 + 0.5) / 4)
    assert score.n == 4
    assert score.low <= score.value <= score.high


def test_unknown_truths_and_answers_do_not_count() -> None:
    score = mape(np.array([1.0, math.nan, 0.0, 2.0]), np.array([2.0, 1.0, 1.0, math.nan]), GROUPS, seed=1)
    assert (score.value, score.n) == (1.0, 1)
    assert math.isnan(score.low)  # one run alone says nothing of the next


def test_coverage_is_the_share_at_or_below() -> None:
    assert coverage(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 4.0, 4.0]), GROUPS, seed=1).value == 0.75


def test_whole_groups_are_resampled() -> None:
    """Ten equal values in each of two runs are two observations, not twenty."""
    groups = np.repeat([0, 1], 10)
    score = mean_score(np.repeat([0.0, 1.0], 10), groups, seed=1)
    assert (score.low, score.value, score.high) == (0.0, 0.5, 1.0)


def test_nothing_is_unknown_and_null_in_json() -> None:
    assert mean_score(np.zeros(0), np.zeros(0, dtype=np.int64), seed=1).to_json() == {
        "value": None,
        "low": None,
        "high": None,
        "n": 0,
    }
