"""The carbon picker: columns from options, the policy's choice, and what holds for fallbacks."""

from random import Random

import numpy as np
import pytest
from tests.unit.epp.plugins.builders import ENGINE, NOW_UNIX_S, Carbon, advise, metrics, option, region, request, state

from heliotrope.decide.candidates import Embodied
from heliotrope.decide.decision import Outcome
from heliotrope.decide.feasible import Loss
from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.datalayer.endpoint import Traits
from heliotrope_epp.plugins.interface import Option
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.carbon import CarbonPicker
from heliotrope_epp.plugins.pickers.columns import candidates_of, request_profile
from heliotrope_epp.plugins.pickers.ranking import PickerParameters

POLICY = DecisionPolicy("p", ttft_slo_seconds=10.0, tpot_slo_seconds=1.0)


def picker(carbon: Carbon, count: int = 1) -> CarbonPicker:
    parameters = PickerParameters.model_validate_json(f'{{"maxNumOfEndpoints": {count}}}')
    return CarbonPicker(parameters, carbon, Random(1))


def pool(*regions: str | None) -> Options:
    return Options.of([option(state(f"e{i}", metrics=metrics(), region=name)) for i, name in enumerate(regions)])


def names(options: tuple[Option, ...]) -> list[str]:
    return [o.state.endpoint.name for o in options]


def test_the_cleanest_region_wins_over_the_score() -> None:
    carbon = Carbon(POLICY, dirty=500.0, clean=20.0)
    pick = picker(carbon).pick(request(), pool("dirty", "clean"), np.array([9.0, 0.0]), NOW_UNIX_S)
    assert names(pick.options) == ["e1"]
    assert pick.decision is not None
    assert pick.decision.endpoint == "default/e1"
    assert pick.decision.losses[0] is not None


def test_the_choice_follows_the_signal_without_being_built_anew() -> None:
    carbon = Carbon(POLICY, a=500.0, b=20.0)
    chosen = picker(carbon)
    options, scores = pool("a", "b"), np.zeros(2)
    assert names(chosen.pick(request(), options, scores, NOW_UNIX_S).options) == ["e1"]
    carbon.views = {"a": region("a", 20.0), "b": region("b", 500.0)}
    assert names(chosen.pick(request(), options, scores, NOW_UNIX_S).options) == ["e0"]
    carbon.attached = None
    assert names(chosen.pick(request(), options, np.array([0.0, 1.0]), NOW_UNIX_S).options) == ["e1"]


def test_fallbacks_are_the_next_best_by_score() -> None:
    carbon = Carbon(POLICY, dirty=500.0, clean=20.0)
    options, scores = pool("dirty", "dirty", "clean", "dirty"), np.array([0.3, 0.9, 0.0, 0.5])
    assert names(picker(carbon, 3).pick(request(), options, scores, NOW_UNIX_S).options) == ["e2", "e1", "e3"]
    assert names(picker(carbon, 9).pick(request(), options, scores, NOW_UNIX_S).options) == ["e2", "e1", "e3", "e0"]


def test_fallbacks_stay_within_the_hard_constraints() -> None:
    policy = DecisionPolicy("p", allowed_regions=frozenset({"clean"}), quality_floor=0.8)
    carbon = Carbon(policy, dirty=500.0, clean=20.0)
    good = Traits(region="clean", engine=ENGINE, quality=0.9)
    options = Options.of(
        [
            option(state("outside", metrics=metrics(), traits=Traits(region="dirty", engine=ENGINE, quality=0.9))),
            option(state("poor", metrics=metrics(), traits=Traits(region="clean", engine=ENGINE, quality=0.5))),
            option(state("best", metrics=metrics(running=1.0), traits=good)),
            option(state("slow", metrics=metrics(running=300.0, waiting=50.0), traits=good)),
        ]
    )
    pick = picker(carbon, 4).pick(request(), options, np.array([9.0, 8.0, 0.1, 0.2]), NOW_UNIX_S)
    assert names(pick.options) == ["best", "slow"]


def test_without_a_policy_the_score_decides() -> None:
    pick = picker(Carbon(), 2).pick(request(), pool("a", "b", "c"), np.array([0.1, 0.9, 0.5]), NOW_UNIX_S)
    assert (names(pick.options), pick.decision) == (["e1", "e2"], None)
    assert picker(Carbon()).evaluate(request(), pool("a"), np.zeros(1), NOW_UNIX_S) is None


