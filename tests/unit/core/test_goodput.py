"""Equations 9-12: what counts, what it is divided by, and that unknown is not zero."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.goodput import NAN, Spent, dominates, goodput, pareto, slo_tokens

ONE = np.array([1.0])


def test_the_vector_divides_by_each_total() -> None:
    found = goodput(1_000.0, Spent(500.0, 4.0, 1.0, 0.25, 2.0))
    assert found.tokens_per_joule == 2.0
    assert found.tokens_per_gram == 200.0
    assert found.tokens_per_liter == 4_000.0
    assert found.tokens_per_currency == 500.0


def test_an_unknown_part_makes_its_goodput_unknown_and_no_other() -> None:
    found = goodput(1_000.0, Spent(joules=500.0, operational_grams=4.0, cost=0.0))
    assert found.tokens_per_joule == 2.0
    assert math.isnan(found.tokens_per_gram)
    assert math.isnan(found.tokens_per_liter)
    assert found.tokens_per_currency == math.inf
    assert math.isnan(goodput(NAN, Spent(joules=1.0)).tokens_per_joule)
    assert math.isnan(goodput(0.0, Spent(joules=0.0)).tokens_per_joule)


def counted(**changes: float) -> bool:
    """Whether one request counts that keeps everything but what is changed."""
    values = {"output": 10.0, "ttft": 0.5, "tpot": 0.02, "quality": 0.8, "s1": 1.0, "s2": 0.05, "q": 0.7} | changes
    column = {name: value * ONE for name, value in values.items()}
    tokens, kept = slo_tokens(
        column["output"],
        column["ttft"],
        column["tpot"],
        column["quality"],
        ttft_slo_seconds=column["s1"],
        tpot_slo_seconds=column["s2"],
        least_quality=column["q"],
    )
    assert tokens == (values["output"] if kept[0] else 0.0)
    return bool(kept[0])


def test_every_promise_counts_and_what_is_not_promised_does_not() -> None:
    assert counted()
    assert not counted(ttft=1.5)
    assert not counted(tpot=0.06)
    assert not counted(quality=0.6)
    assert counted(ttft=1.5, s1=NAN)
    assert counted(tpot=0.06, s2=NAN)
    assert counted(quality=NAN, q=NAN)


def test_unknown_latency_and_quality_break_promises_but_one_token_has_no_tpot() -> None:
    assert not counted(ttft=NAN)
    assert not counted(ttft=NAN, s1=NAN)
    assert not counted(quality=NAN)
    assert not counted(output=NAN)
    assert counted(tpot=NAN)


@given(st.lists(st.tuples(*[st.floats(0.0, 9.0)] * 3), min_size=1, max_size=12))
def test_something_is_on_every_frontier_and_nothing_there_is_dominated(rows: list[tuple[float, ...]]) -> None:
    costs = np.array(rows)
    front = pareto(costs)
    assert front.any()
    for row in costs[front]:
        assert not any(dominates(other, row) for other in costs)


def test_an_unknown_cost_is_on_no_frontier_and_puts_nobody_off_it() -> None:
    assert pareto(np.array([[1.0, NAN], [2.0, 2.0], [3.0, 3.0]])).tolist() == [False, True, False]
    assert not dominates((0.0, NAN), (1.0, 1.0))
    assert dominates((1.0, 0.5), (1.0, 1.0))
    assert not dominates((1.0, 1.0), (1.0, 1.0))


def test_embodied_that_is_left_out_of_account_is_said_to_be_zero() -> None:
    assert goodput(10.0, Spent(operational_grams=5.0, embodied_grams=0.0)).tokens_per_gram == pytest.approx(2.0)
