"""Where prompts are prefilled: llm-d's rules without a policy, the joint estimate with one."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.unit.epp.plugins.builders import ENGINE, NOW_S, NOW_UNIX_S, Carbon, advise, metrics, option, request, state

from heliotrope.carbon.arms import Arm
from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.endpoint import Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import NoCarbon, PluginContext
from heliotrope_epp.plugins.interface import DisaggregatingHandler, LlmRequest
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.plugins.profilehandlers.deciders import (
    AlwaysDisaggPdDecider,
    PrefixBasedPdDecider,
    PrefixBasedPdDeciderParameters,
)
from heliotrope_epp.plugins.profilehandlers.disagg import DisaggProfileHandler, DisaggProfileHandlerParameters
from heliotrope_epp.plugins.scheduled import ScheduleResult

ROLE = "llm-d.ai/role"
POLICY = DecisionPolicy("p", ttft_slo_seconds=30.0, tpot_slo_seconds=5.0)
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: decode-filter}
- {type: prefill-filter}
- {type: queue-scorer}
- {type: %s, parameters: {maxNumOfEndpoints: 2}}
- {type: %s, name: decider, parameters: %s}
- {type: disagg-profile-handler, parameters: %s}
schedulingProfiles:
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]
"""
DECIDED = "{deciders: {prefill: decider}}"


def labels(role: str) -> dict[str, str]:
    """On one host, as far as links are concerned, so that KV costs little between regions."""
    return {ROLE: role, "kubernetes.io/hostname": "node-1"}


def config(
    decider: str = "always-disagg-pd-decider",
    parameters: str = "{}",
    handler: str = DECIDED,
    picker: str = "max-score-picker",
) -> str:
    return CONFIG % (picker, decider, parameters, handler)


def pipeline(text: str, carbon: Carbon | None = None) -> Pipeline:
    context = PluginContext(carbon=carbon or NoCarbon(), random=Random(1))
    return Pipeline(load(text, builtin_registry(), context).scheduling, context)


def names(result: ScheduleResult) -> tuple[str, str]:
    """Where it is prefilled and decoded."""
    decode = result.pick.options[0]
    prefill = result.pick.prefill or decode
    return prefill.state.endpoint.name, decode.state.endpoint.name


def run(of: Pipeline, states: Sequence[EndpointState], asked: LlmRequest | None = None) -> ScheduleResult:
    return of.run(asked or request(), states, NOW_S, NOW_UNIX_S)


def fleet(*, decode_region: str = "dirty", prefill_region: str = "clean") -> list[EndpointState]:
    return [
        state("d0", metrics=metrics(running=8.0, waiting=2.0), region=decode_region, labels=labels("decode")),
        state("d1", metrics=metrics(running=8.0, waiting=1.0), region=decode_region, labels=labels("decode")),
        state("p0", metrics=metrics(running=0.0, waiting=3.0), region=prefill_region, labels=labels("prefill")),
        state("p1", metrics=metrics(running=0.0, waiting=0.0), region=prefill_region, labels=labels("prefill")),
    ]


def test_without_a_policy_the_profiles_choose() -> None:
    result = run(pipeline(config()), fleet())
    assert names(result) == ("p1", "d1")
    assert result.primary == "decode"
    assert [p["profile"] for p in result.explanation()["profiles"]] == ["decode", "prefill"]


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ("{nonCachedTokens: 1000}", "p1"),
        ("{nonCachedTokens: 1001}", "d1"),
        ("{nonCachedTokens: 16, promptTokens: 1001}", "d1"),
        ("{}", "d1"),
    ],
)
def test_the_prefix_based_decider_counts_what_is_not_cached(parameters: str, where: str) -> None:
    result = run(pipeline(config("prefix-based-pd-decider", parameters)), fleet())
    assert names(result) == (where, "d1")


def test_deciders_look_at_the_decode_endpoint() -> None:
    decider = PrefixBasedPdDecider(PrefixBasedPdDeciderParameters(nonCachedTokens=200))
    assert decider.prefills_elsewhere(request(), option(state("d"), 800.0))
    assert not decider.prefills_elsewhere(request(), option(state("d"), 801.0))
    assert AlwaysDisaggPdDecider().prefills_elsewhere(request(), option(state("d"), 1_000.0))


def test_prefill_first_asks_nobody_and_no_decider_means_no_split() -> None:
    assert names(run(pipeline(config(handler="{stageOrder: prefill-first}")), fleet())) == ("p1", "d1")
    of = pipeline(config(handler="{}"), Carbon(POLICY, dirty=500.0, clean=20.0))
    result = run(of, fleet())
    assert names(result) == ("d1", "d1")
    assert result.decision is not None
    assert result.decision.candidates.pairs is None


def test_a_required_prefiller_that_is_not_there_refuses_the_request() -> None:
    result = run(pipeline(config()), fleet()[:2])
    assert result.pick.options == ()
    assert result.pick.reason == "prefill: filter prefill-filter leaves none of the endpoints (2)"


