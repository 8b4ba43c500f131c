"""What the picker believes of an emulated engine's cache, told over real ZeroMQ."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from heliotrope.engine import profiles
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.kv_event_wire import Event
from heliotrope_epp.datalayer.kv_events import KvEventSettings, KvEventSubscriber
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.producers.precise_prefix_cache import (
    PrecisePrefixCacheParameters,
    PrecisePrefixCacheProducer,
)
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.emulator.kv_config import KvEventsConfig
from heliotrope_sim.emulator.kv_event_publisher import KvEventPublisher

EVENTS = {"endpoint": "tcp://127.0.0.1:0", "replay_endpoint": "tcp://127.0.0.1:0", "topic": "kv@a@m"}
PROFILE = "llama-3.1-70b-h100-tp4"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loading all authorities takes longer than most tests
STATE = EndpointState(Endpoint("a", "ns", "127.0.0.1", 8000))


def port_of(address: str | None) -> int:
    assert address is not None
    return int(address.rpartition(":")[2])


def asked(tokens: list[int], salt: str = "") -> LlmRequest:
    return LlmRequest(
        request_id="r",
        path="/v1/completions",
        model="m",
        prompt=np.array(tokens, dtype="<u4").tobytes(),
        prompt_tokens=len(tokens),
        max_output_tokens=1,
        expected_output_tokens=1.0,
        streaming=False,
        cache_salt=salt,
        token_ids=True,
    )


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


Serve = Callable[[], Awaitable[tuple[ServedEngine, httpx.AsyncClient]]]


@pytest.fixture
def serve(stack: AsyncExitStack) -> Serve:
    async def start() -> tuple[ServedEngine, httpx.AsyncClient]:
        model = replace(profiles.load(PROFILE), kv_capacity_tokens=4096, block_size=16, max_num_seqs=8)
        config = EngineConfig.model_validate({"name": "a", "profile": PROFILE, "time_scale": 50, "kv_events": EVENTS})
        emulator = Emulator(EmulatorConfig(engines=(config,)), models={"a": model})
        await stack.enter_async_context(emulator)
        engine = emulator.engines["a"]
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=engine.url, timeout=60, verify=NO_TLS))
        return engine, http

    return start


async def follow(
    stack: AsyncExitStack, events: Any, *, replay: bool = True
) -> tuple[KvEventSubscriber, PrecisePrefixCacheProducer]:
    producer = PrecisePrefixCacheProducer(PrecisePrefixCacheParameters(), lambda: 0.0)
    settings = KvEventSettings(
        port=port_of(events.endpoint), replay_port=port_of(events.replay_endpoint) if replay else None
    )
    subscriber = await stack.enter_async_context(KvEventSubscriber(settings, producer))
    subscriber.added(STATE)
    return subscriber, producer


async def ask(http: httpx.AsyncClient, prompt: list[int], **more: Any) -> None:
    answer = await http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1} | more)
    assert answer.status_code == 200, answer.text


async def connected(subscriber: KvEventSubscriber, http: httpx.AsyncClient) -> None:
    """Until a message has come through; a subscription takes a moment to reach the engine."""
    number = 0
    async with asyncio.timeout(10):
        while not subscriber.counts["messages"]:
            number += 1
            await ask(http, list(range(50_000 + 32 * number, 50_032 + 32 * number)))
            await asyncio.sleep(0.02)


async def test_beliefs_are_what_the_engine_has(stack: AsyncExitStack, serve: Serve) -> None:
    engine, http = await serve()
    subscriber, producer = await follow(stack, engine.driver.events)
    await connected(subscriber, http)
    prompt = list(range(100, 140))
    await ask(http, prompt)
    await ask(http, prompt, cache_salt="tenant")
    await until(lambda: producer.cached_tokens(asked(prompt, "tenant"), [STATE]) == [32.0])
    assert producer.cached_tokens(asked(prompt), [STATE]) == [32.0]
    assert producer.cached_tokens(asked([*prompt[:20], *range(20)]), [STATE]) == [16.0]
    assert producer.cached_tokens(asked(prompt, "other"), [STATE]) == [0.0]
    assert producer.cached_tokens(asked(prompt[1:]), [STATE]) == [0.0]


async def test_evicted_blocks_are_believed_no_more(stack: AsyncExitStack, serve: Serve) -> None:
    engine, http = await serve()
    subscriber, producer = await follow(stack, engine.driver.events)
    await connected(subscriber, http)
    first = list(range(1_600))
    await ask(http, first)
    await until(lambda: producer.cached_tokens(asked(first), [STATE]) == [1_600.0])
    for i in range(1, 4):  # memory holds 4,096 tokens
        await ask(http, [10_000 * i + j for j in range(1_600)])
    await until(lambda: producer.cached_tokens(asked(first), [STATE]) == [0.0])
    last = [30_000 + j for j in range(1_600)]
    await until(lambda: producer.cached_tokens(asked(last), [STATE]) == [1_600.0])
    assert sum(producer.engine_stats().blocks.values()) == len(engine.driver.engine.kv.content())


async def test_whoever_comes_late_asks_for_what_was_missed(stack: AsyncExitStack, serve: Serve) -> None:
    engine, http = await serve()
    early = list(range(320))
    await ask(http, early)
    subscriber, producer = await follow(stack, engine.driver.events)
    await connected(subscriber, http)
    await until(lambda: producer.cached_tokens(asked(early), [STATE]) == [320.0])
    assert subscriber.counts["replays"] == 1
    assert subscriber.counts["gaps"] == 0


async def test_without_replay_what_came_before_is_not_known(stack: AsyncExitStack, serve: Serve) -> None:
    engine, http = await serve()
    early = list(range(320))
    await ask(http, early)
    subscriber, producer = await follow(stack, engine.driver.events, replay=False)
    await connected(subscriber, http)
    # Blocks behind unknown ones cannot be placed.
    await ask(http, [*early, *range(90_000, 90_064)])
    await until(lambda: producer.engine_stats().orphans_total == 4)
    assert producer.cached_tokens(asked(early), [STATE]) == [0.0]


class Recorded:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.lost = 0

    def kv_events(self, endpoint: str, events: list[Event]) -> None:
        assert endpoint == "ns/a"
        self.batches.append(events)

    def kv_lost(self, endpoint: str) -> None:
        assert endpoint == "ns/a"
        self.lost += 1


def cleared(count: int = 1) -> bytes:
    return msgspec.msgpack.encode([1.0, [{"type": "AllBlocksCleared"}] * count, 0])


async def publisher(stack: AsyncExitStack, **settings: Any) -> KvEventPublisher:
    made = KvEventPublisher(KvEventsConfig.model_validate(EVENTS | settings))
    made.start()
    stack.push_async_callback(made.stop)
    return made


async def listening(stack: AsyncExitStack, to: KvEventPublisher, *, replay: bool) -> tuple[KvEventSubscriber, Recorded]:
    sink = Recorded()
    settings = KvEventSettings(
        port=port_of(to.endpoint),
        replay_port=port_of(to.replay_endpoint) if replay else None,
        replay_timeout_s=0.3,
        first_pause_s=0.01,
    )
    subscriber = await stack.enter_async_context(KvEventSubscriber(settings, sink))
    subscriber.added(STATE)
    return subscriber, sink


async def heard(to: KvEventPublisher, sink: Recorded) -> None:
    async with asyncio.timeout(10):
        while not sink.batches:
            to.publish(cleared())
            await asyncio.sleep(0.02)


def skip(to: KvEventPublisher, count: int) -> None:
    """Numbers that nobody hears of, and that cannot be replayed either."""
    for _ in range(count):
        next(to._sequence)


async def test_a_gap_that_nobody_fills_resets_the_endpoint(stack: AsyncExitStack) -> None:
    to = await publisher(stack)
    subscriber, sink = await listening(stack, to, replay=False)
    await heard(to, sink)
    skip(to, 3)
    before = len(sink.batches)
    to.publish(cleared(2))
    await until(lambda: len(sink.batches) > before)
    assert (sink.lost, subscriber.counts["gaps"], subscriber.counts["resets"]) == (1, 1, 1)
    assert len(sink.batches[-1]) == 2


async def test_a_replay_with_holes_is_no_replay(stack: AsyncExitStack) -> None:
    to = await publisher(stack)
    subscriber, sink = await listening(stack, to, replay=True)
    await heard(to, sink)
    skip(to, 2)
    before = len(sink.batches)
    to.publish(cleared())
    await until(lambda: len(sink.batches) > before)
    # One when it began to listen, one for the gap, one from the start.
    assert (sink.lost, subscriber.counts["replays"]) == (1, 3)


async def test_a_replay_that_does_not_come_is_given_up(stack: AsyncExitStack) -> None:
    to = await publisher(stack)
    silent = await publisher(stack)
    assert silent._replay is not None
    to.replay_endpoint = silent.endpoint  # a PUB socket that answers nobody
    subscriber, sink = await listening(stack, to, replay=True)
    await heard(to, sink)
    assert subscriber.counts["failed_replays"] == 1


@pytest.mark.parametrize("missed", [0, 1, -1, 40])
async def test_an_engine_that_starts_again_resets_the_endpoint(stack: AsyncExitStack, missed: int) -> None:
    """Whatever the first number is that is heard of it, the next of the old engine's above all."""
    to = await publisher(stack)
    subscriber, sink = await listening(stack, to, replay=False)
    await heard(to, sink)
    for _ in range(5):
        to.publish(cleared())
    expected = next(to._sequence)
    await until(lambda: sum(len(batch) for batch in sink.batches) >= 6)
    port = port_of(to.endpoint)
    await to.stop()
    again = await publisher(stack, endpoint=f"tcp://127.0.0.1:{port}".replace("127.0.0.1", "*"))
    before = len(sink.batches)
    async with asyncio.timeout(10):
        while len(sink.batches) == before:
            again._sequence = itertools.count(expected + missed)
            again.publish(cleared())
            await asyncio.sleep(0.02)
    assert (sink.lost, subscriber.counts["resets"]) == (1, 1)


async def test_nonsense_is_counted_and_passed_over(stack: AsyncExitStack) -> None:
    to = await publisher(stack)
    subscriber, sink = await listening(stack, to, replay=False)
    await heard(to, sink)
    before = len(sink.batches)
    for payload in (b"", b"\xc1", msgspec.msgpack.encode({"a": 1}), msgspec.msgpack.encode([1.0, [7]])):
        to.publish(payload)
    to.publish(cleared())
    await until(lambda: len(sink.batches) > before)
    assert subscriber.counts["refused"] == 4


async def test_other_topics_are_not_heard_and_removed_endpoints_are_left(stack: AsyncExitStack) -> None:
    to = await publisher(stack, topic="metrics@a")
    subscriber, sink = await listening(stack, to, replay=False)
    for _ in range(10):
        to.publish(cleared())
        await asyncio.sleep(0.02)
    assert not sink.batches
    subscriber.removed("ns/a")
    subscriber.removed("ns/a")
    assert subscriber.following() == 0
