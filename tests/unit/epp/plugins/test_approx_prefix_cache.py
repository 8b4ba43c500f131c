"""The prefix index against a model that keeps whole prompts, and the producer's parameters."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.epp.plugins.builders import request, state

from heliotrope_epp.datalayer.endpoint import EngineMetrics
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.producers.approx_prefix_cache import (
    ApproxPrefixCacheParameters,
    ApproxPrefixCacheProducer,
)
from heliotrope_epp.plugins.producers.block_hashes import block_hashes, chain_seed
from heliotrope_epp.plugins.producers.prefix_index import EndpointBlocks, PrefixIndex

BLOCK = 256
"""Bytes: 64 tokens."""


def producer(text: str = "{}") -> ApproxPrefixCacheProducer:
    return ApproxPrefixCacheProducer(ApproxPrefixCacheParameters.model_validate_json(text))


def blocks(*letters: str) -> bytes:
    return b"".join(letter.encode() * BLOCK for letter in letters)


def test_a_prompt_is_cached_where_it_was_sent() -> None:
    index, a, b = producer(), state("a"), state("b")
    index.routed(request(blocks("p", "q", "r", "s")), a)
    assert index.cached_tokens(request(blocks("p", "q", "r", "s")), [a, b]) == [256.0, 0.0]
    assert index.cached_tokens(request(blocks("p", "q", "x", "y")), [b, a]) == [0.0, 128.0]
    assert index.cached_tokens(request(blocks("x", "q", "r", "s")), [a, b]) == [0.0, 0.0]


def test_blocks_match_only_behind_the_same_blocks() -> None:
    index, a = producer(), state("a")
    index.routed(request(blocks("p", "q")), a)
    assert index.cached_tokens(request(blocks("q")), [a]) == [0.0]
    assert index.cached_tokens(request(blocks("q", "q")), [a]) == [0.0]


def test_a_short_last_block_matches_the_same_prompt_only() -> None:
    index, a = producer(), state("a")
    prompt = blocks("p") + b"tail"
    index.routed(request(prompt), a)
    assert index.cached_tokens(request(prompt), [a]) == [65.0]
    assert index.cached_tokens(request(blocks("p") + b"tale"), [a]) == pytest.approx([65 * 256 / 260])
    assert index.cached_tokens(request(b"short"), [a]) == [0.0]


def test_the_cached_share_of_the_bytes_is_applied_to_the_token_count() -> None:
    index, a = producer(), state("a")
    index.routed(request(blocks("p")), a)
    dense = request(blocks("p", "q"))
    dense = type(dense)(**{f: getattr(dense, f) for f in dense.__dataclass_fields__} | {"prompt_tokens": 400})
    assert index.cached_tokens(dense, [a]) == [200.0]


@pytest.mark.parametrize(("model", "salt"), [("other", ""), ("m", "tenant"), ("mtenant", "")])
def test_models_and_tenants_are_apart(model: str, salt: str) -> None:
    index, a = producer(), state("a")
    index.routed(request(blocks("p")), a)
    assert index.cached_tokens(request(blocks("p"), model=model, salt=salt), [a]) == [0.0]
    index.routed(request(blocks("p"), model=model, salt=salt), a)
    assert index.cached_tokens(request(blocks("p"), model=model, salt=salt), [a]) == [64.0]


def test_model_and_salt_do_not_run_into_each_other() -> None:
    assert chain_seed("ab", "c") != chain_seed("a", "bc")
    assert chain_seed("\ud800", "\udfff") != chain_seed("\udfff", "\ud800")


def test_forgotten_endpoints_cache_nothing() -> None:
    index, a, b = producer(), state("a"), state("b")
    for at in (a, b):
        index.routed(request(blocks("p")), at)
    index.forget("default/a")
    index.forget("default/never-seen")
    assert index.cached_tokens(request(blocks("p")), [a, b]) == [0.0, 64.0]
    assert index.stats().blocks == {"default/b": 1}


def test_an_empty_prompt_is_nowhere() -> None:
    index, a = producer(), state("a")
    index.routed(request(b""), a)
    assert index.cached_tokens(request(b""), [a, a]) == [0.0, 0.0]
    assert index.stats().blocks == {}


def test_a_request_that_waits_between_decision_and_route_is_indexed_as_itself() -> None:
    index, a = producer(), state("a")
    first, second = request(blocks("p")), request(blocks("q"))
    index.cached_tokens(first, [a])
    index.cached_tokens(second, [a])
    index.routed(first, a)
    assert index.cached_tokens(request(blocks("p")), [a]) == [64.0]
    assert index.cached_tokens(request(blocks("q")), [a]) == [0.0]


def test_capacity_is_a_hard_bound_and_evicts_the_ends_of_old_prompts_first() -> None:
    index, a = producer('{"lruCapacityPerServer": 10}'), state("a")
    old, new = blocks(*"abcdefgh"), blocks(*"ABCD")
    index.routed(request(old), a)
    index.routed(request(new), a)
    assert index.stats().blocks == {"default/a": 10}
    assert index.stats().evicted_total == 2
    assert index.cached_tokens(request(new), [a]) == [4 * 64.0]
    assert index.cached_tokens(request(old), [a]) == [6 * 64.0]


def test_a_prompt_longer_than_the_capacity_keeps_its_start() -> None:
    index, a = producer('{"lruCapacityPerServer": 3}'), state("a")
    index.routed(request(blocks(*"abcdef")), a)
    assert index.cached_tokens(request(blocks(*"abcdef")), [a]) == [3 * 64.0]


def test_auto_tune_takes_the_capacity_that_the_engine_reports() -> None:
    small = EngineMetrics(0.0, block_size=16, num_blocks=12)  # 192 tokens: 3 blocks of 64
    index, a = producer(), state("a", metrics=small)
    index.routed(request(blocks(*"abcdef")), a)
    assert index.stats().blocks == {"default/a": 3}
    fixed = producer('{"autoTune": false}')
    fixed.routed(request(blocks(*"abcdef")), a)
    assert fixed.stats().blocks == {"default/a": 6}


@pytest.mark.parametrize(
    ("text", "block_tokens", "max_blocks"),
    [
        ("{}", 64, 2048),
        ('{"blockSizeTokens": 128}', 128, 1024),
        ('{"blockSizeTokens": 5}', 64, 2048),
        ('{"blockSize": 128}', 128, 1024),
        ('{"blockSize": 128, "blockSizeTokens": 256}', 256, 512),
        ('{"maxPrefixTokensToMatch": 16384}', 64, 256),
        ('{"maxPrefixTokensToMatch": 0}', 64, 2048),
        ('{"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 7}', 64, 7),
        ('{"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0}', 64, None),
        ('{"maxPrefixTokensToMatch": 10}', 64, 0),
        ('{"blockSizeTokens": 0}', 64, 2048),
    ],
)
def test_parameters_as_llm_d_reads_them(text: str, block_tokens: int, max_blocks: int | None) -> None:
    parameters = ApproxPrefixCacheParameters.model_validate_json(text)
    assert (parameters.block_tokens, parameters.max_blocks) == (block_tokens, max_blocks)


@pytest.mark.parametrize(
    "text",
    [
        '{"autoTune": false, "blockSizeTokens": 0}',
        '{"blockSizeTokens": -1}',
        '{"lruCapacityPerServer": -1}',
        '{"maxPrefixTokensToMatch": -1}',
        '{"maxPrefixBlocksToMatch": -1}',
        '{"blockSizeTokens": 64.5}',
    ],
)
def test_parameters_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ApproxPrefixCacheParameters.model_validate_json(text)


def test_no_more_than_the_limit_is_hashed() -> None:
    assert len(block_hashes(b"x" * 1000, 100, 3, 0)) == 3
    assert len(block_hashes(b"x" * 1001, 100, None, 0)) == 11
    assert block_hashes(b"x" * 1000, 100, 0, 0) == []


class BruteForce:
    """Keeps the chains of each endpoint and forgets block by block, oldest first."""

    def __init__(self) -> None:
        self.last_used: dict[str, dict[tuple[int, ...], tuple[int, int]]] = {}
        self.clock = 0

    def add(self, chain: Sequence[int], endpoint: str, capacity: int) -> None:
        self.clock += 1
        used = self.last_used.setdefault(endpoint, {})
        kept = chain[:capacity]
        for i in range(len(kept)):
            # Within one prompt an earlier block is newer.
            used[tuple(kept[: i + 1])] = (self.clock, -i)
        surplus = len(used) - capacity
        if surplus > 0:
            for prefix in sorted(used, key=used.__getitem__)[: surplus + capacity // 16]:
                del used[prefix]

    def leading_run(self, chain: Sequence[int], endpoint: str) -> int:
        held = self.last_used.get(endpoint, {})
        run = 0
        while run < len(chain) and tuple(chain[: run + 1]) in held:
            run += 1
        return run


def chain_of(content: Sequence[int]) -> list[int]:
    """As the producer hashes: equal where the content up to there is equal."""
    return block_hashes(bytes(content), 1, None, 7)


contents = st.lists(st.integers(0, 2), max_size=12)
steps = st.lists(
    st.tuples(st.sampled_from("abc"), contents, st.integers(1, 40), st.booleans()), min_size=1, max_size=40
)


@settings(deadline=None, max_examples=60)
@given(steps, contents)
def test_the_index_answers_as_the_brute_force_model(
    script: list[tuple[str, list[int], int, bool]], probe: list[int]
) -> None:
    index, model = PrefixIndex(), BruteForce()
    for endpoint, content, capacity, forget in script:
        chain = chain_of(content)
        index.add(chain, endpoint, capacity)
        model.add(chain, endpoint, capacity)
        assert index.stats().blocks[endpoint] <= capacity
        if forget:
            index.forget(endpoint)
            model.last_used.pop(endpoint, None)
        for asked in (chain_of(probe), chain):
            expected = [model.leading_run(asked, e) for e in "abcd"]
            assert index.leading_runs(asked, "abcd") == expected


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(contents, st.integers(1, 40)), min_size=1, max_size=40))
def test_whoever_holds_a_block_holds_all_before_it(script: list[tuple[list[int], int]]) -> None:
    held = EndpointBlocks()
    chains = []
    for content, capacity in script:
        chain = chain_of(content)
        chains.append(chain)
        held.touch(chain, capacity)
    for chain in chains:
        run = held.leading_run(chain)
        assert all(held.leading_run([block]) == (i < run) for i, block in enumerate(chain))


def test_matching_takes_logarithmic_look_ups() -> None:
    held, chain = EndpointBlocks(), list(range(1 << 12))
    held.touch(chain[:1000], 1 << 12)
    looked_up = []

    class Counting(list[int]):
        def __getitem__(self, i):  # type: ignore[no-untyped-def]
            looked_up.append(i)
            return super().__getitem__(i)

    assert held.leading_run(Counting(chain)) == 1000
    assert len(looked_up) <= 14


def test_states_of_any_number_are_answered_in_order() -> None:
    index = producer()
    states: list[EndpointState] = [state(f"e{i}") for i in range(20)]
    for i, at in enumerate(states):
        index.routed(request(blocks(*"abcdefghijklmnopqrst"[: i + 1])), at)
    found = index.cached_tokens(request(blocks(*"abcdefghijklmnopqrst")), states)
    assert found == [64.0 * (i + 1) for i in range(20)]
