"""Plans behind the endpoints: their columns, what decides between them, and what they never change."""

from dataclasses import fields, replace

import numpy as np
import pytest
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, REQUEST, THREE, pool

from heliotrope.cache.action import KvAction
from heliotrope.cache.links import Links, Place, Tier
from heliotrope.cache.plans import KvPool, kv_pool
from heliotrope.cache.rules import KvRules
from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.decision import decide
from heliotrope.decide.holdout import Assignment
from heliotrope.decide.plans import with_kv_plans

LONG = replace(REQUEST, prompt_tokens=9_000)
RULES = KvRules()


def kv(regions: list[str], tiers: list[Tier | None] | None = None) -> KvPool:
    places = [Place(f"n{i}", None, name) for i, name in enumerate(regions)]
    return kv_pool([ENGINE] * len(regions), places, [True] * len(regions), Links(), tiers)


def busy_owner() -> Candidates:
    """`e0` caches most of the prompt in the dirty region and is busy; `e1` is idle in the same one."""
    return pool(["c", "c"], THREE, running=[30.0, 1.0], cached_tokens=[8_000.0, 0.0], waiting=[6.0, 0.0])


def test_a_plan_has_its_endpoints_columns_but_for_what_it_changes() -> None:
    own = busy_owner()
    wider = with_kv_plans(own, 9_000.0, RULES, kv(["c", "c"]))
    assert wider.endpoints == ("e0", "e1", "e1")
    assert wider.endpoint_count == 2
    assert wider.kv_actions == (KvAction.RECOMPUTE, KvAction.RECOMPUTE, KvAction.PEER_TRANSFER)
    assert wider.kv_sources == (None, None, "e0")
    assert wider.cached_tokens.tolist() == [8_000.0, 0.0, 8_000.0]
    assert wider.transfer_seconds[:2].tolist() == [0.0, 0.0]
    assert wider.transfer_seconds[2] > 0.0
    assert wider.transfer_joules[2] > 0.0
    of_pool = ("endpoint_count", "region_names", "region_views", "pairs", "encoding", "cached_deviation_tokens")
    changed = {"base_score", "cached_tokens", "transfer_seconds", "transfer_joules", "kv_actions", "kv_sources"}
    for field in fields(wider):
        value = getattr(wider, field.name)
        if field.name in changed or field.name in of_pool:
            continue
        assert len(value) == 3, field.name
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value[2], value[1], err_msg=field.name)
        else:
            assert value[2] == value[1], field.name


def test_a_pull_wins_where_it_is_faster_than_the_owner_and_dearer_nowhere() -> None:
    wider = with_kv_plans(busy_owner(), 9_000.0, RULES, kv(["c", "c"]))
    decision = decide(LONG, wider, replace(POLICY, ttft_slo_seconds=0.5), NOW)
    assert decision.endpoint == "e1"
    assert decision.winner == 2
    assert decision.row_of("e1") == 2
    assert decision.row_of("e0") == 0
    chosen = next(c for c in decision.explanation()["candidates"] if c["chosen"])
    assert chosen["kv_action"] == "PeerTransfer"
    assert chosen["kv_source"] == "e0"
    assert chosen["transfer_joules"] > 0.0
    recompute = decide(LONG, busy_owner(), replace(POLICY, ttft_slo_seconds=0.5), NOW)
    assert decision.estimates.energy_joules[2] < recompute.estimates.energy_joules[1]
    assert decision.estimates.ttft_seconds[2] < recompute.estimates.ttft_seconds[1]


def test_an_advised_plan_is_not_what_is_done() -> None:
    wider = with_kv_plans(busy_owner(), 9_000.0, RULES, kv(["c", "c"]))
    advised = decide(LONG, wider, replace(POLICY, ttft_slo_seconds=0.5, enforce=False), NOW)
    assert advised.winner == 2
    assert advised.row_of("e1") == 1


def test_the_transfer_counts_in_time_and_energy() -> None:
    wider = with_kv_plans(busy_owner(), 9_000.0, RULES, kv(["c", "c"]))
    free = replace(wider, transfer_seconds=np.zeros(3), transfer_joules=np.zeros(3))
    paid, gratis = (decide(LONG, c, POLICY, NOW).estimates for c in (wider, free))
    assert paid.energy_joules[2] - gratis.energy_joules[2] == pytest.approx(wider.transfer_joules[2])
    assert paid.ttft_seconds[2] - gratis.ttft_seconds[2] == pytest.approx(wider.transfer_seconds[2])


def test_a_request_that_is_held_out_takes_endpoints_as_they_are() -> None:
    own = replace(busy_owner(), base_score=np.array([0.2, 0.9]))
    wider = with_kv_plans(own, 9_000.0, RULES, kv(["c", "c"]))
    blind = decide(LONG, wider, POLICY, NOW, assignment=Assignment(Arm.HOLDOUT, "x"))
    assert blind.winner == 1


def test_what_lies_in_a_lower_tier_is_reloaded() -> None:
    own = pool(["c"], THREE, cached_tokens=[0.0])
    wider = with_kv_plans(own, 9_000.0, RULES, kv(["c"], [Tier.CPU]), offloaded_tokens=np.array([8_000.0]))
    assert wider.kv_actions[1] is KvAction.OFFLOAD_RELOAD
    assert wider.kv_sources == (None, None)
    assert decide(LONG, wider, POLICY, NOW).winner == 1


def test_the_sessions_endpoint_is_a_local_hit() -> None:
    own = pool(["c", "c"], THREE, cached_tokens=[512.0, 512.0])
    named = with_kv_plans(own, 1_000.0, RULES, last_served=1)
    assert named.kv_actions == (KvAction.ROUTE_TO_OWNER, KvAction.LOCAL_HIT)


def test_a_policy_without_cache_actions_prices_every_endpoint_as_a_recompute() -> None:
    own = pool(["c", "c"], THREE, cached_tokens=[512.0, 0.0])
    rules = KvRules(allowed=frozenset({KvAction.RECOMPUTE}))
    plain = with_kv_plans(own, 1_000.0, rules, kv(["c", "c"]))
    assert plain.cached_tokens.tolist() == [0.0, 0.0]
    assert set(plain.kv_actions) == {KvAction.RECOMPUTE}
