"""A request with images: where they are encoded, what its header, loads, metrics and record say of it."""

from typing import Any

import pytest
from tests.unit.epp.director.test_director import Bench, Gateway, chat
from tests.unit.epp.director.test_phases import done
from tests.unit.epp.parsers.test_media import picture

from heliotrope.decide.load import Fact
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.engine.encoder import DEFAULT_ENCODER
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.director.outcome import routed
from heliotrope_epp.parsers.media import ASSUMED_TOKENS
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.pipeline import Pipeline

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: encode-filter
- type: decode-filter
- type: always-disagg-multimodal-decider
- type: mm-embeddings-cache-producer
  parameters: {cacheSize: 2}
- type: mm-embeddings-cache-scorer
- type: disagg-profile-handler
  parameters: {deciders: {encode: always-disagg-multimodal-decider}}
schedulingProfiles:
- {name: encode, plugins: [{pluginRef: encode-filter}, {pluginRef: mm-embeddings-cache-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}]}
"""
POLICY = DecisionPolicy("p", ttft_slo_seconds=30.0, tpot_slo_seconds=5.0)
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


class Encoded(Bench):
    """The dirty endpoint decodes, the clean one encodes; both on one host."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        context = PluginContext(carbon=self.store, clock=self.director._clock)
        self.pipeline = Pipeline(load(CONFIG, builtin_registry(), context).scheduling, context)
        self.director._pipeline = self.pipeline
        node = {"kubernetes.io/hostname": "node-1"}
        self.endpoints = (
            Endpoint("a", "ns", "10.0.0.1", 8000, {**node, "llm-d.ai/role": "decode"}),
            Endpoint("b", "ns", "10.0.0.2", 8000, {**node, "llm-d.ai/role": "encode"}),
        )
        self.apply()

    def state(self, name: str) -> EndpointState:
        state = self.store.get(f"ns/{name}")
        assert state is not None
        return state

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def ask(bench: Bench, *parts: dict[str, Any], **fields: Any) -> Gateway:
    content = [*parts, {"type": "text", "text": "what is this?"}]
    body = chat(messages=[{"role": "user", "content": content}], **fields)
    request = Gateway(body=body, given={"x-encoder-hosts-ports": "6.6.6.6:1"})
    bench.send(request)
    return request


def encoders(request: Gateway) -> list[str]:
    return [value for name, value in request.sent if name == "x-encoder-hosts-ports"]


@pytest.mark.parametrize("policy", [None, POLICY])
def test_the_encoder_gets_images_and_only_they_have_one(policy: DecisionPolicy | None) -> None:
    bench = Encoded(policy=policy)
    request, text = ask(bench, picture(560)), ask(bench)
    assert (request.routed_to, text.routed_to) == ("10.0.0.1:8000", "10.0.0.1:8000")
    assert encoders(request) == ["10.0.0.2:8000"]
    assert encoders(text) == []
    assert bench.value("heliotrope_encode_placements_total", placement="encoder") == 1.0
    assert bench.value("heliotrope_encode_placements_total", placement="in-place") == 0.0
    assert bench.value("heliotrope_media_total", modality="image", tokens="known") == 1.0


def test_a_policy_keeps_images_in_place_where_that_is_cleaner() -> None:
    bench = Encoded(policy=POLICY)
    bench.apply((20.0, 300.0))
    assert encoders(ask(bench, picture(560))) == []
    assert bench.value("heliotrope_encode_placements_total", placement="in-place") == 1.0


def test_images_that_the_endpoint_has_seen_need_no_encoder() -> None:
    bench = Encoded(policy=POLICY)
    assert encoders(ask(bench, picture(560))) == ["10.0.0.2:8000"]
    assert encoders(ask(bench, picture(560))) == []
    assert encoders(ask(bench, picture(588))) == ["10.0.0.2:8000"]
    bench.pipeline.forget("ns/a")
    assert encoders(ask(bench, picture(560))) == ["10.0.0.2:8000"], "forgotten with the endpoint"


