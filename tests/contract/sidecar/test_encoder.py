"""Images: encoded where the engine is, or by an encoder whose embeddings the engine pulls."""

import asyncio
import base64
import re
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from heliotrope_sim.emulator import ServedEngine

Serve = Callable[..., Awaitable[ServedEngine]]
Front = Callable[..., Awaitable[httpx.AsyncClient]]
Connect = Callable[[str], httpx.AsyncClient]

ENCODER = {"base_seconds": 0.5, "seconds_per_token": 0.01, "base_joules": 3.0, "joules_per_image": 2.0}
LINK = {
    "bytes_per_second": 16_384_000.0,
    "latency_seconds": 0.1,
    "network_joules_per_bit": 4e-7,
    "sender_joules_per_bit": 2e-7,
    "receiver_joules_per_bit": 1e-7,
}
TRANSFER: dict[str, Any] = {"links": {"region": LINK}}


def picture(width: int, height: int = 280) -> dict[str, Any]:
    """A picture of ten times width / 28 tokens."""
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def body(*pictures: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = [*pictures, {"type": "text", "text": "what is this?"}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 4, "ignore_eos": True} | more


# 100 and 200 tokens; the first twice in one prompt.
BODY = body(picture(280), picture(560), picture(280))
PROMPT_TOKENS = 1 + 102 + 202 + 102 + 4 + 1 + 1


def target(engine: ServedEngine) -> str:
    return engine.url.removeprefix("http://")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def check_books(engine: ServedEngine) -> None:
    now_ns = engine.driver.clock.now_ns()
    drawn = engine.driver.engine.energy.busy_picojoules + engine.driver.engine.transfers.picojoules(now_ns)
    assert sum(f.joules for f in engine.driver.finished.values()) == pytest.approx(drawn / 1e12, rel=1e-9)


def sample(page: str, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", page, re.MULTILINE)
    return float(value)


async def test_an_engine_encodes_itself_and_remembers(serve: Serve, connect: Connect) -> None:
    engine = await serve("e", encoder=ENCODER)
    blind = await serve("b")
    async with connect(engine.url) as http, connect(blind.url) as other:
        answer = (await http.post("/v1/chat/completions", json=BODY)).json()
        assert answer["usage"]["prompt_tokens"] == PROMPT_TOKENS
        counted = await http.post("/tokenize", json={"messages": BODY["messages"]})
        assert counted.json()["count"] == PROMPT_TOKENS
        record = engine.driver.finished[answer["id"]]
        encoding = 0.5 + 2 * 0.001 + 300 * 0.01
        assert record.ttft_seconds is not None
        assert record.ttft_seconds > encoding
        check_books(engine)
        again = (await http.post("/v1/chat/completions", json=BODY | {"cache_salt": "b"})).json()
        quick = engine.driver.finished[again["id"]]
        assert quick.ttft_seconds == pytest.approx(record.ttft_seconds - encoding)
        assert quick.joules == pytest.approx(record.joules - 3.0 - 2 * 2.0 - 300 * 0.01)
        page = (await http.get("/metrics")).text
        assert (sample(page, "vllm:mm_cache_queries_total"), sample(page, "vllm:mm_cache_hits_total")) == (6, 4)
        assert sample(page, "heliotrope_emulator_encoded_images_total") == 2
        refused = await other.post("/v1/chat/completions", json=BODY)
        assert (refused.status_code, "text only" in refused.json()["error"]["message"]) == (400, True)
        assert sample((await other.get("/metrics")).text, "vllm:mm_cache_queries_total") == 0


@pytest.mark.parametrize("prefills", ["decoder", "prefiller"])
@pytest.mark.parametrize("connector", ["ec-nixl", "ec-example"])
async def test_an_encoder_encodes_and_the_engine_pulls(
    serve: Serve, front: Front, prefills: str, connector: str
) -> None:
    encoders = [await serve(f"e{i}", role="encode", encoder=ENCODER, kv_transfer=TRANSFER) for i in range(2)]
    engines = {name: await serve(name, encoder=ENCODER, kv_transfer=TRANSFER) for name in ("decoder", "prefiller")}
    alone = await serve("alone", encoder=ENCODER)
    expected = (await (await front(alone.url)).post("/v1/chat/completions", json=BODY)).json()
    sidecar = await front(engines["decoder"].url, ec_connector=connector)
    headers = {"x-encoder-hosts-ports": ",".join(map(target, encoders)), "x-request-id": "one"}
    if prefills == "prefiller":
        headers["x-prefiller-host-port"] = target(engines["prefiller"])
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=headers)
    assert answer.status_code == 200
    for part in ("choices", "usage"):
        assert answer.json()[part] == expected[part]

    # Each different image went to one encoder.
    assert [e.driver.engine.encoder.encoded_tokens for e in encoders if e.driver.engine.encoder] == [100, 200]
    here = engines[prefills].driver.engine.encoder
    assert here is not None
    pulled = connector == "ec-nixl"
    assert (here.loaded_images, here.encoded_images) == ((2, 0) if pulled else (0, 2))
    await until(lambda: sum(e.driver.engine.num_held for e in engines.values()) == 0)
    for engine in (*encoders, *engines.values()):
        check_books(engine)
    bits = 300 * 16_384 * 8
    sent = sum(f.sent_joules for e in encoders for f in e.driver.finished.values())
    assert sent == pytest.approx(2e-7 * bits if pulled else 0)
    if pulled and prefills == "decoder":
        record = engines["decoder"].driver.finished[answer.json()["id"]]
        # Both loads, one after the other, and no step of the encoder.
        assert record.ttft_seconds == pytest.approx(
            alone.driver.finished[expected["id"]].ttft_seconds - (0.5 + 2 * 0.001 + 3.0) + 2 * 0.1 + 300 / 1000
        )
        steps = engines["decoder"].driver.engine.energy.busy_picojoules / 1e12
        assert record.joules == pytest.approx(steps + 5e-7 * bits)


async def test_an_embedding_that_was_evicted_is_made_again_where_it_is_needed(
    serve: Serve, front: Front, connect: Connect
) -> None:
    small = await serve("e", role="encode", encoder=ENCODER | {"cache_tokens": 150}, kv_transfer=TRANSFER)
    decoder = await serve("d", encoder=ENCODER, kv_transfer=TRANSFER)
    sidecar = await front(decoder.url, ec_connector="ec-nixl")
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers={"x-encoder-hosts-ports": target(small)})
    assert answer.status_code == 200
    encoder = decoder.driver.engine.encoder
    assert encoder is not None
    # The image of 200 tokens is too large to be remembered.
    assert (encoder.loaded_images, encoder.encoded_images) == (1, 1)
    page = (await sidecar.get("/metrics")).text
    assert re.search(r'transfer_failures_total{[^}]*reason="embedding"} 1$', page, re.MULTILINE)


