"""Token prompts matched against what engines tell; texts as the approximate producer does."""

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.epp.plugins.builders import request, state

from heliotrope.errors import InvalidInputError
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.kv_event_wire import Cleared, Removed, Stored
from heliotrope_epp.datalayer.kv_events import KvEventSettings
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.interface import BelievingProducer, LlmRequest
from heliotrope_epp.plugins.kv_labels import kv_event_ports
from heliotrope_epp.plugins.producers.approx_prefix_cache import ApproxPrefixCacheProducer
from heliotrope_epp.plugins.producers.precise_prefix_cache import (
    PrecisePrefixCacheParameters,
    PrecisePrefixCacheProducer,
)
from heliotrope_epp.telemetry.kv import KvCollector

A, B = state("a"), state("b")
KEY = "default/a"
TOKENS = tuple(range(100, 148))


def producer(text: str = "{}") -> PrecisePrefixCacheProducer:
    return PrecisePrefixCacheProducer(PrecisePrefixCacheParameters.model_validate_json(text), lambda: 0.0)


def asked(tokens: tuple[int, ...] = TOKENS, *, salt: str = "", model: str = "m") -> LlmRequest:
    prompt = np.array(tokens, dtype="<u4").tobytes()
    return replace(request(prompt, salt=salt, model=model), prompt_tokens=len(tokens), token_ids=True)


