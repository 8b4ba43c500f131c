"""The KV events of a real vLLM and of an emulated engine for the same requests are the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import zmq
import zmq.asyncio
from prometheus_client.parser import text_string_to_metric_families
from tests.vllm.emulated import PROFILE
from tests.vllm.engine import KV_TOPIC, MAX_MODEL_LEN, MODEL, RealEngine

from heliotrope.engine import profiles
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig
from heliotrope_sim.emulator.kv_config import KvEventsConfig

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

END = (-1).to_bytes(8, "big", signed=True)
FIRST = [3 + 7 * i % 990 for i in range(300)]
REQUESTS: list[dict[str, Any]] = [
    {"prompt": FIRST},
    {"prompt": FIRST},  # all of it cached
    {"prompt": FIRST[:260] + [5] * 200},  # goes another way after two blocks
    {"prompt": FIRST, "cache_salt": "tenant"},
    {"prompt": FIRST[:100]},  # no full block
]


@asynccontextmanager
async def emulated(folder: Path, block_size: int) -> AsyncIterator[tuple[str, str]]:
    """An emulated engine with the real one's blocks: its URL and where it replays."""
    replay = f"ipc://{folder / 'emulated-replay'}"
    events = KvEventsConfig(endpoint=f"ipc://{folder / 'emulated'}", replay_endpoint=replay, topic=KV_TOPIC)
    config = EngineConfig(
        name="emulated", profile=PROFILE, model=MODEL, max_model_len=MAX_MODEL_LEN, time_scale=20, kv_events=events
    )
    model = replace(profiles.load(PROFILE), block_size=block_size)
    async with Emulator(EmulatorConfig(engines=(config,)), models={config.name: model}) as emulator:
        yield emulator.engines[config.name].url, replay


async def block_size_of(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        page = (await http.get(f"{url}/metrics")).raise_for_status().text
    (sample,) = [
        s for f in text_string_to_metric_families(page) for s in f.samples if s.name == "vllm:cache_config_info"
    ]
    return int(sample.labels["block_size"])


async def cached_tokens(url: str) -> list[int]:
    """Send the requests; what of each was cached."""
    found = []
    async with httpx.AsyncClient(trust_env=False, timeout=120) as http:
        for request in REQUESTS:
            body = {"model": MODEL, "max_tokens": 1, "ignore_eos": True} | request
            answer = (await http.post(f"{url}/v1/completions", json=body)).raise_for_status().json()
            found.append((answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens"))
    return found


async def replayed(endpoint: str, start: int) -> list[tuple[bytes, int, Any]]:
    """Messages from a number on: topic, number, decoded payload."""
    context = zmq.asyncio.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(endpoint)
    found = []
    try:
        await dealer.send_multipart([b"", start.to_bytes(8, "big")])
        while True:
            empty, topic, number, payload = await asyncio.wait_for(dealer.recv_multipart(), 30)
            assert empty == b""
            if number == END:
                assert (topic, payload) == (b"", b"")
                return found
            found.append((topic, int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)))
    finally:
        dealer.close(linger=0)
        context.term()


async def test_the_same_requests_give_the_same_events(engine: RealEngine, tmp_path: Path) -> None:
    block_size = await block_size_of(engine.url)
    before = len(await replayed(engine.replay_endpoint, 0))
    async with emulated(tmp_path, block_size) as (url, replay_endpoint):
        assert await cached_tokens(engine.url) == await cached_tokens(url)
        real, ours = await replayed(engine.replay_endpoint, before), await replayed(replay_endpoint, 0)
    assert [(topic, number - before) for topic, number, _ in real] == [(topic, number) for topic, number, _ in ours]
    assert {topic for topic, _, _ in ours} == {KV_TOPIC.encode()}
    for (_, _, (real_ts, real_events, real_rank)), (_, _, (ts, events, rank)) in zip(real, ours, strict=True):
        assert abs(real_ts - ts) < 600
        assert real_rank == rank
        # Hashes, parents, tokens, extra keys: all of it, in the same order.
        assert [list(event.items()) for event in real_events] == [list(event.items()) for event in events]
    assert sum(len(events) for _, _, (_, events, _) in ours) == 3
