"""Two models behind one name, through a real Envoy, the picker's own process and emulated engines."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from e2e.stack import ENGINE_HEADER, Engine, Stack, start_engine, write_regions

from heliotrope_epp.ledger.read import opened
from heliotrope_sim.demo.fleet import start_picker
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

PROFILES = {"large": "llama-3.1-70b-h100-tp4", "small": "llama-3.1-8b-h100"}
MODELS: dict[str, Any] = {
    "enabled": True,
    "reasoning": {"lower": "Unsaid"},
    "groups": [
        {
            "name": "large",
            "members": [
                {"model": "large", "quality": "0.9"},
                {
                    "model": "small",
                    "quality": "0.85",
                    "qualityByTask": [{"task": "code", "quality": "0.5"}],
                    "efforts": [{"effort": "low", "outputTokensPercent": 50, "qualityPercent": 98}],
                },
            ],
        }
    ],
}
EASY = "Tell me a story about the sea."
CODE = "Why does this fail?\n```\nx = [1][1]\n```"


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "heliotrope.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def write_folder(folder: Path, engines: Sequence[Engine], models: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    endpoints = [
        {"name": e.name, "namespace": "default", "address": e.host, "port": str(e.port),
         "labels": {"heliotrope.io/region": "here", "serves": e.name}}
        for e in engines
    ]  # fmt: skip
    variants = [
        document(
            "WorkloadVariant",
            e.name,
            {
                "model": e.name,
                "endpointSelector": {"matchLabels": {"serves": e.name}},
                "accelerator": {"type": "H100-SXM-80GB", "count": 1},
                "engine": {"profile": PROFILES[e.name]},
            },
        )
        for e in engines
    ]
    policy = {
        "targetRefs": [{"name": "pool"}],
        "slo": {"ttft": "20s", "tpot": "2s"},
        "enforcement": "Enforce",
        "models": models,
    }
    (folder / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": endpoints}))
    (folder / "variants.yaml").write_text(yaml.safe_dump_all(variants))
    (folder / "policy.yaml").write_text(yaml.safe_dump(document("CarbonPolicy", "p", policy)))
    write_regions(folder, {"here": 300.0})


@contextlib.asynccontextmanager
async def two_models(folder: Path, models: dict[str, Any], *flags: str) -> AsyncIterator[Stack]:
    engines = [
        await start_engine(folder, name, "here", model=name, profile=profile) for name, profile in PROFILES.items()
    ]
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            stack.push_async_callback(engine.child.stop)
        resources = folder / "resources"
        write_folder(resources, engines, models)
        picker, ports = await start_picker(folder, resources, *flags)
        stack.push_async_callback(picker.stop)
        config = GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",))
        gateway = await Gateway.start(config, directory=folder / "envoy")
        stack.push_async_callback(gateway.stop)
        await gateway.wait_for_pickers()
        yield Stack({e.name: e for e in engines}, picker, ports, gateway, resources)


async def send(stack: Stack, content: str, **fields: Any) -> httpx.Response:
    body = {"model": "large", "messages": [{"role": "user", "content": content}], "max_tokens": 4, **fields}
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        answer = await client.post(f"{stack.url}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer


async def test_easy_requests_go_to_the_small_model_and_hard_ones_do_not(tmp_path: Path) -> None:
    async with two_models(tmp_path, MODELS) as stack:
        easy = await send(stack, EASY)
        assert easy.headers[ENGINE_HEADER] == "small"
        assert easy.headers["x-heliotrope-model"] == "small"
        assert easy.headers["x-heliotrope-model-reason"] == "quality 0.85 of at least 0.765"
        assert easy.headers["x-heliotrope-reasoning-effort"] == "low"
        assert easy.json()["model"] == "small"
        long = await send(stack, "word " * 20_000)  # a body of several messages
        assert (long.headers[ENGINE_HEADER], long.json()["model"]) == ("small", "small")

        hard = await send(stack, CODE)
        assert (hard.headers[ENGINE_HEADER], hard.json()["model"]) == ("large", "large")
        assert hard.headers["x-heliotrope-model"] == "large"
        assert "x-heliotrope-reasoning-effort" not in hard.headers

        streamed = await send(stack, EASY, stream=True)
        assert '"model":"small"' in streamed.text.replace(" ", "")
        assert await stack.metric("heliotrope_model_choices_total") == 4.0
        assert await stack.metric("heliotrope_model_router_joules_total") > 0.0

        async with asyncio.timeout(30):  # the ledger where `start_picker` has it written
            while sum(asked_and_answered(tmp_path / "ledger").values()) < 4:
                await asyncio.sleep(0.2)
        assert asked_and_answered(tmp_path / "ledger") == {("large", "small"): 3, ("large", "large"): 1}


def asked_and_answered(ledger: Path) -> dict[tuple[str, str], int]:
    with opened(ledger) as connection:
        rows = connection.sql(
            "SELECT asked_model, model, sum(requests) FROM ledger WHERE line = 'request' AND requests > 0 GROUP BY ALL"
        )
        return {(asked, model): int(requests) for asked, model, requests in rows.fetchall()}


async def test_without_the_opt_in_answers_carry_nothing_of_ours(tmp_path: Path) -> None:
    async with two_models(tmp_path, {**MODELS, "enabled": False}) as stack:
        async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
            body = {"model": "large", "messages": [{"role": "user", "content": EASY}], "max_tokens": 4}
            answer = await client.post(f"{stack.url}/v1/chat/completions", json=body)
        assert not [name for name in answer.headers if name.startswith("x-heliotrope")]
        assert await stack.metric("heliotrope_model_choices_total") == 0.0


@contextlib.asynccontextmanager
async def scorer(quality: float) -> AsyncIterator[tuple[str, asyncio.Server]]:
    """The smallest HTTP server that scores the small model."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
            body = json.dumps({"quality": {"small": quality}}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", server


async def test_a_scorer_decides_and_when_it_dies_the_table_does(tmp_path: Path) -> None:
    async with scorer(0.2) as (url, server):
        flags = ("--quality-url", url, "--quality-timeout", "5")
        async with two_models(tmp_path, {**MODELS, "predictor": "Http"}, *flags) as stack:
            scored = await send(stack, EASY)
            assert scored.headers["x-heliotrope-model"] == "large"
            server.close()
            await server.wait_closed()
            dead = await send(stack, EASY)
            assert dead.headers["x-heliotrope-model"] == "small"
            assert dead.json()["model"] == "small"
            assert await stack.metric("heliotrope_quality_scorer_results_total") == 2.0
