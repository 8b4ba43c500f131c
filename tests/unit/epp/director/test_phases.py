"""A request that one endpoint prefills and another one decodes: its header, its loads, its accounts."""

from typing import Any

import pytest
from tests.unit.epp.director.test_director import ENGINE, Bench, Gateway, chat

from heliotrope.decide.load import Fact
from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.transport.interface import Cause, Report

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefill-filter
- type: decode-filter
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}]}
- {name: decode, plugins: [{pluginRef: decode-filter}]}
"""
POLICY = DecisionPolicy("p", ttft_slo_seconds=30.0, tpot_slo_seconds=5.0)
WORDS = 4_000


class Pair(Bench):
    """The dirty endpoint decodes, the clean one prefills; both on one host."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        clock = self.director._clock
        context = PluginContext(carbon=self.store, clock=clock)
        self.director._pipeline = Pipeline(load(CONFIG, builtin_registry(), context).scheduling, context)
        node = {"kubernetes.io/hostname": "node-1"}
        self.endpoints = (
            Endpoint("a", "ns", "10.0.0.1", 8000, {**node, "llm-d.ai/role": "decode"}),
            Endpoint("b", "ns", "10.0.0.2", 8000, {**node, "llm-d.ai/role": "prefill"}),
        )
        self.apply()

    @property
    def decode(self) -> EndpointState:
        state = self.store.get("ns/a")
        assert state is not None
        return state

    @property
    def prefill(self) -> EndpointState:
        state = self.store.get("ns/b")
        assert state is not None
        return state


def ask(bench: Pair, **fields: Any) -> Gateway:
    body = chat(messages=[{"role": "user", "content": "hello " * WORDS}], **fields)
    request = Gateway(body=body, given={"x-prefiller-host-port": "6.6.6.6:1"})
    bench.send(request)
    return request


def done(status: int | None = 200, cause: Cause = Cause.COMPLETE) -> Report:
    return Report(status, {}, None, 3, 100, 100.0, 100.0, 100.4, 101.0, 101.0, b"", cause)


@pytest.mark.parametrize("policy", [None, POLICY])
def test_the_decoder_gets_the_request_and_the_prefillers_address(policy: DecisionPolicy | None) -> None:
    request = ask(Pair(policy=policy), stream=True)
    assert request.routed_to == "10.0.0.1:8000"
    assert ("x-prefiller-host-port", "10.0.0.2:8000") in request.sent
    assert [value for name, value in request.sent if name == "x-prefiller-host-port"] == ["10.0.0.2:8000"]


@pytest.mark.parametrize("policy", [None, POLICY])
def test_the_prompt_is_the_prefillers_load_until_the_first_token(policy: DecisionPolicy | None) -> None:
    bench = Pair(policy=policy)
    request = ask(bench, stream=True)
    there, here = bench.prefill.facts, bench.decode.facts
    prompt = there[Fact.PROMPT_TOKENS]
    assert prompt > WORDS
    assert there[Fact.OWN_WAITING_TOKENS] == prompt
    assert there[Fact.OUTPUT_TOKENS] == 0.0
    assert there[Fact.PREFILL_SECONDS] == pytest.approx(float(ENGINE.prefill_seconds(prompt)))
    assert (here[Fact.OWN], here[Fact.OWN_WAITING_TOKENS]) == (1.0, 1.0)
    assert here[Fact.PREFILL_SECONDS] == pytest.approx(float(ENGINE.prefill_seconds(1.0)))
    bench.director.progressed(request.ctx, 100.4)
    assert (there[Fact.OWN], there[Fact.PROMPT_TOKENS], here[Fact.OWN]) == (0.0, 0.0, 1.0)
    bench.director.done(request.ctx, done())
    assert (there[Fact.OWN], here[Fact.OWN], bench.director.inflight) == (0.0, 0.0, 0)


def test_of_an_answer_that_comes_whole_the_prefill_ends_when_it_is_due() -> None:
    bench = Pair(policy=POLICY)
    request = ask(bench)
    part = request.ctx.prefill
    assert part.state.facts[Fact.OWN] == 1.0
    part.state.inflight.expire(part.dispatch.first_token_due_s + 1e-6)
    assert part.state.facts[Fact.OWN] == 0.0
    assert bench.decode.facts[Fact.OWN] == 1.0
    bench.director.done(request.ctx, done())
    assert part.state.facts[Fact.OWN] == 0.0


def test_a_client_that_leaves_frees_both() -> None:
    bench = Pair(policy=POLICY)
    request = ask(bench, stream=True)
    bench.director.done(request.ctx, done(None, Cause.DISCONNECTED))
    assert bench.prefill.facts[Fact.OWN] == bench.decode.facts[Fact.OWN] == 0.0


def test_a_failure_is_half_of_either() -> None:
    bench = Pair()
    request = ask(bench, stream=True)
    bench.director.done(request.ctx, done(500))
    rates = [bench.director._pipeline.memory.failure_rate(key, 101.0) for key in ("ns/a", "ns/b")]
    assert rates[0] == rates[1] > 0.05


def test_what_the_record_says_is_of_the_whole_request_and_models_learn_nothing_of_it() -> None:
    bench = Pair(policy=POLICY, learning=True)
    request = ask(bench, stream=True)
    assert request.ctx.features is None
    bench.director.done(request.ctx, done())
    (finished,) = bench.finished
    assert (finished.endpoint, finished.features) == ("ns/a", None)
    assert finished.believed_cached_tokens == 0.0
    assert finished.expected is not None
    assert finished.expected.energy_joules > float(ENGINE.prefill_joules(float(finished.believed_prompt_tokens)))
    assert bench.count("heliotrope_phase_placements_total", placement="disaggregated") == 1.0
