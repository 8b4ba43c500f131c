"""Three phases at three endpoints, and who decides about them."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.unit.epp.plugins.builders import NOW_S, NOW_UNIX_S, Carbon, advise, metrics, option, request, state

from heliotrope.decide.policy import DecisionPolicy
from heliotrope.engine.encoder import DEFAULT_ENCODER
from heliotrope.errors import InvalidInputError
from heliotrope.media.attachment import Attachment, Modality
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import NoCarbon, PluginContext
from heliotrope_epp.plugins.embeddings import EmbeddingIndex
from heliotrope_epp.plugins.filters.encode import ENCODE_ROLES, encode_filter
from heliotrope_epp.plugins.interface import LlmRequest, Options
from heliotrope_epp.plugins.pickers.kv_links import CarbonPickerParameters
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.plugins.scheduled import ScheduleResult
from heliotrope_epp.plugins.scorers.mm_embeddings_cache import MmEmbeddingsCacheScorer

POLICY = DecisionPolicy("p", ttft_slo_seconds=30.0, tpot_slo_seconds=5.0)
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: decode-filter}
- {type: prefill-filter}
- {type: encode-filter}
- {type: queue-scorer}
- {type: always-disagg-pd-decider}
- {type: always-disagg-multimodal-decider}
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider, encode: always-disagg-multimodal-decider}}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]}
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]}
- {name: encode, plugins: [{pluginRef: encode-filter}, {pluginRef: queue-scorer}]}
"""


def pipeline(carbon: Carbon | None = None) -> Pipeline:
    context = PluginContext(carbon=carbon or NoCarbon(), random=Random(1))
    return Pipeline(load(CONFIG, builtin_registry(), context).scheduling, context)


def fleet(*, decode: str = "dirty", others: str = "clean") -> list[EndpointState]:
    def one(name: str, role: str, region: str, waiting: float = 0.0) -> EndpointState:
        labels = {"llm-d.ai/role": role, "kubernetes.io/hostname": "node-1"}
        return state(name, metrics=metrics(running=0.0, waiting=waiting), region=region, labels=labels)

    return [
        one("d", "decode", decode),
        one("p", "prefill", others),
        one("e0", "encode", others, waiting=9.0),
        one("e1", "encode", others),
    ]


def images(*tokens: int) -> LlmRequest:
    return replace(request(), media=tuple(Attachment(Modality.IMAGE, f"i{i}", n) for i, n in enumerate(tokens)))


def run(of: Pipeline, states: Sequence[EndpointState], asked: LlmRequest) -> ScheduleResult:
    return of.run(asked, states, NOW_S, NOW_UNIX_S)


def places(result: ScheduleResult) -> tuple[list[str], str | None, str]:
    """Where it is encoded, prefilled and decoded."""
    pick = result.pick
    prefill = None if pick.prefill is None else pick.prefill.state.endpoint.name
    return [o.state.endpoint.name for o in pick.encoders], prefill, pick.options[0].state.endpoint.name


def test_without_a_policy_the_profiles_choose_all_three() -> None:
    result = run(pipeline(), fleet(), images(500))
    assert places(result) == (["e1"], "p", "d")
    assert list(result.profiles) == ["decode", "prefill", "encode"]
    assert places(run(pipeline(), fleet(), request())) == ([], "p", "d")


def test_an_enforced_policy_chooses_all_three_by_one_estimate() -> None:
    result = run(pipeline(Carbon(POLICY, dirty=400.0, clean=20.0)), fleet(), images(500))
    encoders, prefill, decode = places(result)
    assert (prefill, decode) == ("p", "d")
    assert encoders == [], "its prefiller is as clean, and nothing has to be moved"
    states = fleet()
    states[1] = state("p", metrics=metrics(running=0.0), region="dirty", labels=dict(states[1].endpoint.labels))
    mixed = run(pipeline(Carbon(POLICY, dirty=400.0, clean=20.0)), states, images(500))
    assert places(mixed)[0] == ["e1"]
    assert mixed.decision is not None
    row = mixed.plan_row("default/d")
    assert row is not None
    assert mixed.decision.explanation()["media"]["tokens"] == 500
    assert mixed.profiles["encode"].considered == 4


def test_a_dirty_encoder_is_not_used_and_regions_hold_for_encoders_too() -> None:
    states = fleet(decode="clean", others="dirty")
    assert places(run(pipeline(Carbon(POLICY, dirty=400.0, clean=20.0)), states, images(500)))[0] == []
    only = replace(POLICY, allowed_regions=frozenset({"dirty"}))
    states = fleet()
    assert places(run(pipeline(Carbon(only, dirty=400.0, clean=20.0)), states, images(500)))[0] == []


def test_under_advise_and_for_held_out_requests_the_profiles_choose() -> None:
    carbon = Carbon(advise(POLICY), dirty=20.0, clean=400.0)
    advised = run(pipeline(carbon), fleet(), images(500))
    assert places(advised) == (["e1"], "p", "d")
    assert advised.decision is not None
    assert advised.comparison is not None
    ran, plan = advised.comparison.ran, advised.comparison.advised
    assert ran is not None
    assert plan is not None
    assert (ran.encode_endpoints, ran.prefill_endpoint, ran.endpoint) == (("default/e1",), "default/p", "default/d")
    assert plan.encode_endpoints == (), "the policy encodes where it is clean"
    assert advised.comparison.saved("grams_co2e") > 0.0
    assert advised.planned("default/d") is ran
    held_out = Carbon(replace(POLICY, holdout_percent=100), dirty=20.0, clean=400.0)
    assert places(run(pipeline(held_out), fleet(), images(500)))[0] == ["e1"]
    assert places(run(pipeline(Carbon(POLICY, dirty=20.0, clean=400.0)), fleet(), images(500)))[0] == []


def test_text_is_chosen_and_explained_as_without_encoders() -> None:
    states = fleet()
    carbon = Carbon(POLICY, dirty=400.0, clean=20.0)
    with_encoders, without = run(pipeline(carbon), states, request()), run(pipeline(carbon), states[:2], request())
    assert with_encoders.decision is not None
    assert without.decision is not None
    assert with_encoders.decision.explanation() == without.decision.explanation()


@pytest.mark.parametrize("role", [*ENCODE_ROLES, "decode", "prefill", "both", None])
def test_the_filter_keeps_roles_that_encode(role: str | None) -> None:
    labels = {} if role is None else {"llm-d.ai/role": role}
    kept = encode_filter().filter(request(), Options.of([option(state("a", labels=labels))]))
    assert len(kept) == (role in ENCODE_ROLES)


def test_the_scorer_counts_different_images() -> None:
    index = EmbeddingIndex()
    index.remember("i0", ["default/a"])
    scorer, options = MmEmbeddingsCacheScorer(index), Options.of([option(state("a")), option(state("b"))])
    np.testing.assert_array_equal(scorer.score(images(10, 20), options), [0.5, 0.0])
    np.testing.assert_array_equal(scorer.score(request(), options), [0.0, 0.0])


def test_costs_of_encoding_come_from_the_pickers_parameters() -> None:
    given = CarbonPickerParameters.model_validate({"encoder": {"joulesPerToken": 0.5}})
    assert given.encoder_model == replace(DEFAULT_ENCODER, joules_per_token=0.5)
    assert CarbonPickerParameters().encoder_model == DEFAULT_ENCODER
    text = (
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: carbon-picker, parameters: %s}]\n"
    )
    with pytest.raises(InvalidInputError, match="encoder"):
        load(text % "{encoder: {joulesPerToken: -1}}", builtin_registry())
