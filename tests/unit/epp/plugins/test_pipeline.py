"""One request through producers, filters, scorers and picker, with and without a policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.epp.plugins.builders import NOW_S, NOW_UNIX_S, Carbon, advise, metrics, request, state

from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import FloatColumn, FloatMatrix, RegionView
from heliotrope.decide.load import Loads
from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins import options as options_module
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import NoCarbon, PluginContext
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.parameters import NoParameters
from heliotrope_epp.plugins.pipeline import Pipeline

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
POLICY = DecisionPolicy("p", ttft_slo_seconds=10.0, tpot_slo_seconds=1.0)
DECODE_THEN_QUEUE = (
    HEAD
    + """
plugins:
- type: decode-filter
- type: queue-scorer
- type: max-score-picker
  parameters: {maxNumOfEndpoints: 2}
"""
)
QUEUE_THEN_CARBON = HEAD + "plugins: [{type: queue-scorer}, {type: carbon-picker}]"
RANDOM = HEAD + "plugins: [{type: random-picker}]"


def pipeline(text: str = "", carbon: Carbon | None = None) -> Pipeline:
    context = PluginContext(carbon=carbon or NoCarbon(), random=Random(1))
    return Pipeline(load(text, builtin_registry(), context).scheduling, context)


def run(of: Pipeline, states: Sequence[EndpointState], asked: LlmRequest | None = None) -> list[str]:
    result = of.run(asked or request(), states, NOW_S, NOW_UNIX_S)
    return [o.state.endpoint.name for o in result.pick.options]


def test_the_default_configuration_weighs_queue_memory_and_prefix() -> None:
    of = pipeline()
    states = [
        state("queued", metrics=metrics(waiting=4.0, kv_usage=0.5)),
        state("half", metrics=metrics(waiting=2.0, kv_usage=0.5)),
        state("free", metrics=metrics(waiting=0.0, kv_usage=0.5)),
    ]
    assert run(of, states) == ["free"]
    of.routed(request(), states[1])
    # half: 2·0.5 + 2·0.5 + 3·1 = 5; free: 2·1 + 2·0.5 = 3
    result = of.run(request(), states, NOW_S, NOW_UNIX_S)
    assert [o.state.endpoint.name for o in result.pick.options] == ["half"]
    np.testing.assert_allclose(result.profiles["default"].scores, [1.0, 5.0, 3.0])
    of.forget("default/half")
    assert run(of, states) == ["free"]


def test_filters_come_before_scores() -> None:
    role = "llm-d.ai/role"
    states = [
        state("prefill", metrics=metrics(waiting=0.0), labels={role: "prefill"}),
        state("decode", metrics=metrics(waiting=9.0), labels={role: "decode"}),
        state("both", metrics=metrics(waiting=3.0), labels={role: "both"}),
    ]
    assert run(pipeline(DECODE_THEN_QUEUE), states) == ["both", "decode"]


def test_what_is_left_is_nothing() -> None:
    of = pipeline(DECODE_THEN_QUEUE, Carbon(POLICY))
    prefill = state("p", metrics=metrics(), labels={"llm-d.ai/role": "prefill"})
    result = of.run(request(), [prefill, prefill], NOW_S, NOW_UNIX_S)
    assert result.pick.options == ()
    assert result.pick.reason == "filter decode-filter leaves none of the endpoints (2)"
    assert result.decision is None
    assert of.run(request(), [], NOW_S, NOW_UNIX_S).pick.reason == "there are no endpoints"


def regions() -> list[EndpointState]:
    return [
        state("dirty", metrics=metrics(waiting=0.0), region="dirty"),
        state("clean", metrics=metrics(waiting=3.0), region="clean"),
    ]


def test_an_enforced_policy_decides_whatever_picker_is_configured() -> None:
    for text in ("", RANDOM, DECODE_THEN_QUEUE, HEAD + "plugins: [{type: carbon-picker}]"):
        of = pipeline(text, Carbon(POLICY, dirty=500.0, clean=20.0))
        result = of.run(request(), regions(), NOW_S, NOW_UNIX_S)
        assert result.pick.options[0].state.endpoint.name == "clean"
        assert result.enforced
        assert result.decision is not None
        assert result.decision.endpoint == "default/clean"


def test_an_enforced_policy_keeps_the_configured_number_of_fallbacks() -> None:
    of = pipeline(DECODE_THEN_QUEUE, Carbon(POLICY, dirty=500.0, clean=20.0))
    assert run(of, regions()) == ["clean", "dirty"]
    assert run(pipeline("", Carbon(POLICY, dirty=500.0, clean=20.0)), regions()) == ["clean"]


@pytest.mark.parametrize(
    "text", ["", DECODE_THEN_QUEUE, HEAD + "plugins: [{type: queue-scorer}, {type: carbon-picker}]"]
)
def test_advice_is_told_and_not_followed(text: str) -> None:
    of = pipeline(text, Carbon(advise(POLICY), dirty=500.0, clean=20.0))
    result = of.run(request(), regions(), NOW_S, NOW_UNIX_S)
    assert result.pick.options[0].state.endpoint.name == "dirty"
    assert not result.enforced
    assert result.decision is not None
    assert result.decision.endpoint == "default/clean"


def test_the_holdout_is_blind_to_carbon_at_its_share_and_says_so() -> None:
    held = replace(POLICY, holdout_percent=20, holdout_seed=1)
    for text in (DECODE_THEN_QUEUE, HEAD + "plugins: [{type: queue-scorer}, {type: carbon-picker}]"):
        of = pipeline(text, Carbon(held, dirty=500.0, clean=20.0))
        results = [of.run(request(request_id=f"r-{i}"), regions(), NOW_S, NOW_UNIX_S) for i in range(50)]
        went = Counter((r.assignment.arm, r.pick.options[0].state.endpoint.name) for r in results)
        assert went == {(Arm.HOLDOUT, "dirty"): 10, (Arm.STEERED, "clean"): 40}
        for result in results:
            assert result.decision is not None
            assert result.decision.assignment == result.assignment
            assert result.enforced


def test_advice_holds_nothing_out() -> None:
    of = pipeline(DECODE_THEN_QUEUE, Carbon(advise(replace(POLICY, holdout_percent=50)), dirty=500.0, clean=20.0))
    results = [of.run(request(), regions(), NOW_S, NOW_UNIX_S) for _ in range(20)]
    assert {r.assignment.arm for r in results} == {Arm.UNSTEERED}
    assert {r.decision.endpoint for r in results if r.decision is not None} == {"default/clean"}


class Counting(Carbon):
    """Counts evaluations: each asks for the regions once."""

    evaluations = 0

    def regions(self) -> dict[str, RegionView]:
        self.evaluations += 1
        return super().regions()


@pytest.mark.parametrize("text", ["", QUEUE_THEN_CARBON])
@pytest.mark.parametrize("policy", [POLICY, advise(POLICY)])
def test_the_policy_is_evaluated_once(text: str, policy: DecisionPolicy) -> None:
    carbon = Counting(policy, dirty=500.0, clean=20.0)
    run(pipeline(text, carbon), regions())
    assert carbon.evaluations == 1


def test_a_policy_that_rules_everything_out_is_obeyed_only_when_enforced() -> None:
    strict = DecisionPolicy("residency", allowed_regions=frozenset({"mars"}))
    result = pipeline("", Carbon(strict, dirty=1.0, clean=1.0)).run(request(), regions(), NOW_S, NOW_UNIX_S)
    assert result.pick.options == ()
    assert "residency: region not allowed (2)" in result.pick.reason
    assert run(pipeline("", Carbon(advise(strict), dirty=1.0, clean=1.0)), regions()) == ["dirty"]


def test_a_policy_comes_and_goes_while_running() -> None:
    carbon = Carbon(None, dirty=500.0, clean=20.0)
    of = pipeline("", carbon)
    assert run(of, regions()) == ["dirty"]
    carbon.attached = POLICY
    assert run(of, regions()) == ["clean"]
    carbon.attached = advise(POLICY)
    assert run(of, regions()) == ["dirty"]


def test_prefixes_are_learned_for_a_policy_even_if_no_scorer_asks() -> None:
    carbon = Carbon(None, a=100.0)
    of = pipeline(RANDOM, carbon)
    states = [state("e0", metrics=metrics(), region="a"), state("e1", metrics=metrics(), region="a")]
    of.routed(request(), states[0])
    carbon.attached = POLICY
    result = of.run(request(), states, NOW_S, NOW_UNIX_S)
    assert [o.cached_tokens for o in result.profiles["default"].options] == [0.0, 0.0]
    of.routed(request(), states[1])
    result = of.run(request(), states, NOW_S, NOW_UNIX_S)
    assert [o.cached_tokens for o in result.profiles["default"].options] == [0.0, 1000.0]


def test_the_loads_of_all_endpoints_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    original = options_module.project

    def counting(facts: FloatMatrix, now_s: float, stale_after_s: float) -> Loads:
        asked.append(len(facts))
        return original(facts, now_s, stale_after_s)

    monkeypatch.setattr(options_module, "project", counting)
    run(pipeline("", Carbon(POLICY, dirty=1.0, clean=2.0)), regions())
    assert asked == [2]


def test_metrics_older_than_the_threshold_are_unknown() -> None:
    context = PluginContext(random=Random(1), metrics_stale_after_s=0.5)
    of = Pipeline(load(DECODE_THEN_QUEUE, builtin_registry(), context).scheduling, context)
    states = [
        state("old", metrics=metrics(waiting=0.0, age_s=0.6)),
        state("new", metrics=metrics(waiting=5.0, age_s=0.4)),
    ]
    assert run(of, states) == ["new", "old"]


class Fixed:
    """A scorer that gives what it is told."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:
        return np.array(self.values)


