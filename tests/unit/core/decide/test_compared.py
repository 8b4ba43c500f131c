"""What ran beside what a policy would have done."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.core.decide.pools import NOW, pool, region

from heliotrope.cache.action import KvAction
from heliotrope.cache.plans import KvPlans
from heliotrope.carbon.arms import Arm
from heliotrope.carbon.signal import EmissionFactor
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.compared import Comparison, compared, estimated_together
from heliotrope.decide.decision import Decision, decide
from heliotrope.decide.holdout import Assignment
from heliotrope.decide.plans import with_plans
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile

REQUEST = RequestProfile("r", "m", 1_000, 200.0, streaming=True)
POLICY = DecisionPolicy("p", ttft_slo_seconds=30.0, tpot_slo_seconds=5.0, enforce=False)
TWO = {name: region(name, value) for name, value in (("clean", 20.0), ("dirty", 400.0))}
PULL = KvPlans(
    rows=np.array([1], dtype=np.intp),
    actions=(KvAction.PEER_TRANSFER,),
    sources=(0,),
    cached_tokens=np.array([900.0]),
    transfer_seconds=np.array([0.01]),
    transfer_joules=np.array([0.5]),
    saved_joules=np.array([1.0]),
)


def plans() -> Candidates:
    """A dirty endpoint that caches the prompt, a clean one, and the clean one pulling from the dirty one."""
    return with_plans(pool(["dirty", "clean"], TWO, cached_tokens=[900.0, 0.0]), PULL)


def advice(candidates: Candidates | None = None) -> Decision:
    return decide(REQUEST, plans() if candidates is None else candidates, POLICY, NOW)


def test_a_plan_saves_nothing_over_itself() -> None:
    decision = advice()
    for row in range(3):
        same = Comparison(decision.planned(row), decision.planned(row))
        assert same.same is True
        assert same.saved("energy_joules") == 0.0
        assert all(value in (0.0, None) for value in same.document()["modelled_saving"].values())


def test_a_pull_is_another_plan_than_its_endpoint_alone() -> None:
    decision = advice()
    assert decision.winner == 2
    alone = compared(decision, 1)
    assert alone.same is False
    assert alone.ran is not None
    assert alone.ran.kv_action is KvAction.RECOMPUTE
    said = alone.document()
    assert (said["advised"]["kv_action"], said["advised"]["kv_source"]) == ("PeerTransfer", "e0")
    energy = decision.estimates.energy_joules
    assert said["modelled_saving"]["energy_joules"] == pytest.approx(energy[1] - energy[2])
    # Both directions add up, whatever the sign is.
    back = Comparison(decision.planned(2), decision.planned(1))
    assert back.saved("grams_co2e") == pytest.approx(-alone.saved("grams_co2e"))


def test_an_endpoints_own_cache_is_one_plan_whatever_it_is_called() -> None:
    candidates = plans()
    other = replace(candidates, kv_actions=(KvAction.LOCAL_HIT, *candidates.kv_actions[1:]))
    assert Comparison(advice().planned(0), advice(other).planned(0)).same is True


def test_unknown_is_not_zero() -> None:
    decision = advice()
    for missing in (Comparison(None, decision.chosen), Comparison(decision.planned(0), None)):
        assert missing.same is None
        assert set(missing.document()["modelled_saving"].values()) == {None}
    stale = advice(replace(plans(), region_views={"clean": TWO["clean"]}))
    said = compared(stale, 0).document()
    assert said["modelled_saving"]["grams_co2e"] is None
    assert said["modelled_saving"]["energy_joules"] is not None


def test_emissions_of_signals_of_different_types_are_not_compared() -> None:
    clean = TWO["clean"]
    reading = clean.signal.reading
    assert reading is not None
    direct = replace(reading, emission_factor=EmissionFactor.DIRECT)
    assert direct.emission_factor is not reading.emission_factor
    views = {**TWO, "clean": replace(clean, signal=replace(clean.signal, reading=direct))}
    decision = advice(replace(plans(), region_views=views))
    both = Comparison(decision.planned(0), decision.planned(1))
    assert both.saved("grams_co2e") != both.saved("grams_co2e")
    assert both.saved("energy_joules") == both.saved("energy_joules")
    within = Comparison(decision.planned(1), decision.planned(2))
    assert within.saved("grams_co2e") == within.saved("grams_co2e")


def test_both_stand_in_one_estimate() -> None:
    decision = advice()
    again = estimated_together(decision, decision.candidates, 0)
    assert again.document() == compared(decision, 0).document()


def test_a_held_out_request_knows_the_whole_plan_that_it_was_kept_from() -> None:
    blind = Assignment(Arm.HOLDOUT, "c")
    scored = replace(plans(), base_score=np.array([0.9, 0.1, 0.1]))
    decision = decide(REQUEST, scored, replace(POLICY, enforce=True), NOW, assignment=blind)
    assert decision.endpoint == "e0"
    said = decision.explanation()
    assert said["policy_would_choose"] == "e1"
    assert said["policy_would_choose_plan"]["kv_source"] == "e0"
    assert decide(REQUEST, scored, POLICY, NOW).explanation()["policy_would_choose_plan"] is None
