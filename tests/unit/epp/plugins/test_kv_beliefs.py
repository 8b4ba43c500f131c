"""What the approximate index believes, learns from answers, and knows of lower tiers."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.unit.epp.plugins.builders import request, state

from heliotrope.cache.links import Place, Tier
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.plugins.interface import BelievingProducer, LlmRequest
from heliotrope_epp.plugins.kv_labels import offload_tier, offload_tokens, place_of, takes_part
from heliotrope_epp.plugins.options import Beliefs, Options, joined
from heliotrope_epp.plugins.producers import beliefs as beliefs_module
from heliotrope_epp.plugins.producers.approx_prefix_cache import (
    ApproxPrefixCacheParameters,
    ApproxPrefixCacheProducer,
)
from heliotrope_epp.telemetry.kv import KvCollector

BLOCK = 256


class Served:
    """A producer with a clock that the test turns."""

    def __init__(self, parameters: str = "{}") -> None:
        self.now_s = 1_000.0
        parsed = ApproxPrefixCacheParameters.model_validate_json(parameters)
        self.producer = ApproxPrefixCacheProducer(parsed, lambda: self.now_s)

    def turn(self, prompt: bytes, at: object, cached: int | None, *, fetched: bool = False) -> LlmRequest:
        sent = request(prompt)
        self.producer.routed(sent, at, fetched=fetched)  # type: ignore[arg-type]
        self.producer.answered(sent, cached, sent.prompt_tokens)
        return sent


def test_it_is_a_believing_producer() -> None:
    assert isinstance(Served().producer, BelievingProducer)


def test_evictions_are_learned_from_answers() -> None:
    served, a, b = Served(), state("a"), state("b")
    prompt = b"p" * BLOCK * 8
    served.turn(prompt, a, 0)
    assert served.producer.cached_tokens(request(prompt), [a, b]) == [512.0, 0.0]
    for _ in range(40):  # the engine evicts it each time, whatever the index says
        served.now_s += 30.0
        served.turn(prompt, a, 0)
    served.now_s += 30.0
    found = served.producer.beliefs(request(prompt), [a, b])
    assert found.cached_tokens[0] < 0.1 * 512.0
    assert found.deviation_tokens[0] > found.cached_tokens[0]
    assert (found.cached_tokens[1], found.deviation_tokens[1]) == (0.0, 0.0)
    # What was used a moment ago is another matter.
    served.now_s -= 29.5
    assert served.producer.cached_tokens(request(prompt), [a])[0] == 512.0


def test_token_counts_of_the_engine_are_compared_as_shares() -> None:
    served, a = Served(), state("a")
    prompt = b"p" * BLOCK * 4
    served.turn(prompt, a, 0)
    sent = request(prompt)  # 256 tokens as the picker counts, 300 as the engine does
    served.producer.routed(sent, a)
    served.producer.answered(sent, 300, 300)
    assert served.producer.believer.own.trust("default/a", 0.0).share == 1.0


@pytest.mark.parametrize(("cached", "prompt"), [(None, 100), (50, None), (-1, 100), (50, 0), (50, -3)])
def test_answers_that_say_nothing_teach_nothing(cached: int | None, prompt: int | None) -> None:
    served, a = Served(), state("a")
    served.turn(b"p" * BLOCK, a, 0)
    sent = request(b"p" * BLOCK)
    served.producer.routed(sent, a)
    served.producer.answered(sent, cached, prompt)
    served.producer.answered(sent, 0, 100)  # a second end of the same request
    assert served.producer.believer.own.learned_total == 0


def test_fetched_blocks_say_nothing_about_what_was_cached() -> None:
    served, a = Served(), state("a")
    served.turn(b"p" * BLOCK, a, 0)
    served.turn(b"p" * BLOCK, a, 64, fetched=True)
    assert served.producer.believer.own.learned_total == 0


def test_a_hit_that_nobody_expected_is_counted() -> None:
    served, a = Served(), state("a")
    served.turn(b"p" * BLOCK * 2, a, 64)
    assert served.producer.believer.unbelieved_total == 1


def test_open_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beliefs_module, "MAX_OPEN", 2)
    served, a = Served(), state("a")
    kept = [request(b"p" * BLOCK) for _ in range(3)]
    for sent in kept:
        served.producer.routed(sent, a)
    assert served.producer.believer.dropped_total == 1
    for sent in kept:
        served.producer.answered(sent, 0, 64)
    served.producer.routed(kept[0], a)
    assert served.producer.believer.dropped_total == 1


def counting(queries: float | None, hits: float | None) -> EngineMetrics:
    return EngineMetrics(0.0, prefix_cache_queries_total=queries, prefix_cache_hits_total=hits)


def test_counters_are_learned_from_where_answers_say_nothing() -> None:
    served = Served()
    prompt = b"p" * BLOCK * 16  # 1,024 tokens
    queries = 0.0
    for _ in range(400):  # a quarter of what is believed is there
        at = state("a", metrics=counting(queries, queries / 4.0))
        served.turn(prompt, at, None)
        queries += 1_024.0
    assert served.producer.believer.counted_total > 10
    assert served.producer.cached_tokens(request(prompt), [state("a")])[0] == pytest.approx(256.0, rel=0.25)


def test_counters_of_others_requests_teach_nothing() -> None:
    served = Served()
    prompt = b"p" * BLOCK * 16
    for i in range(400):  # most look-ups come from elsewhere
        served.turn(prompt, state("a", metrics=counting(10_000.0 * i, 0.0)), None)
    assert served.producer.believer.counted_total == 0
    assert served.producer.cached_tokens(request(prompt), [state("a")])[0] == 1_024.0


def test_answers_that_tell_are_preferred_to_counters_and_restarts_begin_anew() -> None:
    served = Served()
    prompt = b"p" * BLOCK * 16
    for i in range(60):
        served.turn(prompt, state("a", metrics=counting(1_024.0 * i, 0.0)), 1_024)
        served.turn(prompt, state("b", metrics=counting(1_024.0 * (i % 10), 0.0)), None)
        served.turn(prompt, state("c", metrics=counting(None if i % 2 else 1_024.0 * i, 0.0)), None)
    assert served.producer.believer.counted_total == 0
    assert served.producer.cached_tokens(request(prompt), [state("a")])[0] == 1_024.0


OFFLOADING = {"heliotrope.io/kv-offload": "cpu", "heliotrope.io/kv-offload-tokens": "640"}


def test_what_is_evicted_lies_in_the_lower_tier() -> None:
    served = Served('{"lruCapacityPerServer": 4}')
    plain, offloads = state("plain"), state("offloads", labels=OFFLOADING)
    old, new = b"o" * BLOCK * 4, b"n" * BLOCK * 4
    for at in (plain, offloads):
        served.turn(old, at, None)
        served.turn(new, at, None)
    found = served.producer.beliefs(request(old), [plain, offloads])
    assert found.cached_tokens.tolist() == [0.0, 0.0]
    assert found.offloaded_tokens.tolist() == [0.0, 256.0]
    found = served.producer.beliefs(request(new), [plain, offloads])
    assert found.cached_tokens.tolist() == found.offloaded_tokens.tolist() == [256.0, 256.0]
    assert served.producer.stats().lower_blocks == 8
    served.producer.forget("default/offloads")
    assert served.producer.stats().lower_blocks == 0


def test_a_lower_tier_that_keeps_nothing_is_trusted_no_more() -> None:
    served = Served('{"lruCapacityPerServer": 4}')
    at = state("offloads", labels=OFFLOADING)
    old, new = b"o" * BLOCK * 4, b"n" * BLOCK * 4
    for _ in range(40):
        served.turn(old, at, 0)
        served.turn(new, at, 0)
    found = served.producer.beliefs(request(old), [at])
    assert found.offloaded_tokens[0] < 32.0
    assert found.lower_deviation_tokens[0] > 0.0
    assert served.producer.believer.lower.false_claims_total > 70


def test_the_highest_belief_of_several_producers_counts() -> None:
    one = Beliefs(*(Options.of([]).cached_tokens.__class__((2,)) for _ in range(3)))
    one.cached_tokens[:], one.deviation_tokens[:], one.offloaded_tokens[:] = [10.0, 1.0], [3.0, 4.0], [10.0, 50.0]
    both = joined([one, [5.0, 20.0]])
    assert isinstance(both, Beliefs)
    assert both.cached_tokens.tolist() == [10.0, 20.0]
    assert both.deviation_tokens.tolist() == [3.0, 0.0]
    assert both.offloaded_tokens.tolist() == [10.0, 50.0]
    assert both.lower_deviation_tokens.tolist() == [3.0, 4.0], "of whoever believes most, from its own memory if unsaid"
    assert joined([one]) is one


def test_beliefs_stay_with_their_endpoints_when_filters_take_some_away() -> None:
    served = Served('{"lruCapacityPerServer": 4}')
    states = [state("x"), state("y", labels=OFFLOADING), state("z")]
    for prompt in (b"o" * BLOCK * 4, b"n" * BLOCK * 4):
        served.turn(prompt, states[1], None)
    found = served.producer.beliefs(request(b"o" * BLOCK * 4), states)
    options = Options.at(states, found, 100.0, 2.0)
    kept = options.kept([1, 2])
    assert kept.offloaded_tokens is not None
    assert kept.offloaded_tokens.tolist() == [256.0, 0.0]
    assert kept.cached_deviation_tokens is not None
    assert len(kept.cached_deviation_tokens) == 2
    assert kept.offloaded_deviation_tokens is not None
    assert len(kept.offloaded_deviation_tokens) == 2


@pytest.mark.parametrize(
    ("labels", "tier", "tokens"),
    [
        ({}, None, 0),
        ({"heliotrope.io/kv-offload": "cpu"}, Tier.CPU, 0),
        ({"heliotrope.io/kv-offload": "disk", "heliotrope.io/kv-offload-tokens": "5000"}, Tier.DISK, 5000),
        ({"heliotrope.io/kv-offload": "gpu", "heliotrope.io/kv-offload-tokens": "5000"}, None, 0),
        ({"heliotrope.io/kv-offload": "tape", "heliotrope.io/kv-offload-tokens": "5000"}, None, 0),
        ({"heliotrope.io/kv-offload": "cpu", "heliotrope.io/kv-offload-tokens": "many"}, Tier.CPU, 0),
        ({"heliotrope.io/kv-offload": "cpu", "heliotrope.io/kv-offload-tokens": "-5"}, Tier.CPU, 0),
        ({"heliotrope.io/kv-offload": "cpu", "heliotrope.io/kv-offload-tokens": "9" * 30}, Tier.CPU, 10**9),
    ],
)
def test_labels_of_lower_tiers(labels: dict[str, str], tier: Tier | None, tokens: int) -> None:
    endpoint = Endpoint("e", "default", "10.0.0.1", 8000, labels)
    assert (offload_tier(endpoint), offload_tokens(endpoint)) == (tier, tokens)


def test_labels_of_places() -> None:
    endpoint = Endpoint("e", "default", "10.0.0.1", 8000, {"heliotrope.io/kv-transfer": "p2p"}, node_address="10.1.1.1")
    assert takes_part(endpoint)
    assert not takes_part(replace(endpoint, labels={"heliotrope.io/kv-transfer": "nfs"}))
    assert place_of(endpoint, Traits(region="r")) == Place("10.1.1.1", None, "r")
    named = replace(endpoint, labels={"kubernetes.io/hostname": "n1", "heliotrope.io/rack": "k1"})
    assert place_of(named, Traits()) == Place("n1", "k1", None)


def test_metrics_tell_how_far_the_index_is_right() -> None:
    served, a = Served(), state("a")
    registry = CollectorRegistry()
    registry.register(KvCollector([served.producer]))
    for cached in (0, 64, 0, 0):
        served.turn(b"p" * BLOCK, a, cached)
    value = registry.get_sample_value
    assert value("heliotrope_kv_beliefs_checked_total", {"tier": "own"}) == 3.0
    assert value("heliotrope_kv_false_claims_total", {"tier": "own"}) == 2.0
    assert value("heliotrope_kv_believed_tokens_total", {"tier": "own"}) == 192.0
    assert value("heliotrope_kv_true_tokens_total", {"tier": "own"}) == 64.0
    assert value("heliotrope_kv_cache_trust", {"tier": "own", "age": "+Inf"}) == 1.0
    young = value("heliotrope_kv_cache_trust", {"tier": "own", "age": "1"})
    assert young is not None
    assert young < 0.7
    assert value("heliotrope_prefix_index_blocks", {"endpoint": "default/a"}) == 1.0
    assert value("heliotrope_kv_unbelieved_total") == 0.0


script = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([b"p", b"q", b"pq"]), st.integers(0, 400), st.floats(0.0, 2e4)),
    max_size=30,
)


@settings(deadline=None, max_examples=50)
@given(script)
def test_expected_tokens_are_never_more_than_the_index_says(steps: list[tuple[str, bytes, int, float]]) -> None:
    served, plain = Served(), Served()
    states = {"a": state("a", labels=OFFLOADING), "b": state("b")}
    for name, letters, cached, pause_s in steps:
        for each, answer in ((served, cached), (plain, None)):
            each.now_s += pause_s
            each.turn(b"".join(bytes([c]) * BLOCK for c in letters), states[name], answer)
        asked = request(b"p" * BLOCK + b"q" * BLOCK)
        learned = served.producer.beliefs(asked, list(states.values()))
        said = plain.producer.beliefs(asked, list(states.values()))
        assert (learned.cached_tokens <= said.cached_tokens + 1e-9).all()
        assert (learned.offloaded_tokens >= learned.cached_tokens).all()
        assert (learned.offloaded_tokens <= said.offloaded_tokens + 1e-9).all()
        assert (learned.deviation_tokens >= 0.0).all()
        assert (learned.deviation_tokens <= 0.75 * said.cached_tokens).all()