def test_the_index_is_bounded_and_tells_of_it() -> None:
    bench = Encoded(policy=POLICY)
    for width in (280, 308, 336, 364):
        ask(bench, picture(width))
    assert len(bench.pipeline.embeddings) == 2
    assert bench.value("heliotrope_embedding_index_evictions_total") == 2.0


@pytest.mark.parametrize("policy", [None, POLICY])
def test_images_are_the_encoders_load_until_the_first_token(policy: DecisionPolicy | None) -> None:
    bench = Encoded(policy=policy)
    request = ask(bench, picture(560), stream=True)
    there, here = bench.state("b").facts, bench.state("a").facts
    assert (there[Fact.OWN], there[Fact.PROMPT_TOKENS], here[Fact.OWN]) == (1.0, 202.0, 1.0)
    assert (there[Fact.PREFILL_SECONDS] > 0.0) == (policy is not None)
    bench.director.progressed(request.ctx, 100.4)
    assert (there[Fact.OWN], there[Fact.PROMPT_TOKENS], here[Fact.OWN]) == (0.0, 0.0, 1.0)
    bench.director.done(request.ctx, done())
    assert (there[Fact.OWN], here[Fact.OWN], bench.director.inflight) == (0.0, 0.0, 0)


@pytest.mark.parametrize("policy", [None, POLICY])
def test_the_meter_is_told_which_images_go_to_which_encoder(policy: DecisionPolicy | None) -> None:
    bench = Encoded(policy=policy)
    first = ask(bench, picture(560), picture(280))
    second = ask(bench, picture(560), picture(588)) if policy is None else first
    (told,) = routed(first.ctx, first.ctx.request).encodes
    assert (told.endpoint, told.image_tokens, told.remembered_tokens) == ("ns/b", (202.0, 102.0), ())
    model = DEFAULT_ENCODER
    assert told.seconds == pytest.approx(sum(model.seconds(1, tokens) for tokens in (202, 102)))
    if second is not first:
        (again,) = routed(second.ctx, second.ctx.request).encodes
        assert (again.image_tokens, again.remembered_tokens) == ((212.0,), (202.0,))
    text = ask(bench)
    assert routed(text.ctx, text.ctx.request).encodes == ()


def test_an_image_of_unknown_size_is_still_something() -> None:
    bench = Encoded()
    request = ask(bench, SOUND)
    (told,) = routed(request.ctx, request.ctx.request).encodes
    assert told.image_tokens == (float(ASSUMED_TOKENS),)


def test_models_do_not_learn_of_images() -> None:
    bench = Encoded(policy=POLICY)
    assert ask(bench, picture(560)).ctx.features is None
    assert ask(bench).ctx.features is not None


def test_sound_is_served_in_place_and_the_record_says_that_it_is_unknown() -> None:
    bench = Encoded(policy=POLICY)
    request = ask(bench, SOUND, picture(560))
    assert request.routed_to == "10.0.0.1:8000"
    assert encoders(request) == []
    document = bench.log.newest(1)[0]["carbon_decision"]
    assert document["media"] == {"count": {"audio": 1, "image": 1}, "tokens": 202, "assumed": 0, "unknown": 1}
    assert bench.value("heliotrope_media_total", modality="audio", tokens="unknown") == 1.0


def test_too_many_images_are_the_clients_fault() -> None:
    bench = Encoded(policy=POLICY)
    request = ask(bench, *[picture(280, 280 + i) for i in range(257)])
    assert request.routed_to is None


@pytest.mark.parametrize("policy", [None, POLICY])
def test_without_an_encoder_images_are_served_where_they_are(policy: DecisionPolicy | None) -> None:
    bench = Encoded(policy=policy)
    only = Endpoint("a", "ns", "10.0.0.1", 8000, {"llm-d.ai/role": "decode"})
    other = Endpoint("b", "ns", "10.0.0.2", 8000, {"llm-d.ai/role": "prefill"})
    bench.endpoints = (only, other)
    bench.apply()
    request = ask(bench, picture(560))
    assert request.routed_to == "10.0.0.1:8000"
    assert encoders(request) == []
