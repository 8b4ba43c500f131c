"""Images in prompts: what encoding them takes, what a cached embedding spares, and that no joule is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine import (
    Encoder,
    EncoderCosts,
    Engine,
    ExternalKv,
    ImageInput,
    Phase,
    Request,
    SleepLevel,
    Status,
    StepResult,
)
from heliotrope_sim.engine.encoder import EncoderCache

MS = 1_000_000
COSTS = EncoderCosts(0.004, 0.001, 2e-5, 1_000_001, 300, 7)


def engine_with_encoder(model: EngineModel, cache_tokens: int = 100) -> Engine:
    return Engine(model, encoder=Encoder(COSTS, cache_tokens))


def run(engine: Engine, now: int = 0) -> list[StepResult]:
    results: list[StepResult] = []
    while True:
        result = engine.step(now)
        if result is not None:
            results.append(result)
            now = result.end_ns
        elif engine.next_work_ns is None:
            return results
        else:
            now = max(engine.next_work_ns, engine.energy.settled_ns)


def test_images_are_encoded_before_the_prompt_is_prefilled(model: EngineModel) -> None:
    engine = engine_with_encoder(model)
    images = (ImageInput("a", 6, 8), ImageInput("b", 4, 14))
    s = engine.submit(Request("r", 16, 1, images=images), now_ns=0)
    encode, prefill = run(engine)
    assert (encode.phase, encode.tokens, encode.participants, encode.emitted) == (Phase.ENCODE, 10, 1, ())
    assert encode.duration_ns == 4 * MS + 2 * MS + 10 * 20_000
    assert encode.picojoules == 1_000_001 + 2 * 300 + 10 * 7
    assert (prefill.phase, prefill.start_ns, prefill.tokens) == (Phase.PREFILL, encode.end_ns, 16)
    assert s.picojoules == encode.picojoules + prefill.picojoules
    assert s.first_token_ns == prefill.end_ns


def test_the_same_image_is_encoded_once(model: EngineModel) -> None:
    engine = engine_with_encoder(model)
    image = (ImageInput("a", 6, 8),)
    first = engine.submit(Request("first", 10, 1, images=image), now_ns=0)
    second = engine.submit(Request("second", 10, 1, images=image), now_ns=0)
    results = run(engine)
    assert [(r.phase, r.tokens) for r in results] == [(Phase.ENCODE, 6), (Phase.PREFILL, 20)]
    assert first.picojoules > second.picojoules
    assert engine.encoder is not None
    engine.submit(Request("third", 10, 1, images=image), now_ns=results[-1].end_ns)
    assert [r.phase for r in run(engine, results[-1].end_ns)] == [Phase.PREFILL]
    assert (engine.encoder.encoded_images, engine.encoder.cache.queries, engine.encoder.cache.hits) == (1, 3, 1)
    twice = engine.submit(Request("twice", 20, 1, images=(ImageInput("b", 4, 6), ImageInput("b", 4, 12))), 10**13)
    assert run(engine, 10**13)[0].tokens == 4
    assert (twice.status, engine.encoder.cache.hits) == (Status.FINISHED, 2)


def test_an_image_whose_kv_is_here_needs_no_embedding(model: EngineModel) -> None:
    engine = engine_with_encoder(model, cache_tokens=0)
    images = (ImageInput("a", 6, 8), ImageInput("b", 4, 14))
    engine.submit(Request("r", 16, 1, (1, 2, 3, 4), images=images), now_ns=0)
    end = run(engine)[-1].end_ns
    again = engine.submit(Request("again", 16, 1, (1, 2, 3, 4), images=images), now_ns=end)
    results = run(engine, end)
    # Twelve tokens are cached: all of the first image, a part of the second.
    assert (again.cached_tokens, results[0].phase, results[0].tokens) == (12, Phase.ENCODE, 4)
    remote = engine.submit(Request("remote", 16, 1, (), ExternalKv(16, 0, 0), images=images), results[-1].end_ns)
    assert [r.phase for r in run(engine, results[-1].end_ns)] == [Phase.DECODE]
    assert remote.status is Status.FINISHED


def test_embeddings_of_an_encoder_are_loaded_beside_the_steps(model: EngineModel) -> None:
    engine = engine_with_encoder(model)
    images = (ImageInput("a", 6, 8, 30 * MS, 50), ImageInput("b", 4, 14, 20 * MS, 40))
    s = engine.submit(Request("r", 16, 1, images=images), now_ns=0)
    assert engine.step(0) is None
    assert (s.status, engine.next_work_ns, s.load_picojoules) == (Status.LOADING, 50 * MS, 90)
    (prefill,) = run(engine, 50 * MS)
    assert (prefill.phase, prefill.start_ns, prefill.tokens) == (Phase.PREFILL, 50 * MS, 16)
    assert engine.transfers.picojoules(50 * MS) == 90
    assert engine.encoder is not None
    assert "a" in engine.encoder.cache
    assert engine.encoder.loaded_images == 2


def test_kv_and_embeddings_are_loaded_at_the_same_time(model: EngineModel) -> None:
    engine = engine_with_encoder(model)
    s = engine.submit(
        Request("r", 16, 1, (), ExternalKv(8, 10 * MS, 5), images=(ImageInput("b", 4, 14, 20 * MS, 40),)), now_ns=0
    )
    (prefill,) = run(engine)
    assert (prefill.start_ns, prefill.tokens, s.load_picojoules, s.external_tokens) == (20 * MS, 8, 45, 8)


def test_an_encoder_has_no_kv_and_is_done_when_it_has_encoded(model: EngineModel) -> None:
    engine = engine_with_encoder(model)
    big = model.kv_capacity_tokens - 1
    s = engine.submit(Request("r", big, 1, images=(ImageInput("a", big, big),), encode_only=True), now_ns=0)
    result = engine.step(0)
    assert result is not None
    assert (result.phase, result.finished, engine.kv.used_blocks) == (Phase.ENCODE, (s,), 0)
    again = engine.submit(
        Request("again", big, 1, images=(ImageInput("a", big, big),), encode_only=True), now_ns=result.end_ns
    )
    # Too large to be remembered.
    assert [r.finished for r in run(engine, result.end_ns)] == [(again,)]
    small = ImageInput("b", 5, 5)
    for now in (10**12, 10**13):
        engine.submit(Request(str(now), 5, 1, images=(small,), encode_only=True), now_ns=now)
        results = run(engine, now)
    assert results[-1].duration_ns == results[-1].picojoules == 0


def test_steps_of_an_encoder_hold_no_more_than_a_prefill_step_but_one_image_always(model: EngineModel) -> None:
    engine = engine_with_encoder(model)
    images = tuple(ImageInput(str(i), n, 60) for i, n in enumerate((20, 10, 8, 40)))
    engine.submit(Request("r", 60, 1, images=images), now_ns=0)
    assert [r.tokens for r in run(engine) if r.phase is Phase.ENCODE] == [30, 8, 40]


def test_an_aborted_request_leaves_the_encoder(model: EngineModel) -> None:
    engine = engine_with_encoder(model)
    s = engine.submit(Request("r", 16, 1, images=(ImageInput("a", 6, 8),)), now_ns=0)
    result = engine.step(0)
    assert result is not None
    assert engine.abort("r", 1) is s
    assert run(engine, result.end_ns) == []
    assert engine.energy.busy_picojoules == s.picojoules
    engine.sleep(SleepLevel.WEIGHTS_OFFLOADED, result.end_ns)
    assert engine.encoder is not None
    assert len(engine.encoder.cache) == engine.encoder.cache.used_tokens == 0


def test_an_engine_without_an_encoder_takes_no_images(model: EngineModel) -> None:
    with pytest.raises(InvalidInputError, match="no encoder"):
        Engine(model).submit(Request("r", 16, 1, images=(ImageInput("a", 6, 8),)), now_ns=0)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 12)), max_size=60), st.integers(0, 30))
def test_the_cache_never_holds_more_than_it_may(uses: list[tuple[int, int]], capacity: int) -> None:
    cache = EncoderCache(capacity)
    for name, tokens in uses:
        if not cache.look_up(str(name)):
            cache.remember(str(name), tokens)
            assert (str(name) in cache) == (tokens <= capacity)
        assert cache.used_tokens <= capacity
    assert cache.queries == len(uses)


def test_the_least_recently_used_image_goes_first() -> None:
    cache = EncoderCache(10)
    for name in "ab":
        cache.remember(name, 5)
    assert cache.tokens_of("a") == 5
    assert cache.tokens_of("z") is None
    cache.remember("c", 3)
    assert ("a" in cache, "b" in cache, "c" in cache, cache.evictions) == (True, False, True, 1)


@given(
    requests=st.lists(
        st.tuples(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=4)),
        max_size=12,
    ),
    cache_tokens=st.integers(0, 20),
)
def test_no_joule_is_lost(
    model: EngineModel, requests: list[tuple[int, list[tuple[int, int]]]], cache_tokens: int
) -> None:
    engine = engine_with_encoder(model, cache_tokens)
    sequences = []
    for index, (prompt, images) in enumerate(requests):
        placed = tuple(ImageInput(str(name), n, min(prompt, n + 3)) for name, n in images)
        sequences.append(engine.submit(Request(str(index), prompt, 2, images=placed), now_ns=index))
    results = run(engine)
    assert all(s.status is Status.FINISHED for s in sequences)
    assert sum(s.picojoules for s in sequences) == sum(r.picojoules for r in results) == engine.energy.busy_picojoules
