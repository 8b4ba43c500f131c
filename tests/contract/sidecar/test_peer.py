"""llm-d's own routing sidecar in front of the same engines: the same answers and the same work on every engine.

Runs where HELIOTROPE_PEER_SIDECAR names the program (`go build ./cmd/pd-sidecar` in llm-d-router).
"""

import asyncio
import base64
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from heliotrope_sim.children import Child
from heliotrope_sim.emulator import ServedEngine

Serve = Callable[..., Awaitable[ServedEngine]]
Front = Callable[..., Awaitable[httpx.AsyncClient]]
Peer = Callable[..., Awaitable[str]]

PROGRAM = os.environ.get("HELIOTROPE_PEER_SIDECAR")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="HELIOTROPE_PEER_SIDECAR names no pd-sidecar")

PROMPT = "tell me everything about the sun and its spots " * 12


def picture(width: int) -> dict[str, Any]:
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, 280)
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def body(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 9, "ignore_eos": True} | more


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "plain": (body(PROMPT), {}),
    "split": (body(PROMPT), {"x-prefiller-host-port": "{p}"}),
    "split and streamed": (body(PROMPT, **STREAMED), {"x-prefiller-host-port": "{p}"}),
    "several prefillers": (body(PROMPT), {"x-prefiller-host-port": "{p},{o}"}),
    "pulled prefix": (body(PROMPT), {"x-kv-cache-source-host-port": "{o}"}),
    "pulled by the prefiller": (body(PROMPT), {"x-prefiller-host-port": "{p}", "x-kv-cache-source-host-port": "{o}"}),
    "encoded": (body([picture(280), picture(560), picture(280)]), {"x-encoder-hosts-ports": "{e}"}),
    "encoded and split": (
        body([picture(280), {"type": "text", "text": PROMPT}], **STREAMED),
        {"x-encoder-hosts-ports": "{e}", "x-prefiller-host-port": "{p}"},
    ),
    "no prefiller": (body(PROMPT), {"x-prefiller-host-port": "{nobody}"}),
    "no encoder": (body([picture(280)]), {"x-encoder-hosts-ports": "{nobody}"}),
}


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    """Start llm-d's sidecar in front of an engine; its address."""
    children: list[Child] = []

    async def start(engine: ServedEngine, source: ServedEngine) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"--port {port} --model-server-port {engine.port} --kv-connector nixlv2 --secure-proxy=false"
        options += f" --ec-connector ec-nixl --enable-p2p-pull --p2p-connector-port {source.port} --tracing=false"
        assert PROGRAM is not None
        children.append(await Child.start("pd-sidecar", [PROGRAM, *options.split()], tmp_path / "pd-sidecar.log"))
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient() as http, asyncio.timeout(20):
            while True:
                try:
                    await http.get(f"{url}/health")
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
                else:
                    return url

    yield start
    for child in children:
        await child.stop()


def plain(text: str) -> list[Any]:
    """The JSON of an answer, an event each, without times, ids and the words of errors."""
    found = []
    for line in text.split("\n\n"):
        try:
            event = json.loads(line.removeprefix("data: "))
        except ValueError:
            continue
        found.append({k: v for k, v in event.items() if k not in ("created", "id", "message")})
    return found


def work(engines: dict[str, ServedEngine]) -> dict[str, tuple[int, ...]]:
    """What each engine has prefilled, loaded, encoded, sent and still holds."""
    done = {}
    for name, served in engines.items():
        engine = served.driver.engine
        assert engine.encoder is not None
        done[name] = (
            engine.counters.prefill_tokens,
            sum(engine.external.hits.values()),
            engine.encoder.encoded_images,
            engine.encoder.loaded_images,
            round(sum(f.sent_joules for f in served.driver.finished.values()) * 1e9),
            engine.num_held,
        )
    return done


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_both_sidecars_do_the_same(
    serve: Serve, front: Front, peer: Peer, nobody: str, case: tuple[dict[str, Any], dict[str, str]]
) -> None:
    sent, named = case
    outcomes = []
    for which in ("llm-d's", "ours"):
        engines = {name: await serve(name, kv_transfer={}, encoder={}) for name in "pdo"}
        engines["e"] = await serve("e", kv_transfer={}, encoder={}, role="encode")
        if which == "ours":
            settings = {"ec_connector": "ec-nixl", "enable_p2p_pull": True, "p2p_connector_port": engines["o"].port}
            url = str((await front(engines["d"].url, **settings)).base_url)
        else:
            url = await peer(engines["d"], engines["o"])
        addresses = {name: e.url.removeprefix("http://") for name, e in engines.items()} | {"nobody": nobody}
        headers = {k: v.format(**addresses) for k, v in named.items()} | {"x-request-id": "one"}
        async with httpx.AsyncClient(timeout=60) as http:
            await http.post(f"{engines['o'].url}/v1/chat/completions", json=body(PROMPT))
            answer = await http.post(f"{url}/v1/chat/completions", json=sent, headers=headers)
        async with asyncio.timeout(20):
            while any(e.driver.engine.num_held for e in engines.values()):
                await asyncio.sleep(0.01)
        outcomes.append((answer.status_code, plain(answer.text), work(engines)))
    peers, own = outcomes
    assert own[0] == peers[0]
    assert own[2] == peers[2]
    if own[0] == 200:
        assert own[1] == peers[1]