def with_scorers(*scorers: tuple[Fixed, float]) -> Pipeline:
    registry = builtin_registry()
    plugins, references = "", ""
    for i, (scorer, weight) in enumerate(scorers):
        registry.register(
            f"fixed-{i}",
            PluginKind.SCORER,
            NoParameters,
            lambda _parameters, _context, scorer=scorer: scorer,  # type: ignore[misc]
            Stability.ALPHA,
        )
        plugins += f"- type: fixed-{i}\n"
        references += f"  - {{pluginRef: fixed-{i}, weight: {weight}}}\n"
    text = f"{HEAD}plugins:\n{plugins}schedulingProfiles:\n- name: default\n  plugins:\n{references}"
    context = PluginContext(random=Random(1))
    return Pipeline(load(text, registry, context).scheduling, context)


def test_scores_are_clamped_and_nan_is_worst() -> None:
    of = with_scorers((Fixed(-5.0, 0.5, 7.0, float("nan"), float("inf")), 2.0))
    states = [state(f"e{i}") for i in range(5)]
    result = of.run(request(), states, NOW_S, NOW_UNIX_S)
    assert result.profiles["default"].scores.tolist() == [0.0, 1.0, 2.0, 0.0, 2.0]


def test_a_scorer_of_the_wrong_length_is_named() -> None:
    of = with_scorers((Fixed(1.0, 1.0), 1.0))
    with pytest.raises(ValueError, match="scorer fixed-0 gave 2 values for 3 endpoints"):
        of.run(request(), [state(f"e{i}") for i in range(3)], NOW_S, NOW_UNIX_S)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=9),
    st.floats(0.0, 5.0),
    st.floats(0.0, 5.0),
)
def test_the_score_is_the_weighted_sum_and_equals_are_equal(
    values: list[tuple[float, float]], first: float, second: float
) -> None:
    values = [*values, values[0]]
    of = with_scorers((Fixed(*[v[0] for v in values]), first), (Fixed(*[v[1] for v in values]), second))
    result = of.run(request(), [state(f"e{i}") for i in range(len(values))], NOW_S, NOW_UNIX_S)
    scores = result.profiles["default"].scores
    np.testing.assert_allclose(scores, [first * a + second * b for a, b in values])
    assert scores[0] == scores[-1]