async def test_an_encoder_only_encodes(serve: Serve, connect: Connect) -> None:
    encoder = await serve("e", role="encode", encoder=ENCODER, kv_transfer={"advertised_host": "10.9.8.7"})
    async with connect(encoder.url) as http:
        answer = (await http.post("/v1/chat/completions", json=body(picture(280)) | {"max_tokens": 1})).json()
        assert answer["choices"] == []
        assert answer["usage"]["completion_tokens"] == 0
        ((mm_hash, said),) = answer["ec_transfer_params"].items()
        assert len(mm_hash) == 32
        assert said == {"peer_host": "10.9.8.7", "peer_port": encoder.port, "size_bytes": 100 * 16_384}
        for wrong in (body(), body(picture(280), stream=True)):
            assert (await http.post("/v1/chat/completions", json=wrong)).status_code == 400
        assert (await http.post("/v1/completions", json={"prompt": "a"})).status_code == 400
        assert encoder.driver.engine.kv.used_blocks == 0
        assert encoder.driver.engine.counters.prefill_tokens == 0


async def test_an_encoder_that_fails_is_a_502(serve: Serve, front: Front, nobody: str) -> None:
    encoder = await serve("e", role="encode", encoder=ENCODER, kv_transfer={})
    decoder = await serve("d", encoder=ENCODER, kv_transfer={})
    sidecar = await front(decoder.url, ec_connector="ec-nixl")
    headers = {"x-encoder-hosts-ports": f"{target(encoder)},{nobody}"}
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (502, "BadGateway")
    # Text needs no encoder.
    assert (await sidecar.post("/v1/chat/completions", json=body(), headers=headers)).status_code == 200


async def test_images_of_a_cached_prefix_are_neither_encoded_nor_pulled(serve: Serve, front: Front) -> None:
    encoder = await serve("e", role="encode", encoder=ENCODER, kv_transfer=TRANSFER)
    decoder = await serve("d", encoder=ENCODER | {"cache_tokens": 0}, kv_transfer=TRANSFER)
    sidecar = await front(decoder.url, ec_connector="ec-nixl")
    headers = {"x-encoder-hosts-ports": target(encoder)}
    for name in ("one", "two"):
        answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=headers | {"x-request-id": name})
        assert answer.status_code == 200
    here = decoder.driver.engine.encoder
    assert here is not None
    # All but the tail of the prompt is cached, and with it the images.
    assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 400
    assert here.loaded_images == 2
    check_books(decoder)
