"""The split of watts is the linear program's optimum, and whole clocks cost no more than a step of each pool."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.power.programs import best_relaxed, best_whole, goodput, largest_step
from tests.unit.core.power.samples import option

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.latency import Promise
from heliotrope.power.pools import PowerPool
from heliotrope.power.split import Verdict, split

PROMISE = Promise(ttft_seconds=2.0, tpot_seconds=0.08)


@st.composite
def pools(draw: st.DrawFn) -> list[PowerPool]:
    drawn = []
    for index in range(draw(st.integers(1, 4))):
        role = draw(st.sampled_from(Role))
        count = draw(st.integers(1, 4))
        clocks = sorted(draw(st.sets(st.integers(1, 20), min_size=count, max_size=count)))
        seconds = sorted(draw(st.lists(st.floats(0.05, 1.5), min_size=count, max_size=count)), reverse=True)
        watts = sorted(draw(st.lists(st.integers(50, 700), min_size=count, max_size=count, unique=True)))
        options = tuple(
            option(
                clock * 100,
                0.0 if role is Role.DECODE else each,
                0.0 if role is Role.PREFILL else each / 2,
                power,
            )
            for clock, each, power in zip(clocks, seconds, watts, strict=True)
        )
        drawn.append(PowerPool(f"p{index}", draw(st.sampled_from(["a", "b"])), role, draw(st.integers(1, 5)), options))
    return drawn


@settings(max_examples=300, deadline=None)
@given(pools(), st.floats(0.0, 1.2), st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0.0, 60.0)))
def test_greedy_on_concave_curves_is_the_optimum(drawn: list[PowerPool], share: float, asked: dict[str, float]) -> None:
    low = sum(pool.replicas * pool.options[0].watts for pool in drawn)
    high = sum(pool.replicas * pool.options[-1].watts for pool in drawn)
    budget = low + share * (high - low)
    result = split(drawn, asked, budget, PROMISE)
    assert result.projected_watts <= budget + 1e-6
    assert set(result.shares) == {pool.name for pool in drawn}
    rates = [result.shares[pool.name].carried_per_second for pool in drawn]
    assert result.goodput_per_second == pytest.approx(goodput(drawn, asked, rates))
    relaxed = best_relaxed(drawn, asked, budget, PROMISE)
    whole = best_whole(drawn, asked, budget, PROMISE)
    if result.verdict in (Verdict.WITHIN, Verdict.PROMISE_AT_RISK):
        assert result.bound_per_second <= relaxed + 1e-6
    if all(pool.options[0].prompt_seconds < PROMISE.ttft_seconds for pool in drawn):
        if result.verdict is Verdict.WITHIN:
            assert result.bound_per_second == pytest.approx(relaxed, rel=1e-6, abs=1e-6)
        assert result.goodput_per_second <= whole + 1e-6
        assert result.goodput_per_second >= whole - largest_step(drawn, PROMISE) - 1e-6


def test_equal_watts_to_rounding_are_one_point() -> None:
    options = (option(100, 1.0, 0.0, 50.0), option(200, 0.5, 0.0, 50.0 + 1e-14))
    found = split([PowerPool("p", "a", Role.PREFILL, 1, options)], {}, 50.0, PROMISE)
    assert found.shares["p"].sm_clock_mhz == 200