def test_the_explanation_holds_every_score_as_plain_data() -> None:
    of = with_scorers((Fixed(0.5, float("nan")), 2.0), (Fixed(1.0, 0.0), 1.0))
    result = of.run(request(), [state("e0"), state("e1")], NOW_S, NOW_UNIX_S)
    explained = result.explanation()
    (profile,) = explained.pop("profiles")
    assert explained == {"primary": "default", "enforced": False, "arm": "unsteered", "request_class": ""}
    assert profile.pop("candidates") == [
        {"endpoint": "default/e0", "score": 2.0, "scores": {"fixed-0": 0.5, "fixed-1": 1.0}, "cached_tokens": 0.0},
        {"endpoint": "default/e1", "score": 0.0, "scores": {"fixed-0": None, "fixed-1": 0.0}, "cached_tokens": 0.0},
    ]
    assert profile == {
        "profile": "default",
        "weights": {"fixed-0": 2.0, "fixed-1": 1.0},
        "picker": "max-score-picker",
        "endpoints": ["default/e0"],
        "reason": "",
        "candidates_omitted": 0,
    }


def test_the_explanation_of_a_huge_pool_is_bounded_and_keeps_the_pick() -> None:
    scores = [0.001 * i for i in range(400)]
    result = with_scorers((Fixed(*scores), 1.0)).run(request(), [state(f"e{i}") for i in range(400)], NOW_S, NOW_UNIX_S)
    profile = result.explanation()["profiles"][0]
    shown = [row["endpoint"] for row in profile["candidates"]]
    assert (len(shown), profile["candidates_omitted"]) == (256, 144)
    assert shown[-1] == profile["endpoints"][0] == "default/e399"


