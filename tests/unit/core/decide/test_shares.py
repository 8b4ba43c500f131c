"""The largest share of a region holds at every moment, as far as it can."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, REQUEST, THREE, pool

from heliotrope.decide.decision import Outcome, decide
from heliotrope.decide.feasible import Limit, Loss
from heliotrope.decide.policy import PowerLimit
from heliotrope.decide.shares import MAX_REGIONS, RegionShares, regions_at_limit
from heliotrope.decide.standing import Standing, of_rows

NAN = float("nan")
HALF = replace(POLICY, largest_region_share=0.5)
FULL_A = Standing(region_counts={"a": 9.0, "b": 1.0})


@settings(max_examples=60, deadline=None)
@given(
    cap=st.floats(0.35, 0.95),
    window=st.sampled_from([2, 10, 100]),
    wishes=st.lists(st.sampled_from(["a", "a", "a", "b", "c", None]), max_size=400),
)
def test_no_region_holds_more_than_its_share_and_one(cap: float, window: int, wishes: list[str | None]) -> None:
    shares = RegionShares(window)
    for wish in wishes:
        full = regions_at_limit(shares.counts(), cap)
        shares.sent(wish if wish not in full else next(each for each in ("a", "b", "c", None) if each not in full))
        counts = shares.counts()
        total = sum(counts.values())
        assert total <= window * (1.0 + 1e-9)
        for count in counts.values():
            assert count <= cap * total + 1.0 + 1e-6


def test_old_requests_fade_by_requests() -> None:
    shares = RegionShares(100)
    for _ in range(1000):
        shares.sent("a")
    assert shares.counts()["a"] == pytest.approx(100.0, rel=1e-3)
    for _ in range(100):
        shares.sent("b")
    counts = shares.counts()
    assert counts["a"] == pytest.approx(100.0 * 0.99**100, rel=1e-3)
    assert counts["a"] + counts["b"] == pytest.approx(100.0, rel=1e-3)


def test_counts_stay_exact_over_millions_of_requests_and_forgotten_regions_go() -> None:
    shares = RegionShares(10)
    shares.sent("once")
    for _ in range(3000):  # more than one rescale
        shares.sent("a")
    assert shares.counts()["a"] == pytest.approx(10.0)
    assert set(shares.counts()) == {"a"}


def test_memory_is_bounded() -> None:
    shares = RegionShares()
    for i in range(2 * MAX_REGIONS):
        shares.sent(f"r{i}")
    assert len(shares.counts()) <= MAX_REGIONS


def test_without_a_cap_nothing_is_full() -> None:
    assert regions_at_limit({"a": 1e6}, 1.0) == frozenset()


def test_a_full_region_gives_way() -> None:
    decision = decide(REQUEST, pool(["a", "b"], THREE), HALF, NOW, standing=FULL_A)
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.SHARE
    assert (decision.outcome, decision.relaxed) == (Outcome.WITHIN_SLO, ())


def test_the_promise_outranks_the_share() -> None:
    busy = pool(["a", "b"], THREE, running=[2.0, float(ENGINE.max_num_seqs)])
    decision = decide(REQUEST, busy, replace(HALF, ttft_slo_seconds=0.15), NOW, standing=FULL_A)
    assert decision.endpoint == "e0"
    assert (decision.outcome, decision.relaxed) == (Outcome.WITHIN_SLO, (Limit.SHARE,))
    assert decision.losses[1] is Loss.TTFT


def test_where_only_the_full_region_may_serve_it_does() -> None:
    only = replace(HALF, allowed_regions=frozenset({"a"}))
    decision = decide(REQUEST, pool(["a", "b"], THREE), only, NOW, standing=FULL_A)
    assert (decision.endpoint, decision.relaxed) == ("e0", (Limit.SHARE,))
    assert decision.losses == (None, Loss.REGION)


def test_where_nothing_keeps_the_promise_the_share_holds_again() -> None:
    impossible = replace(HALF, ttft_slo_seconds=1e-4)
    decision = decide(REQUEST, pool(["a", "b"], THREE, running=[0.0, 9.0]), impossible, NOW, standing=FULL_A)
    assert (decision.endpoint, decision.outcome) == ("e1", Outcome.BEST_EFFORT)
    assert decision.losses[0] is Loss.SHARE


def test_unknown_regions_share_one_limit() -> None:
    decision = decide(
        REQUEST, pool([None, "b"], THREE), HALF, NOW, standing=Standing(region_counts={None: 9.0, "b": 1.0})
    )
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.SHARE


def test_power_that_is_left_and_throttling_decide_who_is_in() -> None:
    limited = replace(POLICY, power=PowerLimit(50.0))
    three = pool(["a", "a", "b"], THREE)
    near = Standing(headroom_watts=np.array([49.0, 50.0, 400.0]), throttled=np.array([0.0, 0.0, 0.0]))
    decision = decide(REQUEST, three, limited, NOW, standing=near)
    assert decision.endpoint == "e1"
    assert decision.losses[0] is Loss.POWER
    hot = Standing(headroom_watts=np.array([99.0, 99.0, 99.0]), throttled=np.array([1.0, 1.0, 0.0]))
    assert decide(REQUEST, three, limited, NOW, standing=hot).endpoint == "e2"
    anyway = replace(POLICY, power=PowerLimit(50.0, avoid_throttled=False))
    assert decide(REQUEST, three, anyway, NOW, standing=hot).endpoint in ("e0", "e1")


def test_unknown_power_rules_nobody_out() -> None:
    limited = replace(POLICY, power=PowerLimit(50.0))
    unknown = Standing(headroom_watts=np.array([NAN, 10.0]), throttled=np.array([NAN, 0.0]))
    decision = decide(REQUEST, pool(["a", "a"], THREE), limited, NOW, standing=unknown)
    assert decision.endpoint == "e0"
    assert decide(REQUEST, pool(["a", "a"], THREE), limited, NOW).relaxed == ()


def test_power_yields_before_the_share_and_both_before_the_promise() -> None:
    both = replace(HALF, power=PowerLimit(50.0))
    weak = replace(FULL_A, headroom_watts=np.array([99.0, 1.0]), throttled=np.array([0.0, 0.0]))
    decision = decide(REQUEST, pool(["a", "b"], THREE), both, NOW, standing=weak)
    assert (decision.endpoint, decision.relaxed) == ("e1", (Limit.POWER,))
    only_a = replace(both, allowed_regions=frozenset({"a"}))
    throttled = replace(FULL_A, throttled=np.array([1.0, 0.0]))
    decision = decide(REQUEST, pool(["a", "b"], THREE), only_a, NOW, standing=throttled)
    assert (decision.endpoint, decision.relaxed) == ("e0", (Limit.POWER, Limit.SHARE))


def test_hard_constraints_never_yield() -> None:
    decision = decide(
        REQUEST, pool(["a"], THREE), replace(HALF, quality_floor=2.0, power=PowerLimit()), NOW, standing=FULL_A
    )
    assert (decision.outcome, decision.losses) == (Outcome.NOTHING_FEASIBLE, (Loss.QUALITY,))


def test_a_plan_has_the_standing_of_the_endpoint_that_serves_it() -> None:
    candidates = pool(["a", "b", "a"], THREE)
    plans = replace(candidates, endpoints=("e0", "e1", "e0"), endpoint_count=2)
    assert of_rows(np.array([1.0, 2.0]), plans).tolist() == [1.0, 2.0, 1.0]  # type: ignore[union-attr]
