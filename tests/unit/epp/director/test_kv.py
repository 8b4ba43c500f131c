"""KV actions from the decision to the engine's header, and what answers teach the index."""

import json
from dataclasses import replace
from itertools import pairwise

from tests.unit.epp.director.test_director import ENGINE, Bench, Gateway, chat, report

from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics
from heliotrope_epp.director.plan import KV_SOURCE_HEADER

POLICY = DecisionPolicy("ns/p", ttft_slo_seconds=5.0, tpot_slo_seconds=0.5)
P2P = {"heliotrope.io/kv-transfer": "p2p", "heliotrope.io/rack": "k1"}


def long_chat() -> bytes:
    return chat(messages=[{"role": "user", "content": "tell me more " * 4_000}])


def usage(cached: int, prompt: int = 13_001) -> bytes:
    tokens = {"prompt_tokens": prompt, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": cached}}
    return json.dumps({"usage": tokens}).encode()


def bench(policy: DecisionPolicy) -> Bench:
    """`ns/a` is dirty and has the prompt; `ns/b` is clean and pulls."""
    made = Bench(policy=policy)
    made.endpoints = tuple(replace(endpoint, labels=P2P) for endpoint in made.endpoints)
    made.apply()
    return made


def teach_a(made: Bench) -> None:
    """The first turn goes to `ns/a`, while it is the cleaner one."""
    made.apply((20.0, 300.0))
    first = Gateway(body=long_chat())
    made.director.decide(first)
    assert first.routed_to == "10.0.0.1:8000"
    assert KV_SOURCE_HEADER not in dict(first.sent)
    made.director.done(first.ctx, report(tail=usage(0)))
    made.apply((300.0, 20.0))


def test_the_engine_is_told_where_to_pull_from() -> None:
    made = bench(POLICY)
    teach_a(made)
    second = Gateway(body=long_chat())
    made.director.decide(second)
    # Regions differ, so the link is the slow one between regions: nothing is pulled over it.
    assert second.routed_to == "10.0.0.2:8000"
    assert KV_SOURCE_HEADER not in dict(second.sent)
    made.director.done(second.ctx, report(tail=usage(0)))


def one_region(made: Bench) -> None:
    """Both in one rack, with `ns/a` so busy that its queue breaks the promise."""
    traits = made.store.world.traits
    world = replace(made.store.world, traits={key: replace(of, region="clean") for key, of in traits.items()})
    made.store.apply(world)
    busy = EngineMetrics(
        made.now_s, running=64.0, waiting=200.0, kv_usage=0.9, block_size=16, num_blocks=ENGINE.kv_capacity_tokens // 16
    )
    made.store.states()[0].scraped(busy)
    made.store.states()[1].scraped(replace(busy, running=1.0, waiting=0.0, kv_usage=0.1))


def test_a_pull_within_a_rack_is_sent_with_its_source_and_counted_as_cached() -> None:
    made = bench(POLICY)
    teach_a(made)
    one_region(made)
    second = Gateway(body=long_chat())
    made.director.decide(second)
    assert second.routed_to == "10.0.0.2:8000"
    assert dict(second.sent)[KV_SOURCE_HEADER] == "10.0.0.1:8000"
    assert second.ctx.dispatch.uncached_tokens < 100.0
    (recorded,) = made.log.newest(1)
    chosen = next(c for c in recorded["carbon_decision"]["candidates"] if c["chosen"])
    assert (chosen["kv_action"], chosen["kv_source"]) == ("PeerTransfer", "ns/a")
    labels = {"action": "PeerTransfer", "region": "clean"}
    assert made.registry.get_sample_value("heliotrope_kv_actions_total", labels) == 1.0
    # The engine reports the pulled tokens as cached, which says nothing about what it had cached itself.
    made.director.done(second.ctx, report(tail=usage(13_000)))
    assert made.director._pipeline.producers[0].believer.own.learned_total == 0  # type: ignore[attr-defined]


def test_under_advise_nothing_is_pulled() -> None:
    made = bench(replace(POLICY, enforce=False))
    made.apply()
    first = Gateway(body=long_chat())
    made.director.decide(first)
    made.director.done(first.ctx, report(tail=usage(0)))
    one_region(made)
    for _ in range(8):
        again = Gateway(body=long_chat())
        made.director.decide(again)
        assert KV_SOURCE_HEADER not in dict(again.sent)
        made.director.done(again.ctx, report(tail=usage(0)))


def test_an_endpoint_that_keeps_its_blocks_now_and_then_is_promised_less() -> None:
    made = bench(POLICY)
    teach_a(made)
    made.apply((20.0, 300.0))
    spreads: list[float] = []
    for turn in range(40):
        again = Gateway(body=long_chat(), given={"x-request-id": f"r-{turn}"})
        made.director.decide(again)
        assert again.routed_to == "10.0.0.1:8000"
        candidates = (made.log.get(f"r-{turn}") or {})["carbon_decision"]["candidates"]
        (chosen,) = [each for each in candidates if each["chosen"]]
        spreads.append(chosen["ttft_relative_error"] * chosen["ttft_seconds"])
        made.director.done(again.ctx, report(tail=usage(13_000 * (turn % 2))))
    assert max(spreads[:1]) < 0.1 * max(spreads[20:]), "half of the time all of it is computed again"
    whole = float(ENGINE.prefill_seconds(13_001.0))
    assert all(POLICY.certainty * spread < 1.2 * whole for spread in spreads)


def test_claims_that_prove_false_are_priced_as_what_they_are() -> None:
    made = bench(POLICY)
    teach_a(made)
    made.apply((20.0, 300.0))
    believed = []
    for _ in range(40):
        again = Gateway(body=long_chat())
        made.director.decide(again)
        assert again.routed_to == "10.0.0.1:8000"
        believed.append(again.ctx.dispatch.prompt_tokens - again.ctx.dispatch.uncached_tokens)
        made.director.done(again.ctx, report(tail=usage(0)))  # the engine has evicted it each time
    assert believed[0] > 12_000.0
    assert believed[-1] < 1_500.0
    assert all(later <= earlier for earlier, later in pairwise(believed))


def test_a_source_that_is_gone_is_not_named() -> None:
    made = bench(POLICY)
    teach_a(made)
    one_region(made)
    gone = replace(made.store.world, endpoints=made.store.world.endpoints[1:])
    made.store.apply(gone)
    second = Gateway(body=long_chat())
    made.director.decide(second)
    assert second.routed_to == "10.0.0.2:8000"
    assert KV_SOURCE_HEADER not in dict(second.sent)


def test_endpoints_without_the_label_take_no_part() -> None:
    made = bench(POLICY)
    made.endpoints = tuple(Endpoint(e.name, e.namespace, e.address, e.port) for e in made.endpoints)
    made.apply()
    teach_a(made)
    one_region(made)
    second = Gateway(body=long_chat())
    made.director.decide(second)
    assert KV_SOURCE_HEADER not in dict(second.sent)
