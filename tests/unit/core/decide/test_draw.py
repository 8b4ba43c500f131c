"""Draws spread requests evenly, are the same when made again, and differ between pickers."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, THREE, pool

from heliotrope.decide.decision import decide
from heliotrope.decide.draw import drawn, seed_of
from heliotrope.decide.losses import Loss
from heliotrope.decide.policy import Objective, Term
from heliotrope.decide.standing import Standing

names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


@given(of=names, request_id=st.text(max_size=10), picker=st.integers(0, 2**40), count=st.integers(0, 14))
def test_a_draw_is_a_choice_without_repetition_that_can_be_made_again(
    of: list[str], request_id: str, picker: int, count: int
) -> None:
    seed = seed_of(request_id, picker)
    found = drawn(of, seed, count)
    assert found == drawn(of, seed, count)
    assert len(set(found)) == len(found) == min(count, len(of))


@given(of=names, seed=st.integers(0, 2**32 - 1), data=st.data())
def test_the_line_does_not_depend_on_the_order_or_on_who_else_stands_in_it(
    of: list[str], seed: int, data: st.DataObject
) -> None:
    line = [of[i] for i in drawn(of, seed, len(of))]
    there = data.draw(st.permutations(of))
    assert [there[i] for i in drawn(there, seed, len(there))] == line
    fewer = there[1:]
    assert [fewer[i] for i in drawn(fewer, seed, len(fewer))] == [name for name in line if name != there[0]]


def test_every_endpoint_comes_first_equally_often_and_every_pair_too() -> None:
    endpoints = [f"llm/pod-{i}" for i in range(8)]
    pairs = Counter(tuple(sorted(drawn(endpoints, seed_of(f"request-{n}", 1), 2))) for n in range(14_000))
    firsts = Counter(drawn(endpoints, seed_of(f"request-{n}", 1), 1)[0] for n in range(14_000))
    assert len(pairs) == 28
    # χ² with 27 and 7 degrees of freedom: above 50 and 25 in one of 200 and one of 1,300 runs. The ids are fixed.
    assert sum((count - 500.0) ** 2 / 500.0 for count in pairs.values()) < 50.0
    assert sum((count - 1750.0) ** 2 / 1750.0 for count in firsts.values()) < 25.0


def test_two_pickers_draw_apart_for_the_same_request_id() -> None:
    endpoints = [f"e{i}" for i in range(10)]
    same = sum(drawn(endpoints, seed_of("", picker), 1) == drawn(endpoints, seed_of("", 0), 1) for picker in range(200))
    assert same < 50  # 20 expected


def test_the_faster_of_two_drawn_is_taken() -> None:
    loaded = pool(["a"] * 6, THREE, prefill_duty=[0.05 * i for i in range(6)], price_per_hour=float("nan"))
    winners = Counter(decide(replace(REQUEST, request_id=f"r-{n}"), loaded, POLICY, NOW).endpoint for n in range(300))
    # Of 15 pairs the fastest is in 5, the next in 4, …, the slowest never wins.
    assert [endpoint for endpoint, _ in winners.most_common()] == ["e0", "e1", "e2", "e3", "e4"]
    assert 75 <= winners["e0"] <= 125
    exact = replace(POLICY, choices=0)
    assert {decide(replace(REQUEST, request_id=f"r-{n}"), loaded, exact, NOW).endpoint for n in range(20)} == {"e0"}


def test_nobody_is_drawn_beyond_a_tolerance() -> None:
    mixed = pool(["a", "b", "a", "c"], THREE)
    for n in range(50):
        decision = decide(replace(REQUEST, request_id=f"r-{n}"), mixed, POLICY, NOW)
        assert decision.endpoint in ("e0", "e2")
        assert decision.losses[1] is Loss.CARBON


def test_weighted_sums_tie_within_the_score_tolerance() -> None:
    near = pool(["a"] * 4, THREE, prefill_duty=[0.1, 0.1001, 0.1002, 0.4])
    weighted = replace(POLICY, objective=Objective.WEIGHTED, weights={Term.LATENCY: 1.0}, score_tolerance=0.02)
    chosen = {decide(replace(REQUEST, request_id=f"r-{n}"), near, weighted, NOW).endpoint for n in range(60)}
    assert chosen == {"e0", "e1"}  # the best of two of the three that tie
    exact = replace(weighted, choices=0)
    assert {decide(replace(REQUEST, request_id=f"r-{n}"), near, exact, NOW).endpoint for n in range(20)} == {"e0"}


def test_a_standing_gives_each_picker_draws_of_its_own() -> None:
    equal = pool(["a"] * 8, THREE)
    per_picker = [
        [
            decide(replace(REQUEST, request_id=f"r-{n}"), equal, POLICY, NOW, standing=Standing(draw_seed=s)).endpoint
            for n in range(30)
        ]
        for s in (1, 2)
    ]
    assert per_picker[0] != per_picker[1]
