"""The draw of arms: exact shares per class, whatever the pattern of arrivals, and a choice that is blind to carbon."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, THREE, pool

from heliotrope.carbon.arms import Arm
from heliotrope.decide.decision import Outcome, decide
from heliotrope.decide.feasible import Loss
from heliotrope.decide.holdout import (
    MAX_CLASSES,
    OTHER_CLASS,
    UNASSIGNED,
    Assignment,
    Holdout,
    block,
    held_out,
    request_class,
)
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile

TENTH = replace(POLICY, holdout_percent=10, holdout_seed=3)
BLIND = Assignment(Arm.HOLDOUT, "c")


def drawn(policy: DecisionPolicy, count: int, *, scope: str = "", request: RequestProfile = REQUEST) -> list[bool]:
    holdout = Holdout(scope)
    return [holdout.assign(policy, request).arm is Arm.HOLDOUT for _ in range(count)]


@pytest.mark.parametrize(("percent", "size", "share"), [(0, 1, 0), (1, 100, 1), (7, 100, 7), (10, 10, 1), (50, 2, 1)])
def test_a_block_is_the_smallest_that_holds_the_share(percent: int, size: int, share: int) -> None:
    assert block(percent) == (size, share)


@given(percent=st.integers(0, 50), seed=st.integers(0, 2**31 - 1), count=st.integers(0, 700))
def test_a_class_never_strays_by_a_blocks_share(percent: int, seed: int, count: int) -> None:
    policy = replace(POLICY, holdout_percent=percent, holdout_seed=seed)
    held = sum(drawn(policy, count))
    size, share = block(percent)
    assert abs(held - count * percent / 100) <= share * (1 - share / size) + 1e-9
    if count % size == 0:
        assert held == count * percent // 100


def test_every_position_of_a_block_is_as_likely() -> None:
    sequence = np.array(drawn(TENTH, 20_000)).reshape(-1, 10)
    assert (sequence.sum(axis=1) == 1).all()
    counts = sequence.sum(axis=0)
    assert counts.sum() == 2_000
    chi_squared = ((counts - 200.0) ** 2 / 200.0).sum()
    assert chi_squared < 27.9  # 9 degrees of freedom, p = 0.001


def test_periodic_arrivals_do_not_fall_into_step_with_the_blocks() -> None:
    sequence = np.array(drawn(TENTH, 20_000))
    for period in (2, 5, 10):
        shares = [sequence[phase::period].mean() for phase in range(period)]
        assert max(abs(share - 0.1) for share in shares) < 0.03


def test_equal_seeds_draw_alike_and_others_do_not() -> None:
    assert drawn(TENTH, 500) == drawn(TENTH, 500)
    assert drawn(TENTH, 500) != drawn(replace(TENTH, holdout_seed=4), 500)
    assert drawn(TENTH, 500) != drawn(TENTH, 500, scope="picker-2")
    assert drawn(TENTH, 500) != drawn(replace(TENTH, name="q"), 500)


def test_each_class_holds_the_share_by_itself() -> None:
    holdout = Holdout()
    counts: Counter[tuple[str, Arm]] = Counter()
    for i in range(3_000):
        # Every tenth request is long: with one common sequence of ten, long ones could always or never be held out.
        request = replace(REQUEST, prompt_tokens=8_000 if i % 10 == 0 else 100)
        assigned = holdout.assign(TENTH, request)
        counts[assigned.request_class, assigned.arm] += 1
    assert sorted(counts.values()) == [30, 270, 270, 2430]


@given(turns=st.lists(st.integers(0, 2), max_size=300))
def test_pickers_that_share_a_pool_keep_the_share_together(turns: list[int]) -> None:
    pickers = [Holdout(f"picker-{i}") for i in range(3)]
    held = sum(pickers[turn].assign(TENTH, REQUEST).arm is Arm.HOLDOUT for turn in turns)
    assert abs(held - len(turns) / 10) <= 3 * 0.9 + 1e-9


def test_classes_tell_apart_what_moves_energy_and_latency() -> None:
    alike = replace(REQUEST, prompt_tokens=1_100, request_id="r-2", ttft_slo_seconds=0.5)
    assert request_class(alike) == request_class(replace(REQUEST, prompt_tokens=1_024))
    others = [
        replace(REQUEST, model="other"),
        replace(REQUEST, streaming=False),
        replace(REQUEST, prompt_tokens=4_096),
        replace(REQUEST, expected_output_tokens=1_024.0),
    ]
    assert len({request_class(r) for r in (alike, *others)}) == 5
    assert request_class(REQUEST) == "m|stream|prompt <1024|output <256"
    assert len(request_class(replace(REQUEST, model="m" * 10_000))) < 200


def test_classes_are_bounded_and_those_beyond_keep_the_share_together() -> None:
    holdout = Holdout()
    arms = [holdout.assign(TENTH, replace(REQUEST, model=f"m{i}")) for i in range(MAX_CLASSES + 1_000)]
    beyond = arms[MAX_CLASSES:]
    assert {a.request_class for a in beyond} == {OTHER_CLASS}
    assert sum(a.arm is Arm.HOLDOUT for a in beyond) == 100
    assert holdout.overflowed == 1_000
    assert holdout.assign(TENTH, replace(REQUEST, model="m0")).request_class != OTHER_CLASS
    assert holdout.assign(TENTH, replace(REQUEST, model="\ud800")).request_class == OTHER_CLASS


def test_only_an_enforced_policy_holds_out() -> None:
    always = replace(POLICY, holdout_percent=50)
    holdout = Holdout()
    assert holdout.assign(None, REQUEST) == UNASSIGNED
    advised = {holdout.assign(replace(always, enforce=False), REQUEST).arm for _ in range(100)}
    assert advised == {Arm.UNSTEERED}
    assert {holdout.assign(POLICY, REQUEST).arm for _ in range(100)} == {Arm.STEERED}
    assert holdout.assign(replace(POLICY, enforce=False), REQUEST).request_class == request_class(REQUEST)


def test_a_changed_share_begins_new_blocks_at_once() -> None:
    holdout = Holdout()
    for _ in range(95):
        holdout.assign(TENTH, REQUEST)
    half = replace(TENTH, holdout_percent=50)
    assert sum(holdout.assign(half, REQUEST).arm is Arm.HOLDOUT for _ in range(100)) == 50


def test_the_draw_is_a_function_of_its_arguments() -> None:
    assert [held_out(b"key", 50, n, n // 2) for n in range(0, 64, 2)] == [
        held_out(b"key", 50, n, n // 2) for n in range(0, 64, 2)
    ]
    assert not any(held_out(b"key", 10, n, 1) for n in range(10))
    assert held_out(b"key", 10, 9, 0)


def test_a_held_out_request_goes_where_the_scores_send_it() -> None:
    candidates = pool(["c", "a", "b"], THREE, base_score=[0.9, 0.2, 0.5])
    decision = decide(REQUEST, candidates, POLICY, NOW, assignment=BLIND)
    assert decision.endpoint == "e0"
    assert decision.losses == (None, Loss.SCORE, Loss.SCORE)
    assert (decision.decided_by, decision.outcome) == ("score", Outcome.WITHIN_SLO)
    assert decision.steered_endpoint() == "e1"
    assert decide(REQUEST, candidates, POLICY, NOW, assignment=Assignment(Arm.STEERED, "c")).endpoint == "e1"


@given(permutation=st.permutations([20.0, 150.0, 300.0]), scores=st.lists(st.floats(0, 9), min_size=3, max_size=3))
def test_no_intensity_moves_a_held_out_request(permutation: list[float], scores: list[float]) -> None:
    from tests.unit.core.decide.pools import region

    views = {name: region(name, value) for name, value in zip("abc", permutation, strict=True)}
    one = decide(REQUEST, pool("abc", THREE, base_score=scores), POLICY, NOW, assignment=BLIND)
    other = decide(REQUEST, pool("abc", views, base_score=scores), POLICY, NOW, assignment=BLIND)
    assert one.winner == other.winner


def test_equal_scores_are_spread() -> None:
    candidates = pool(["a", "c"], THREE)
    chosen = {
        decide(replace(REQUEST, request_id=f"r-{i}"), candidates, POLICY, NOW, assignment=BLIND).endpoint
        for i in range(64)
    }
    assert chosen == {"e0", "e1"}


def test_a_held_out_request_keeps_every_promise() -> None:
    full, nan = 64.0, float("nan")
    tight = replace(POLICY, ttft_slo_seconds=0.15, allowed_regions=frozenset({"a", "b"}), quality_floor=0.5)
    candidates = pool(
        ["a", "b", "c", "a", "a"],
        THREE,
        running=[full, 2.0, 2.0, 2.0, nan],
        quality=[1.0, 1.0, 1.0, 0.1, 1.0],
        base_score=[0.9, 0.1, 0.9, 0.9, 0.9],
    )
    decision = decide(REQUEST, candidates, tight, NOW, assignment=BLIND)
    assert decision.losses == (Loss.TTFT, None, Loss.REGION, Loss.QUALITY, Loss.UNKNOWN)
    assert decision.decided_by == "only plan"
    nowhere = replace(tight, allowed_regions=frozenset({"x"}))
    assert decide(REQUEST, candidates, nowhere, NOW, assignment=BLIND).outcome is Outcome.NOTHING_FEASIBLE


def test_where_no_plan_holds_the_promise_both_arms_do_the_same() -> None:
    impossible = replace(POLICY, ttft_slo_seconds=0.0001)
    candidates = pool(["a", "c"], THREE, running=[30.0, 1.0], base_score=[0.9, 0.1])
    blind, steered = (
        decide(REQUEST, candidates, impossible, NOW, assignment=Assignment(arm, "c"))
        for arm in (Arm.HOLDOUT, Arm.STEERED)
    )
    assert (blind.outcome, blind.winner, blind.losses) == (steered.outcome, steered.winner, steered.losses)
