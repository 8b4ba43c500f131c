"""KV events over real ZeroMQ: a consumer knows what is cached, also when it came late; tiers and metrics agree."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import zmq
import zmq.asyncio
from prometheus_client.parser import text_string_to_metric_families

from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator import ServedEngine
from heliotrope_sim.emulator.blocks import BlockChain
from heliotrope_sim.engine import Medium

Serve = Callable[..., Awaitable[ServedEngine]]
Connect = Callable[[str], httpx.AsyncClient]

EVENTS = {"endpoint": "tcp://127.0.0.1:0", "replay_endpoint": "tcp://127.0.0.1:0", "topic": "kv@a@m"}
END = (-1).to_bytes(8, "big", signed=True)
EVERYTHING = 4095
"""Tokens of a prompt that takes all memory together with one token of an answer."""
NOTHING = np.array([], dtype="<u4")


class Consumer:
    """A subscriber as llm-d has one: it follows the numbers, and asks for what it missed."""

    def __init__(self, engine: ServedEngine) -> None:
        events = engine.driver.events
        assert events is not None
        assert events.replay_endpoint is not None
        self._context = zmq.asyncio.Context()
        self._sub = self._context.socket(zmq.SUB)
        self._sub.subscribe(b"kv@")
        self._sub.connect(events.endpoint)
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.connect(events.replay_endpoint)
        self.expected = 0
        self.replays = 0
        self.events: list[dict[str, Any]] = []
        self.known: dict[str, set[int]] = {medium.value: set() for medium in Medium}

    def close(self) -> None:
        self._sub.close(linger=0)
        self._dealer.close(linger=0)
        self._context.term()

    async def follow(self) -> None:
        """Take in what has been published."""
        while await self._sub.poll(100):
            topic, number, payload = await self._sub.recv_multipart()
            assert topic == b"kv@a@m"
            if int.from_bytes(number, "big") > self.expected:
                await self.catch_up()
            self._take(int.from_bytes(number, "big"), payload)

    async def catch_up(self) -> None:
        """Ask for everything from the expected number on."""
        self.replays += 1
        await self._dealer.send_multipart([b"", self.expected.to_bytes(8, "big")])
        while True:
            _, _, number, payload = await asyncio.wait_for(self._dealer.recv_multipart(), 10)
            if number == END:
                return
            self._take(int.from_bytes(number, "big"), payload)

    def _take(self, number: int, payload: bytes) -> None:
        if number < self.expected:
            return
        assert number == self.expected
        self.expected += 1
        ts, events, rank = msgspec.msgpack.decode(payload)
        assert ts > 1.7e9
        assert rank == 0
        for event in events:
            self.events.append(event)
            if event["type"] == "BlockStored":
                self.known[event["medium"]].update(event["block_hashes"])
            elif event["type"] == "BlockRemoved":
                self.known[event["medium"]].difference_update(event["block_hashes"])
            else:
                for known in self.known.values():
                    known.clear()


@pytest.fixture
async def follow() -> AsyncIterator[Callable[[ServedEngine], Consumer]]:
    consumers: list[Consumer] = []

    def start(engine: ServedEngine) -> Consumer:
        consumers.append(Consumer(engine))
        return consumers[-1]

    yield start
    for consumer in consumers:
        consumer.close()


async def ask(http: httpx.AsyncClient, prompt: list[int], tokens: int = 1, **more: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True} | more
    answer = await http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def metrics(http: httpx.AsyncClient) -> dict[str, float]:
    page = (await http.get("/metrics")).text
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    own = {"model_name", "engine"}
    return {
        s.name + "".join(f"/{value}" for label, value in s.labels.items() if label not in own): s.value for s in samples
    }


def cached(engine: ServedEngine) -> dict[str, set[int]]:
    """What the engine truly has."""
    driver = engine.driver
    tiers = {} if driver.engine.tiers is None else driver.engine.tiers.content()
    return {medium.value: set(tiers.get(medium, ())) for medium in Medium} | {"GPU": driver.engine.kv.content()}


async def test_stored_blocks_are_those_of_the_prompt_and_the_answer(
    serve: Serve, connect: Connect, follow: Callable[[ServedEngine], Consumer]
) -> None:
    engine = await serve(kv_events=EVENTS)
    consumer = follow(engine)
    prompt = list(range(100, 140))
    async with connect(engine.url) as http:
        await ask(http, prompt, 30, cache_salt="tenant")
    await consumer.catch_up()
    stored = [e for e in consumer.events if e["type"] == "BlockStored"]
    chain = BlockChain(np.array(prompt, dtype="<u4"), NOTHING, 16, salt="tenant")
    assert stored[0] == {
        "type": "BlockStored",
        "block_hashes": chain,
        "parent_block_hash": None,
        "token_ids": prompt[:32],
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [["tenant"], None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    # The rest of the prompt and the answer fill two more blocks, one after the other.
    assert [len(e["block_hashes"]) for e in stored] == [2, 1, 1]
    assert [e["parent_block_hash"] for e in stored[1:]] == [chain[-1], stored[1]["block_hashes"][0]]
    assert stored[1]["token_ids"][:8] == prompt[32:]
    assert consumer.known == cached(engine)


async def test_a_consumer_that_missed_messages_asks_and_knows_everything(
    serve: Serve, connect: Connect, follow: Callable[[ServedEngine], Consumer]
) -> None:
    engine = await serve(kv_events=EVENTS)
    async with connect(engine.url) as http:
        # Memory has 256 blocks: later prompts evict earlier ones.
        for i in range(4):
            await ask(http, [1000 * i + j for j in range(1600)])
        consumer = follow(engine)
        await asyncio.sleep(0.1)
        while not consumer.replays:
            await ask(http, [9000 + j for j in range(1600)])
            await consumer.follow()
        for i in range(3):
            await ask(http, [20_000 + 1000 * i + j for j in range(700)])
        await consumer.follow()
        page = await metrics(http)
        assert consumer.replays == 1
        assert consumer.expected == page["heliotrope_emulator_kv_event_batches_published_total"] > 6
        assert page["heliotrope_emulator_kv_event_batches_dropped_total"] == 0
        assert any(e["type"] == "BlockRemoved" for e in consumer.events)
        assert consumer.known == cached(engine)
        assert consumer.known["GPU"]
        state = (await http.get("/emulator/v1/state")).json()["kv_events"]
        assert state["published"] == state["replayable"] == consumer.expected
        assert (await http.get("/kv_event_sources")).json() == {
            "0": {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": state["endpoint"],
                "replay_endpoint": state["replay_endpoint"],
                "buffer_steps": 10_000,
                "hwm": 100_000,
                "max_queue_size": 100_000,
                "topic": "kv@a@m",
            }
        }


async def test_what_sleep_clears_is_told_with_the_next_step(
    serve: Serve, connect: Connect, follow: Callable[[ServedEngine], Consumer]
) -> None:
    engine = await serve(kv_events=EVENTS, offload={"cpu": {"capacity_bytes": 10**12}})
    consumer = follow(engine)
    async with connect(engine.url) as http:
        for start in (0, 5000):
            await ask(http, list(range(start, start + 4000)))
        await consumer.catch_up()
        assert all(consumer.known[medium] for medium in ("GPU", "CPU"))
        before = consumer.expected
        await http.post("/sleep?level=1")
        await http.post("/wake_up")
        await consumer.catch_up()
        assert consumer.expected == before
        await ask(http, list(range(64)))
    await consumer.catch_up()
    assert [e["type"] for e in consumer.events[-2:]] == ["AllBlocksCleared", "BlockStored"]
    assert consumer.known == cached(engine)
    assert len(consumer.known["GPU"]) == 4
    assert not consumer.known["CPU"]


async def test_evicted_prefixes_come_back_from_the_tiers_at_a_cost(
    serve: Serve, connect: Connect, model: EngineModel, follow: Callable[[ServedEngine], Consumer]
) -> None:
    small = replace(model, kv_bytes_per_token=1000)
    block_bytes = 16_000
    engine = await serve(
        engine_model=small,
        kv_events=EVENTS,
        offload={
            "cpu": {
                "capacity_bytes": 100 * block_bytes,
                "bytes_per_second": 1e6,
                "latency_seconds": 0.5,
                "joules_per_byte": 1e-6,
            },
            "disk": {
                "capacity_bytes": 200 * block_bytes,
                "bytes_per_second": 1e5,
                "latency_seconds": 1.0,
                "joules_per_byte": 5e-6,
            },
        },
    )
    consumer = follow(engine)
    prefix = list(range(100_000, 100_000 + 160))
    async with connect(engine.url) as http:
        await ask(http, [*prefix, 1])
        await ask(http, list(range(EVERYTHING)))
        await consumer.catch_up()
        assert consumer.known == cached(engine)
        assert not consumer.known["GPU"] & set(BlockChain(np.array(prefix, "<u4"), NOTHING, 16))
        again = await ask(http, [*prefix, 2])
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 160
        truth = (await http.get(f"/emulator/v1/requests/{again['id']}")).json()
        assert (truth["cached_tokens"], truth["external_tokens"], truth["external_source"]) == (160, 160, "host")
        # Ten blocks from host memory: the latency and 160 kB at 1 MB/s.
        assert truth["ttft_seconds"] >= 0.5 + 0.16
        page = await metrics(http)
        assert page["vllm:external_prefix_cache_hits_total"] == 160
        assert page["vllm:external_prefix_cache_queries_total"] == 161 + EVERYTHING + 161
        assert page["vllm:prefix_cache_hits_total"] == 0
        assert page["vllm:prompt_tokens_by_source_total/external_kv_transfer"] == 160
        assert page["vllm:prompt_tokens_by_source_total/local_cache_hit"] == 0
        assert page["vllm:prompt_tokens_cached_total"] == 160
        assert page["vllm:prompt_tokens_cached_by_source_total/host"] == 160
        assert page["vllm:prompt_tokens_cached_by_source_total/device"] == 0
        assert page["vllm:kv_offload_load_bytes_total"] == 10 * block_bytes
        assert page["vllm:kv_offload_load_time_total"] == pytest.approx(0.66)
        assert page["vllm:kv_offload_load_size_count"] == 1
        assert page["vllm:kv_offload_total_bytes_total/CPU_to_GPU"] == 10 * block_bytes
        stored = page["vllm:kv_offload_store_bytes_total"]
        assert stored == page["vllm:kv_offload_total_bytes_total/GPU_to_CPU"] > 0
        assert page["heliotrope_emulator_kv_loads_total/host"] == 1
        # The longest of the other prompts overflows host memory onto the disk.
        await ask(http, list(range(200_000, 204_000)))
        state = (await http.get("/emulator/v1/state")).json()
        assert state["tier_blocks"] == {"host": 100, "disk": len(cached(engine)["STORAGE"])}
        assert state["tier_blocks"]["disk"] > 0
        assert (await metrics(http))["heliotrope_emulator_offload_blocks/disk"] == state["tier_blocks"]["disk"]
    await consumer.catch_up()
    assert consumer.known == cached(engine)


async def test_transfers_are_in_the_joules_of_requests_and_apart_from_the_accelerators(
    serve: Serve, connect: Connect, model: EngineModel
) -> None:
    engine = await serve(
        engine_model=replace(model, kv_bytes_per_token=1000),
        offload={"cpu": {"capacity_bytes": 10**9, "joules_per_byte": 0.001, "latency_seconds": 0}},
    )
    prefix = list(range(100_000, 100_000 + 160))
    async with connect(engine.url) as http:
        for prompt in ([*prefix, 1], list(range(EVERYTHING)), [*prefix, 2]):
            await ask(http, prompt)
        known = (await http.get("/emulator/v1/requests")).json()["requests"]
        state = (await http.get("/emulator/v1/state")).json()["joules"]
    tiers = engine.driver.engine.external
    loads, stores = tiers.offload_loads.picojoules / 1e12, tiers.offload_stores.picojoules / 1e12
    assert loads == pytest.approx(160.0)
    assert state["transfers"] == pytest.approx(loads + stores)
    assert sum(r["joules"] for r in known) == pytest.approx(state["busy"] + loads)


async def test_without_events_or_tiers_there_is_no_trace_of_them(engine: ServedEngine, http: httpx.AsyncClient) -> None:
    await ask(http, list(range(64)))
    page = await metrics(http)
    assert not [name for name in page if "kv_offload" in name or "offload_" in name or "kv_event" in name]
    assert page["vllm:external_prefix_cache_queries_total"] == page["vllm:external_prefix_cache_hits_total"] == 0
    assert (await http.get("/kv_event_sources")).json() == {}
    state = (await http.get("/emulator/v1/state")).json()
    assert (state["kv_events"], state["tier_blocks"], state["joules"]["transfers"]) == (None, {}, 0.0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[list[str]]:
    """Two engines of one process; their addresses."""
    file = tmp_path / "emulator.yaml"
    engines = [
        {"name": name, "profile": "llama-3.1-70b-h100-tp4", "time_scale": 50, "kv_events": EVENTS | {"topic": topic}}
        for name, topic in (("a", "kv@a@m"), ("b", "kv@b@m"))
    ]
    file.write_text(json.dumps({"engines": engines}))
    command = [sys.executable, "-m", "heliotrope_sim.emulator", "--config", str(file), "--die-with-parent"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield [e["url"] for e in json.loads(child.stdout.readline())["engines"]]
        child.kill()


@pytest.mark.slow
async def test_engines_of_one_seed_hash_alike(process: list[str], connect: Connect) -> None:
    found = {}
    for url in process:
        async with connect(url) as http:
            await ask(http, list(range(64)))
            state = (await http.get("/emulator/v1/state")).json()["kv_events"]
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.rcvtimeo = 10_000
            dealer.connect(state["replay_endpoint"])
            dealer.send_multipart([b"", bytes(8)])
            _, topic, number, payload = dealer.recv_multipart()
        assert number == bytes(8)
        (event,) = msgspec.msgpack.decode(payload)[1]
        found[topic] = event["block_hashes"]
    expected = BlockChain(np.arange(64, dtype="<u4"), NOTHING, 16)
    assert found == {b"kv@a@m": expected, b"kv@b@m": expected}