def test_the_explanation_of_nothing_is_empty() -> None:
    explained = pipeline().run(request(), [], NOW_S, NOW_UNIX_S).explanation()["profiles"][0]
    assert (explained["candidates"], explained["endpoints"]) == ([], [])


class Belief:
    """A producer that believes what it is told."""

    def __init__(self, *tokens: float) -> None:
        self.tokens = tokens
        self.sent: list[str] = []

    def cached_tokens(self, request: LlmRequest, states: Sequence[EndpointState]) -> Sequence[float]:
        return self.tokens

    def routed(self, request: LlmRequest, state: EndpointState) -> None:
        self.sent.append(state.endpoint.key)

    def forget(self, endpoint_key: str) -> None:
        self.sent.remove(endpoint_key)


def test_several_producers_are_asked_and_the_highest_belief_counts() -> None:
    beliefs = {"one": Belief(10.0, 0.0), "two": Belief(5.0, 7.0)}
    registry = builtin_registry()
    for name, belief in beliefs.items():
        registry.register(
            name,
            PluginKind.PRODUCER,
            NoParameters,
            lambda _parameters, _context, belief=belief: belief,  # type: ignore[misc]
            Stability.ALPHA,
        )
    context = PluginContext()
    text = HEAD + "plugins: [{type: one}, {type: two}]\nschedulingProfiles: [{name: default}]"
    of = Pipeline(load(text, registry, context).scheduling, context)
    states = [state("e0"), state("e1")]
    result = of.run(request(), states, NOW_S, NOW_UNIX_S)
    assert [o.cached_tokens for o in result.profiles["default"].options] == [10.0, 7.0]
    of.routed(request(), states[1])
    assert [b.sent for b in beliefs.values()] == [["default/e1"], ["default/e1"]]
    of.forget("default/e1")
    assert [b.sent for b in beliefs.values()] == [[], []]