def test_an_endpoint_that_is_best_at_both_does_both() -> None:
    both = state("both", metrics=metrics(waiting=0.0), labels=labels("both"))
    result = run(pipeline(config()), [both, *fleet()[:1]])
    assert names(result) == ("both", "both")
    assert result.pick.prefill is None


def test_a_policy_prefills_where_it_is_clean() -> None:
    for picker in ("max-score-picker", "carbon-picker"):
        of = pipeline(config(picker=picker), Carbon(POLICY, dirty=500.0, clean=20.0))
        result = run(of, fleet())
        prefill, decode = names(result)
        assert prefill.startswith("p")
        assert decode.startswith("d")
        decision = result.decision
        assert decision is not None
        row = result.plan_row(result.pick.options[0].key)
        assert row == decision.winner
        assert row is not None
        assert decision.candidates.prefill_endpoint(row) == f"default/{prefill}"
        shown = next(c for c in decision.explanation()["candidates"] if c["chosen"])
        assert (shown["prefill_endpoint"], shown["prefill_region"]) == (f"default/{prefill}", "clean")
        assert 0.0 < shown["prefiller_joules"] < shown["energy_joules"]
        assert shown["sources"]["energy"] == "analytic"
        assert set(result.profiles) == {"decode", "prefill"}
        assert result.profiles["prefill"].pick.options == (result.pick.prefill,)
        assert len(result.explanation()["profiles"]) == 2


def test_a_policy_keeps_what_is_cheapest_in_one_place() -> None:
    of = pipeline(config(), Carbon(POLICY, dirty=500.0, clean=20.0))
    result = run(of, fleet(decode_region="clean", prefill_region="dirty"))
    assert result.pick.prefill is None
    assert set(result.profiles) == {"decode"}


def test_a_short_prompt_stays_in_one_place() -> None:
    of = pipeline(config(), Carbon(POLICY, dirty=500.0, clean=20.0))
    assert run(of, fleet(), request(b"x" * 100)).pick.prefill is None


def test_fallbacks_decode_what_the_prefiller_sends() -> None:
    other = replace(ENGINE, block_size=ENGINE.block_size * 2)
    odd = state("odd", metrics=metrics(), labels=labels("decode"), traits=Traits(region="dirty", engine=other))
    of = pipeline(config(), Carbon(POLICY, dirty=500.0, clean=20.0))
    result = run(of, [odd, *fleet()])
    chosen = [o.state.endpoint.name for o in result.pick.options]
    assert result.pick.prefill is not None
    assert sorted(chosen) == ["d0", "d1"]


def fleets() -> list[list[EndpointState]]:
    """Where a pair is best, and where none is."""
    return [fleet(), fleet(decode_region="clean", prefill_region="dirty")]


@pytest.mark.parametrize("states", fleets())
@pytest.mark.parametrize("picker", ["max-score-picker", "carbon-picker"])
def test_advice_is_what_the_policy_would_do_and_llm_ds_rules_are_followed(
    states: list[EndpointState], picker: str
) -> None:
    enforced = run(pipeline(config(picker=picker), Carbon(POLICY, dirty=500.0, clean=20.0)), states)
    result = run(pipeline(config(picker=picker), Carbon(advise(POLICY), dirty=500.0, clean=20.0)), states)
    assert names(result) == ("p1", "d1")
    assert set(result.profiles) == {"decode", "prefill"}
    assert result.comparison is not None
    assert enforced.comparison is None
    ran, advised = result.comparison.ran, result.comparison.advised
    assert ran is not None
    assert advised is not None
    assert (ran.prefill_endpoint, ran.endpoint) == ("default/p1", "default/d1")
    prefill, decode = names(enforced)
    assert (advised.prefill_endpoint, advised.endpoint) == (f"default/{prefill}", f"default/{decode}")
    assert result.comparison.same == (names(enforced) == ("p1", "d1"))
    assert result.planned("default/d1") is ran
    assert enforced.decision is not None
    winner = enforced.decision.winner
    assert winner is not None
    assert advised.value("grams_co2e") == pytest.approx(enforced.decision.estimates.grams_co2e[winner])


def test_a_pair_that_is_none_of_the_policys_plans_is_estimated_all_the_same() -> None:
    """In place is cleaner and sooner, so no pair is a plan; llm-d's rules split the prompt anyhow."""
    states = fleet(decode_region="clean", prefill_region="dirty")
    for of in states[2:]:
        of.metrics = metrics(running=40.0, waiting=30.0)
    result = run(pipeline(config(), Carbon(advise(POLICY), dirty=500.0, clean=20.0)), states)
    assert result.decision is not None
    assert result.comparison is not None
    assert result.plan_row("default/d1") is None
    ran = result.comparison.ran
    assert ran is not None
    assert ran.prefill_endpoint.startswith("default/p")
    assert result.comparison.same is False
    assert result.comparison.saved("grams_co2e") > 0.0
    assert result.comparison.saved("ttft_seconds") > 0.0
    advised = result.comparison.advised
    assert advised is not None
    winner = result.decision.winner
    assert winner is not None
    assert advised.value("grams_co2e") == pytest.approx(result.decision.estimates.grams_co2e[winner])


