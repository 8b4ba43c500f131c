"""A sidecar without instructions is not there; with wrong ones it says so."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from heliotrope_sim.emulator import ServedEngine
from heliotrope_sim.engine import SleepLevel

Serve = Callable[..., Awaitable[ServedEngine]]
Front = Callable[..., Awaitable[httpx.AsyncClient]]
Connect = Callable[[str], httpx.AsyncClient]

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}


def alike(text: str) -> str:
    """An answer without the time at which it was made."""
    return re.sub(r'"created":\s*\d+', "", text)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_is_the_engines_own(serve: Serve, front: Front, connect: Connect, stream: bool) -> None:
    engine = await serve()
    sidecar = await front(engine.url)
    headers = {"x-request-id": "one"}
    body = BODY | {"stream": stream}
    async with connect(engine.url) as direct:
        expected = await direct.post("/v1/chat/completions", json=body, headers=headers)
    got = await sidecar.post("/v1/chat/completions", json=body, headers=headers)
    assert (got.status_code, alike(got.text)) == (200, alike(expected.text))
    assert got.headers["content-type"] == expected.headers["content-type"]
    assert got.headers["x-inference-pod"] == "d"


async def test_other_paths_errors_and_queries_pass(serve: Serve, front: Front) -> None:
    engine = await serve()
    sidecar = await front(engine.url)
    assert (await sidecar.get("/health")).status_code == 200
    assert "vllm:num_requests_running" in (await sidecar.get("/metrics")).text
    assert (await sidecar.post("/sleep", params={"level": "0"})).json()["level"] == 0
    assert (await sidecar.post("/wake_up")).status_code == 200
    assert (await sidecar.get("/nothing")).status_code == 404
    refused = await sidecar.post("/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert (refused.status_code, "validation error" in refused.json()["error"]["message"]) == (400, True)


async def test_an_engine_that_is_down_is_a_503(front: Front, nobody: str) -> None:
    sidecar = await front(f"http://{nobody}")
    for answer in (await sidecar.get("/health"), await sidecar.post("/v1/chat/completions", json=BODY)):
        assert (answer.status_code, answer.json()["type"]) == (503, "ServiceUnavailable")


async def test_an_answer_that_breaks_off_breaks_off(serve: Serve, front: Front) -> None:
    engine = await serve()
    sidecar = await front(engine.url)
    await sidecar.post("/emulator/v1/faults", json={"kind": "cut", "after_tokens": 2})
    with pytest.raises(httpx.RemoteProtocolError):
        await sidecar.post("/v1/chat/completions", json=BODY | {"stream": True})


async def test_a_client_that_leaves_is_gone_from_the_engine(serve: Serve, front: Front) -> None:
    engine = await serve()
    sidecar = await front(engine.url)
    body = BODY | {"max_tokens": 4000, "stream": True}
    async with sidecar.stream("POST", "/v1/chat/completions", json=body) as response:
        await anext(response.aiter_bytes())
    async with asyncio.timeout(20):
        while engine.driver.engine.num_running:
            await asyncio.sleep(0.01)


async def test_a_prefiller_outside_the_list_is_forbidden(serve: Serve, front: Front, nobody: str) -> None:
    engine = await serve()
    sidecar = await front(engine.url, allowed_targets=frozenset({"10.0.0.1"}))
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers={"x-prefiller-host-port": nobody})
    assert (answer.status_code, answer.json()["type"]) == (403, "Forbidden")


async def test_a_prefiller_that_is_down_is_a_502_or_served_locally(serve: Serve, front: Front, nobody: str) -> None:
    engine = await serve()
    headers = {"x-prefiller-host-port": nobody}
    strict = await front(engine.url, prefill_max_retries=2, prefill_retry_backoff_seconds=0)
    answer = await strict.post("/v1/chat/completions", json=BODY, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (502, "BadGateway")
    kind = await front(engine.url, prefill_fallback=True)
    served = await kind.post("/v1/chat/completions", json=BODY | {"stream": True}, headers=headers)
    assert served.status_code == 200
    assert served.text.endswith("data: [DONE]\n\n")


async def test_a_body_that_nothing_can_be_put_into_is_refused(serve: Serve, front: Front, nobody: str) -> None:
    engine = await serve()
    sidecar = await front(engine.url)
    headers = {"x-prefiller-host-port": nobody, "content-type": "application/json"}
    for content in (b"{", b"[]", json.dumps("x").encode()):
        answer = await sidecar.post("/v1/chat/completions", content=content, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (400, "BadRequestError")


async def test_an_answer_in_time_or_a_504(serve: Serve, front: Front) -> None:
    decoder, prefiller = await serve(), await serve("p")
    sidecar = await front(decoder.url, prefill_timeout_seconds=0.2)
    target = prefiller.url.removeprefix("http://")
    prefiller.driver.sleep(prefiller.driver.engine.sleep_level or SleepLevel.PAUSED)
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers={"x-prefiller-host-port": target})
    assert (answer.status_code, answer.json()["type"]) == (504, "GatewayTimeout")
    async with asyncio.timeout(20):
        while prefiller.driver.engine.num_waiting:
            await asyncio.sleep(0.01)
