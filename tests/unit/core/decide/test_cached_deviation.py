"""What is believed to be cached may not be there: how unsure that makes estimates, and the room that promises need."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, REQUEST, THREE, pool
from tests.unit.core.decide.test_phases import busy, idle, paired
from tests.unit.core.decide.test_plans import RULES, busy_owner, kv

from heliotrope.cache.action import KvAction
from heliotrope.cache.links import Tier
from heliotrope.cache.rules import KvRules
from heliotrope.decide.cached_deviation import one_deviation
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.decision import decide
from heliotrope.decide.estimate import Estimates, estimate
from heliotrope.decide.losses import Loss
from heliotrope.decide.plans import with_kv_plans
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.engine.coefficients import coefficients

LONG = replace(REQUEST, prompt_tokens=9_000)


def doubted(deviation: float, cached: float = 8_000.0, **columns: float) -> Candidates:
    """One idle endpoint that is believed to cache most of a long prompt."""
    alone = pool(["a"], THREE, running=0.0, prefill_duty=0.0, cached_tokens=cached, **columns)
    return replace(alone, cached_deviation_tokens=np.array([deviation]))


def of(candidates: Candidates, policy: DecisionPolicy = POLICY) -> Estimates:
    return estimate(LONG, candidates, policy, NOW)


def test_one_deviation_is_what_so_many_tokens_more_take() -> None:
    sure, unsure = of(doubted(0.0)), of(doubted(600.0))
    for name in ("ttft_seconds", "energy_joules", "tpot_seconds", "tpot_relative_error", "grams_co2e"):
        assert getattr(sure, name)[0] == getattr(unsure, name)[0], name
    seconds = float(ENGINE.prefill_seconds(1_600.0) - ENGINE.prefill_seconds(1_000.0))
    ttft = sure.ttft_seconds[0]
    before, after = sure.ttft_relative_error[0] * ttft, unsure.ttft_relative_error[0] * ttft
    assert after == pytest.approx(np.hypot(before, seconds))
    joules = float(ENGINE.prefill_joules(1_600.0) - ENGINE.prefill_joules(1_000.0))
    energy = sure.energy_joules[0]
    assert unsure.energy_relative_error[0] * energy == pytest.approx(
        np.hypot(sure.energy_relative_error[0] * energy, joules)
    )


def test_nobody_says_is_as_nothing_speaks_against_it() -> None:
    unsaid = pool(["a", "b"], THREE, cached_tokens=[500.0, 0.0])
    said = replace(unsaid, cached_deviation_tokens=np.zeros(2))
    for name in ("ttft_relative_error", "energy_relative_error", "ttft_seconds", "energy_joules"):
        np.testing.assert_array_equal(
            getattr(estimate(REQUEST, unsaid, POLICY, NOW), name), getattr(estimate(REQUEST, said, POLICY, NOW), name)
        )


@given(
    cached=st.floats(0.0, 8_999.0),
    deviation=st.floats(0.0, 20_000.0),
    more=st.floats(0.0, 5_000.0),
    queued=st.floats(0.0, 20_000.0),
    certainty=st.floats(0.0, 6.0),
)
def test_more_doubt_is_never_less_room_and_never_more_than_computing_everything(
    cached: float, deviation: float, more: float, queued: float, certainty: float
) -> None:
    c = coefficients(ENGINE)
    seconds, joules = one_deviation(c, queued, cached, deviation, 9_000.0, certainty)
    wider_seconds, wider_joules = one_deviation(c, queued, cached, deviation + more, 9_000.0, certainty)
    assert 0.0 <= seconds <= wider_seconds + 1e-12
    assert 0.0 <= joules <= wider_joules + 1e-9
    everything, _ = one_deviation(c, queued, cached, 1e9, 9_000.0, 1.0)
    assert max(certainty, 1.0) * seconds <= everything * (1.0 + 1e-12)


@given(cached=st.floats(0.0, 8_999.0), share=st.floats(0.0, 1.0))
def test_a_prefix_that_may_be_lost_needs_no_more_room_than_none(cached: float, share: float) -> None:
    def promised(candidates: Candidates) -> float:
        found = of(candidates)
        return float(found.ttft_seconds[0] * (1.0 + POLICY.certainty * found.ttft_relative_error[0]))

    assert promised(doubted(share * cached, cached)) <= promised(doubted(0.0, 0.0)) * (1.0 + 1e-9)


def test_a_promise_needs_room_for_what_may_not_be_cached() -> None:
    slo = DecisionPolicy("p", ttft_slo_seconds=0.35, tpot_slo_seconds=1.0)
    for deviation, expected in ((0.0, None), (4_000.0, Loss.TTFT)):
        both = pool(["a", "c"], THREE, running=0.0, prefill_duty=0.0, cached_tokens=[8_000.0, 8_000.0])
        unsure = replace(both, cached_deviation_tokens=np.array([deviation, 0.0]))
        decision = decide(LONG, unsure, slo, NOW)
        assert decision.winner == (0 if expected is None else 1), "the clean one, if it is sure enough"
        assert decision.losses[0] is expected


def test_what_is_not_counted_on_leaves_no_doubt() -> None:
    own = replace(busy_owner(), cached_deviation_tokens=np.array([3_000.0, 0.0]))
    rules = KvRules(allowed=frozenset({KvAction.RECOMPUTE}))
    counted = with_kv_plans(own, 9_000.0, rules, None)
    assert counted.cached_tokens.tolist() == [0.0, 0.0]
    assert counted.cached_deviation_tokens is not None
    assert counted.cached_deviation_tokens.tolist() == [0.0, 0.0]


def test_a_pull_is_as_doubtful_as_its_source_and_a_reload_as_its_tier() -> None:
    own = replace(busy_owner(), cached_deviation_tokens=np.array([2_000.0, 0.0]))
    wider = with_kv_plans(own, 9_000.0, RULES, kv(["c", "c"]))
    assert wider.kv_actions[2:] == (KvAction.PEER_TRANSFER,)
    assert wider.cached_deviation_tokens is not None
    assert wider.cached_deviation_tokens.tolist() == [2_000.0, 0.0, 2_000.0]

    offloading = with_kv_plans(
        replace(own, cached_tokens=np.zeros(2), cached_deviation_tokens=np.zeros(2)),
        9_000.0,
        RULES,
        kv(["c", "c"], [Tier.CPU, None]),
        offloaded_tokens=np.array([8_000.0, 0.0]),
        offloaded_deviation_tokens=np.array([500.0, 0.0]),
    )
    assert offloading.kv_actions[2:] == (KvAction.OFFLOAD_RELOAD,)
    assert offloading.cached_deviation_tokens is not None
    assert offloading.cached_deviation_tokens.tolist() == [0.0, 0.0, 500.0]


def test_of_a_pair_the_prefillers_belief_is_in_doubt_and_the_decoders_one_token_is_not() -> None:
    sure = replace(idle(), cached_tokens=np.array([4_000.0]), cached_deviation_tokens=np.zeros(1))
    unsure = replace(sure, cached_deviation_tokens=np.array([2_000.0]))

    def pair(prefillers: Candidates) -> Estimates:
        found = paired(busy(), prefillers, request=LONG)
        assert len(found) == 2
        return of(found)

    before, after = pair(sure), pair(unsure)
    assert after.ttft_seconds[1] == before.ttft_seconds[1]
    spread, wider = (e.ttft_relative_error[1] * e.ttft_seconds[1] for e in (before, after))
    assert wider > spread
    assert after.energy_relative_error[1] > before.energy_relative_error[1]
    assert after.ttft_relative_error[0] == before.ttft_relative_error[0]
