"""A cached prefix is pulled from another engine, which keeps it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from heliotrope_sim.emulator import ServedEngine
from heliotrope_sim.engine import KvSource

Serve = Callable[..., Awaitable[ServedEngine]]
Front = Callable[..., Awaitable[httpx.AsyncClient]]

PROMPT = "tell me everything about the sun and its spots " * 12
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5, "ignore_eos": True}
LINK = {
    "bytes_per_second": 327_680_000.0,
    "latency_seconds": 0.25,
    "network_joules_per_bit": 4e-9,
    "sender_joules_per_bit": 2e-9,
    "receiver_joules_per_bit": 1e-9,
}
TRANSFER: dict[str, Any] = {"links": {"region": LINK}}
BYTES_PER_TOKEN = 327_680


def target(engine: ServedEngine) -> str:
    return engine.url.removeprefix("http://")


def source(engine: ServedEngine, name: str = "reader") -> dict[str, str]:
    return {"x-kv-cache-source-host-port": target(engine), "x-request-id": name}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def check_books(engine: ServedEngine) -> None:
    now_ns = engine.driver.clock.now_ns()
    drawn = engine.driver.engine.energy.busy_picojoules + engine.driver.engine.transfers.picojoules(now_ns)
    assert sum(f.joules for f in engine.driver.finished.values()) == pytest.approx(drawn / 1e12, rel=1e-9)


async def warm(front: Front, engine: ServedEngine) -> str:
    answer = await (await front(engine.url)).post("/v1/chat/completions", json=BODY, headers={"x-request-id": "first"})
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


async def test_a_prefix_is_pulled_and_stays_where_it_was(serve: Serve, front: Front) -> None:
    owner, reader = await serve("o", kv_transfer=TRANSFER), await serve("r", kv_transfer=TRANSFER)
    text = await warm(front, owner)
    sidecar = await front(reader.url, enable_p2p_pull=True)
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=source(owner))
    assert answer.json()["choices"][0]["message"]["content"] == text
    assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 143}
    assert reader.driver.engine.counters.prefill_tokens == 0
    await until(lambda: owner.driver.engine.num_held == 0)
    assert owner.driver.engine.kv.used_blocks == 0
    assert owner.driver.engine.kv.cached_blocks == 9

    response_id = answer.json()["id"]
    record = reader.driver.finished[response_id]
    assert record.ttft_seconds == pytest.approx(0.25 + 0.144, abs=0.05)
    bits = 144 * BYTES_PER_TOKEN * 8
    sent = owner.driver.finished[response_id]
    assert (sent.finish_reason, sent.joules, sent.sent_joules) == ("sent", pytest.approx(2e-9 * bits), sent.joules)
    for engine in (owner, reader):
        check_books(engine)
    page = (await sidecar.get("/metrics")).text
    assert re.search(r'vllm:prompt_tokens_cached_by_source_total{[^}]*source="p2p"} 143$', page, re.MULTILINE)


async def test_only_what_the_owner_has_and_the_reader_lacks_is_pulled(serve: Serve, front: Front) -> None:
    owner, reader = await serve("o", kv_transfer=TRANSFER), await serve("r", kv_transfer=TRANSFER)
    await warm(front, owner)
    sidecar = await front(reader.url, enable_p2p_pull=True)
    longer = [*BODY["messages"], {"role": "user", "content": "and the moon " * 30}]
    answer = await sidecar.post("/v1/chat/completions", json=BODY | {"messages": longer}, headers=source(owner))
    usage = answer.json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 128}
    assert reader.driver.engine.counters.prefill_tokens == usage["prompt_tokens"] - 128
    # What has been read once is here: nothing is pulled again.
    await sidecar.post("/v1/chat/completions", json=BODY | {"messages": longer}, headers=source(owner, "again"))
    assert sum(reader.driver.engine.external.loads.values()) == 1
    await until(lambda: owner.driver.engine.num_held == 0)


async def test_whoever_prefills_pulls(serve: Serve, front: Front) -> None:
    owner, prefiller, decoder = [await serve(name, kv_transfer=TRANSFER) for name in ("o", "p", "d")]
    text = await warm(front, owner)
    sidecar = await front(decoder.url, enable_p2p_pull=True)
    headers = source(owner) | {"x-prefiller-host-port": target(prefiller)}
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=headers)
    assert answer.json()["choices"][0]["message"]["content"] == text
    assert prefiller.driver.engine.external.hits[KvSource.P2P] == 143
    assert [e.driver.engine.counters.prefill_tokens for e in (owner, prefiller, decoder)] == [144, 0, 0]
    await until(lambda: sum(e.driver.engine.num_held for e in (owner, prefiller)) == 0)
    for engine in (owner, prefiller, decoder):
        check_books(engine)
    # What the decoder has cached helps the prefiller too; both parts are in the decoder's one record.
    other = [{"role": "user", "content": PROMPT.replace("sun", "moo")}]
    await (await front(decoder.url)).post("/v1/chat/completions", json=BODY | {"messages": other})
    back = source(decoder, "back") | {"x-prefiller-host-port": target(prefiller)}
    answer = await sidecar.post("/v1/chat/completions", json=BODY | {"messages": other}, headers=back)
    assert prefiller.driver.engine.external.hits[KvSource.P2P] == 2 * 143
    await until(lambda: sum(e.driver.engine.num_held for e in (prefiller, decoder)) == 0)
    record = decoder.driver.finished[answer.json()["id"]]
    assert (record.finish_reason, record.sent_joules) == ("length", pytest.approx(2e-9 * 144 * BYTES_PER_TOKEN * 8))
    check_books(decoder)
    # To its own cache nobody is sent.
    own = source(prefiller) | {"x-prefiller-host-port": target(prefiller)}
    assert (await sidecar.post("/v1/chat/completions", json=BODY, headers=own)).status_code == 200
    assert sum(prefiller.driver.engine.external.loads.values()) == 2


async def test_a_source_that_has_nothing_or_is_not_there_costs_nothing(serve: Serve, front: Front, nobody: str) -> None:
    owner, reader = await serve("o", kv_transfer=TRANSFER), await serve("r", kv_transfer=TRANSFER)
    sidecar = await front(reader.url, enable_p2p_pull=True)
    for headers in (source(owner), {"x-kv-cache-source-host-port": nobody}):
        body = BODY | {"cache_salt": headers["x-kv-cache-source-host-port"]}
        answer = await sidecar.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200
        assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    page = (await sidecar.get("/metrics")).text
    for reason in ("unreachable", "refused"):
        assert re.search(rf'transfer_failures_total{{[^}}]*reason="{reason}"}} 1$', page, re.MULTILINE)


async def test_what_the_owner_has_only_in_a_tier_is_read_there_first(serve: Serve, front: Front) -> None:
    tier = {"capacity_bytes": 2 * 10**9, "bytes_per_second": 1e9, "latency_seconds": 1.0, "joules_per_byte": 1e-8}
    owner = await serve("o", kv_transfer=TRANSFER, offload={"cpu": tier})
    reader = await serve("r", kv_transfer=TRANSFER)
    await warm(front, owner)
    direct, sidecar = await front(owner.url), await front(reader.url, enable_p2p_pull=True)
    # 250 of 256 blocks: the last three of the nine are written to the tier.
    assert (await direct.post("/v1/completions", json={"prompt": "x " * 8000, "max_tokens": 1})).status_code == 200
    in_memory = owner.driver.engine.kv.cached_blocks
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=source(owner))
    assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 143}
    await until(lambda: owner.driver.engine.num_held == 0)
    assert owner.driver.engine.kv.cached_blocks == in_memory
    record = reader.driver.finished[answer.json()["id"]]
    size, read_first = 144 * BYTES_PER_TOKEN, 48 * BYTES_PER_TOKEN
    assert record.ttft_seconds == pytest.approx(0.25 + 0.144 + 1.0 + read_first / 1e9, abs=0.05)
    sent = owner.driver.finished[answer.json()["id"]]
    assert sent.joules == pytest.approx(2e-9 * size * 8 + 1e-8 * read_first)
    check_books(reader)


async def test_the_header_is_ignored_unless_pulls_are_enabled(serve: Serve, front: Front) -> None:
    owner, reader = await serve("o", kv_transfer=TRANSFER), await serve("r", kv_transfer=TRANSFER)
    await warm(front, owner)
    sidecar = await front(reader.url)
    await sidecar.post("/v1/chat/completions", json=BODY, headers=source(owner))
    assert reader.driver.engine.counters.prefill_tokens == 144


async def test_pulled_blocks_outlive_pressure_on_their_owner(serve: Serve, front: Front) -> None:
    endless = {"links": {"region": LINK | {"latency_seconds": 20.0}}}
    owner, reader = await serve("o", kv_transfer=endless), await serve("r", kv_transfer=endless)
    await warm(front, owner)
    sidecar, direct = await front(reader.url, enable_p2p_pull=True), await front(owner.url)
    pulled = asyncio.create_task(sidecar.post("/v1/chat/completions", json=BODY, headers=source(owner)))
    await until(lambda: reader.driver.engine.num_loading == 1)
    # Nearly all of the owner's memory: whatever is only cached has to go.
    big = {"prompt": "x " * 7600, "max_tokens": 1}
    assert (await direct.post("/v1/completions", json=big)).status_code == 200
    assert owner.driver.engine.kv.match(reader.driver.engine.in_flight[0].request.block_hashes, 9) == 9
    assert (await pulled).json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 143}