def test_both_plans_share_links_with_what_is_on_its_way() -> None:
    states = fleet(decode_region="clean", prefill_region="dirty")
    for waiting, of in zip((31.0, 30.0), states[2:], strict=True):
        of.metrics = metrics(running=40.0, waiting=waiting)
    pipe = pipeline(config(), Carbon(advise(POLICY), dirty=500.0, clean=20.0))
    first = run(pipe, states).planned("default/d1")
    assert first is not None
    prefiller = next(of for of in states if of.endpoint.key == first.prefill_endpoint)
    pipe.moving(first, prefiller, states[1], NOW_S - first.transfer_begins_seconds)
    second = run(pipe, states).planned("default/d1")
    assert second is not None
    assert second.prefill_endpoint == first.prefill_endpoint
    alone, shared = (float(each.candidates.transfer_seconds[each.row]) for each in (first, second))
    assert shared > alone
    assert second.value("energy_joules") == pytest.approx(first.value("energy_joules"))


def test_a_pair_between_which_no_blocks_move_is_unknown() -> None:
    other = replace(ENGINE, block_size=ENGINE.block_size * 2)
    odd = state(
        "p", metrics=metrics(waiting=0.0), labels=labels("prefill"), traits=Traits(region="clean", engine=other)
    )
    result = run(pipeline(config(), Carbon(advise(POLICY), dirty=500.0, clean=20.0)), [*fleet()[:2], odd])
    assert result.comparison is not None
    said = result.comparison.document()
    assert said["ran"]["prefill_endpoint"] == "default/p"
    assert said["ran"]["energy_joules"] is said["modelled_saving"]["grams_co2e"] is None
    assert said["advised"]["energy_joules"] > 0.0


def test_what_would_have_been_steered_to_a_pair_is_told_of_a_held_out_request() -> None:
    of = pipeline(config(), Carbon(replace(POLICY, holdout_percent=100), dirty=500.0, clean=20.0))
    states = fleet()
    states[3].metrics = metrics(running=40.0, waiting=2.5)
    result = run(of, states)
    assert result.assignment.arm is Arm.HOLDOUT
    decision = result.decision
    assert decision is not None
    assert decision.candidates.pairs is None
    said = decision.explanation()
    plan = said["policy_would_choose_plan"]
    assert said["policy_would_choose"] == plan["endpoint"]
    assert plan["prefill_region"] == "clean"
    assert plan["region"] == "dirty"
    enforced = run(pipeline(config(), Carbon(POLICY, dirty=500.0, clean=20.0)), states)
    assert names(enforced) == (plan["prefill_endpoint"].split("/")[1], plan["endpoint"].split("/")[1])
    assert result.comparison is not None
    ran = result.comparison.ran
    assert ran is not None
    assert (ran.prefill_endpoint, ran.endpoint) == tuple(f"default/{name}" for name in names(result))
    assert result.comparison.saved("energy_joules") == pytest.approx(ran.value("energy_joules") - plan["energy_joules"])


def test_a_request_that_nothing_may_serve_has_advice_of_nothing() -> None:
    policy = replace(advise(POLICY), allowed_regions=frozenset({"elsewhere"}))
    result = run(pipeline(config(), Carbon(policy, dirty=500.0, clean=20.0)), fleet())
    assert result.comparison is not None
    assert result.comparison.advised is None
    assert result.comparison.ran is not None
    assert result.comparison.document()["same"] is None
    refused = run(pipeline(config(), Carbon(advise(POLICY), dirty=500.0, clean=20.0)), fleet()[:2])
    assert refused.pick.options == ()
    assert refused.comparison is not None
    assert (refused.comparison.ran, refused.comparison.same) == (None, None)


@pytest.mark.parametrize("picker", ["max-score-picker", "carbon-picker"])
def test_what_is_held_out_is_split_as_without_a_policy(picker: str) -> None:
    policy = replace(POLICY, holdout_percent=100)
    of = pipeline(config(picker=picker), Carbon(policy, dirty=20.0, clean=500.0))
    result = run(of, fleet())
    assert result.assignment.arm is Arm.HOLDOUT
    assert names(result) == ("p1", "d1")


def test_both_endpoints_learn_the_prompt() -> None:
    of = pipeline(config("prefix-based-pd-decider", "{nonCachedTokens: 500}"))
    states = fleet()
    asked = request()
    assert names(run(of, states, asked)) == ("p1", "d1")
    of.routed(asked, states[1], fetched=True)
    of.prefilled(asked, states[3])
    # What the decoder was sent it has now, so the prompt needs no prefiller.
    assert names(run(of, states, request(request_id="r-2"))) == ("d1", "d1")
    other = pipeline(config())
    other.routed(asked, states[1], fetched=True)
    other.prefilled(asked, states[3])
    result = run(other, states, request(request_id="r-2"))
    assert result.pick.prefill is not None


def test_the_handler_is_one_that_disaggregates() -> None:
    assert isinstance(DisaggProfileHandler(DisaggProfileHandlerParameters(), {}), DisaggregatingHandler)