def test_advise_decides_by_score_and_tells_what_the_policy_would_do() -> None:
    carbon = Carbon(advise(POLICY), dirty=500.0, clean=20.0)
    pick = picker(carbon).pick(request(), pool("dirty", "clean"), np.array([9.0, 0.0]), NOW_UNIX_S)
    assert names(pick.options) == ["e0"]
    assert pick.decision is not None
    assert pick.decision.endpoint == "default/e1"


def test_nothing_feasible_says_why() -> None:
    policy = DecisionPolicy("residency", allowed_regions=frozenset({"elsewhere"}))
    pick = picker(Carbon(policy, a=1.0), 3).pick(request(), pool("a", "a", None), np.zeros(3), NOW_UNIX_S)
    assert pick.options == ()
    assert pick.decision is not None
    assert pick.decision.outcome is Outcome.NOTHING_FEASIBLE
    assert pick.reason == "no endpoint satisfies policy residency: region not allowed (3)"


def test_unknown_is_nan_and_never_zero() -> None:
    known = Traits("ns/v", "a", ENGINE, 0.9, 4.0, embodied=Embodied(1000.0, 1e6))
    options = Options.of(
        [
            option(state("known", metrics=metrics(running=3.0), traits=known), cached_tokens=128.0),
            option(state("stale", metrics=metrics(age_s=60.0), traits=Traits())),
            option(state("never")),
        ]
    )
    scores = np.array([1.0, 2.0, 3.0])
    columns = candidates_of(options, scores, {"a": region("a", 1.0)})
    assert columns.endpoints == ("default/known", "default/stale", "default/never")
    assert columns.regions == ("a", None, None)
    assert np.isfinite(columns.engine_rows).all(axis=1).tolist() == [True, False, True]
    assert np.isnan(columns.engine_rows[1]).all()
    assert columns.running.tolist()[0] == 3.0
    for column in (columns.running, columns.waiting, columns.waiting_tokens, columns.kv_tokens, columns.prefill_duty):
        assert np.isnan(column[1:]).all()
        assert np.isfinite(column[0])
    for column, value in ((columns.quality, 0.9), (columns.price_per_hour, 4.0)):
        assert column[0] == value
        assert np.isnan(column[1:]).all()
    assert columns.cached_tokens.tolist() == [128.0, 0.0, 0.0]
    assert columns.base_score is scores
    for column, value in ((columns.embodied_grams, 1000.0), (columns.embodied_lifetime_seconds, 1e6)):
        assert column[0] == value
        assert np.isnan(column[1:]).all()


def test_endpoints_of_unknown_load_come_after_known_ones() -> None:
    carbon = Carbon(POLICY, dirty=500.0, clean=20.0)
    options = Options.of(
        [
            option(state("unknown", metrics=metrics(age_s=60.0), region="clean")),
            option(state("known", metrics=metrics(), region="dirty")),
        ]
    )
    pick = picker(carbon, 2).pick(request(), options, np.array([9.0, 0.0]), NOW_UNIX_S)
    assert names(pick.options) == ["known", "unknown"]
    assert pick.decision is not None
    assert pick.decision.losses[0] is Loss.UNKNOWN


def test_a_pool_without_any_metrics_is_still_served() -> None:
    options = Options.of([option(state(f"e{i}", region="a")) for i in range(3)])
    pick = picker(Carbon(POLICY, a=1.0)).pick(request(), options, np.zeros(3), NOW_UNIX_S)
    assert len(pick.options) == 1
    assert pick.decision is not None
    assert pick.decision.outcome is Outcome.UNKNOWN_LATENCY


def test_the_decision_sees_the_request_without_its_text() -> None:
    asked = request(b"secret words")
    profile = request_profile(asked)
    assert profile.prompt_tokens == asked.prompt_tokens
    assert profile.request_id == asked.request_id
    decision = picker(Carbon(POLICY, a=1.0)).evaluate(asked, pool("a"), np.zeros(1), NOW_UNIX_S)
    assert "secret" not in repr(decision)
    assert decision is not None
    assert "secret" not in str(decision.explanation())


@pytest.mark.parametrize("cached", [0.0, 900.0])
def test_cached_tokens_reach_the_estimate(cached: float) -> None:
    carbon = Carbon(POLICY, a=100.0)
    options = Options.of([option(state("e", metrics=metrics(), region="a"), cached_tokens=cached)])
    decision = picker(carbon).evaluate(request(b"x" * 4000), options, np.zeros(1), NOW_UNIX_S)
    bare = picker(carbon).evaluate(request(b"x" * 4000), pool("a"), np.zeros(1), NOW_UNIX_S)
    assert decision is not None
    assert bare is not None
    saved = bare.estimates.energy_joules[0] - decision.estimates.energy_joules[0]
    assert (saved > 0.0) == (cached > 0.0)