def stored(tokens: tuple[int, ...] = TOKENS, first: int = 1, parent: int | None = None, **more: object) -> Stored:
    hashes = tuple(range(first, first + len(tokens) // 16))
    event = Stored(hashes, parent, tokens, 16, "GPU", None, ())
    return replace(event, **more)  # type: ignore[arg-type]


def test_token_prompts_are_matched_block_by_block() -> None:
    index = producer()
    assert isinstance(index, BelievingProducer)
    index.kv_events(KEY, [stored(TOKENS[:32]), stored(TOKENS[32:], first=3, parent=2)])
    assert index.cached_tokens(asked(), [A, B]) == [48.0, 0.0]
    assert index.cached_tokens(asked((*TOKENS, 1, 2, 3)), [A]) == [48.0]
    assert index.cached_tokens(asked((*TOKENS[:20], *range(20))), [A]) == [16.0]
    assert index.cached_tokens(asked(TOKENS[:10]), [A]) == [0.0]
    index.kv_events(KEY, [Removed((3,), "GPU"), Removed((99,), None)])
    assert index.cached_tokens(asked(), [A]) == [32.0]
    index.kv_events(KEY, [Cleared()])
    assert index.cached_tokens(asked(), [A]) == [0.0]


def test_tenants_and_adapters_are_apart() -> None:
    index = producer()
    index.kv_events(KEY, [stored(extra_keys=(("tenant",), None, None))])
    index.kv_events(KEY, [stored(first=11, lora_name="poet", extra_keys=(("poet",), ("poet",), ("poet",)))])
    assert index.cached_tokens(asked(salt="tenant"), [A]) == [48.0]
    assert index.cached_tokens(asked(), [A]) == [0.0]
    assert index.cached_tokens(asked(model="poet"), [A]) == [48.0]
    assert index.cached_tokens(asked(model="poet", salt="tenant"), [A]) == [0.0]


def test_lower_tiers_tell_names_alone() -> None:
    index = producer()
    index.kv_events(KEY, [stored(), Stored((1, 2, 77), None, (), 0, "CPU", None, ())])
    index.kv_events(KEY, [Removed((1, 2, 3), "GPU")])
    found = index.beliefs(asked(), [A, B])
    assert found.cached_tokens.tolist() == [0.0, 0.0]
    assert found.offloaded_tokens.tolist() == [32.0, 0.0]
    assert index.engine_stats().orphans_total == 1


def test_events_that_cannot_be_placed_are_counted_and_left_out() -> None:
    index = producer()
    index.kv_events(KEY, [stored(parent=555), stored(block_size=24), stored(medium="TAPE")])
    index.kv_events(KEY, [stored(extra_keys=(("image", 3), None, None)), stored(extra_keys=(7, None, None))])
    assert index.engine_stats().orphans_total == 3
    assert index.ignored == {"block-size": 1, "medium": 1, "extra-keys": 2}
    assert index.cached_tokens(asked(), [A]) == [0.0]


def test_missed_events_leave_texts_believed_and_blocks_not() -> None:
    index = producer()
    text = request(b"p" * 256)
    index.routed(text, A)
    index.kv_events(KEY, [stored()])
    index.kv_lost(KEY)
    assert index.cached_tokens(asked(), [A]) == [0.0]
    assert index.cached_tokens(request(b"p" * 256), [A]) == [64.0]
    index.kv_events(KEY, [Cleared()])
    assert index.cached_tokens(request(b"p" * 256), [A]) == [0.0]


def test_false_claims_of_engines_are_learned_too() -> None:
    index = producer()
    index.kv_events(KEY, [stored()])
    for _ in range(40):
        sent = asked()
        index.routed(sent, A)
        index.answered(sent, 0, 48)
    assert index.cached_tokens(asked(), [A])[0] < 5.0
    fetched = asked()
    index.routed(fetched, A, fetched=True)
    index.answered(fetched, 48, 48)
    assert index.believer.own.learned_total == 40


def test_parameters_as_llm_d_writes_them() -> None:
    text = """{"tokenProcessorConfig": {"blockSize": 64, "hashSeed": "42"}, "speculativeIndexing": true,
        "speculativeTTL": "5s", "indexerConfig": {"kvBlockIndexConfig": {"enableMetrics": true}},
        "kvEventsConfig": {"topicFilter": "kv@", "concurrency": 8, "discoverPods": true, "engineType": "vllm",
                           "podDiscoveryConfig": {"podNamespace": "ns", "podLabelSelector": "a=b",
                                                  "socketPort": 5556, "replaySocketPort": 5559}}}"""
    parameters = PrecisePrefixCacheParameters.model_validate_json(text)
    assert parameters.events == KvEventSettings(port=5556, replay_port=5559, topic_filter="kv@")
    assert parameters.token_processor_config is not None
    assert parameters.token_processor_config.tokens == 64
    off = PrecisePrefixCacheParameters.model_validate_json('{"kvEventsConfig": {"discoverPods": false}}')
    assert off.events is None
    assert producer().events == KvEventSettings()


def configured(*plugins: str) -> list[object]:
    lines = "".join(f"\n  - type: {plugin}" for plugin in plugins)
    text = f"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:{lines}\n"
    return list(load(text, builtin_registry(), PluginContext()).scheduling.producers)


def test_a_declared_precise_producer_is_the_only_one() -> None:
    (only,) = configured("precise-prefix-cache-producer", "prefix-cache-scorer", "max-score-picker")
    assert isinstance(only, PrecisePrefixCacheProducer)
    (default,) = configured("prefix-cache-scorer", "max-score-picker")
    assert isinstance(default, ApproxPrefixCacheProducer)


def test_what_llm_d_has_beside_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="sessionManager"):
        configured("precise-prefix-cache-producer\n    parameters: {sessionManager: s}", "max-score-picker")


@pytest.mark.parametrize(
    ("labels", "ports"),
    [
        ({}, None),
        ({"heliotrope.io/kv-events-port": "6000"}, (6000, None)),
        ({"heliotrope.io/kv-events-port": "6000", "heliotrope.io/kv-replay-port": "6001"}, (6000, 6001)),
        ({"heliotrope.io/kv-events-port": "6000", "heliotrope.io/kv-replay-port": "70000"}, (6000, None)),
        ({"heliotrope.io/kv-events-port": "0"}, None),
        ({"heliotrope.io/kv-events-port": "-1"}, None),
    ],
)
def test_ports_of_labels(labels: dict[str, str], ports: tuple[int, int | None] | None) -> None:
    assert kv_event_ports(Endpoint("e", "default", "10.0.0.1", 8000, labels)) == ports


def test_metrics_of_what_engines_tell() -> None:
    index, registry = producer(), CollectorRegistry()
    registry.register(KvCollector([index]))
    index.kv_events(KEY, [stored(), stored(medium="TAPE")])
    assert registry.get_sample_value("heliotrope_kv_engine_blocks", {"endpoint": KEY}) == 3.0
    assert registry.get_sample_value("heliotrope_kv_ignored_events_total", {"reason": "medium"}) == 1.0
