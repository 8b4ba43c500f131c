"""The picker as users meet it: real OpenAI clients, a real Envoy, processes that get killed."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import openai
import pytest
from e2e.stack import ENGINE_HEADER, MODEL, Stack, running_stack, write_regions

from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "How green is the grid?"}]}


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path, {"clean": 20.0, "dirty": 400.0}) as running:
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


async def served_by(stack: Stack, **fields: object) -> str:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        answer = await client.post(f"{stack.url}/v1/chat/completions", json={**CHAT, "max_tokens": 4, **fields})
    assert answer.status_code == 200, answer.text
    return answer.headers[ENGINE_HEADER]


async def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def test_the_openai_client_gets_answers_streams_models_and_clear_errors(
    client: openai.AsyncOpenAI, stack: Stack
) -> None:
    whole = await client.chat.completions.create(**CHAT, max_tokens=5)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    stream = await client.chat.completions.create(
        **CHAT, max_tokens=6, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6
    assert sum(bool(c.choices and c.choices[0].delta.content) for c in chunks) >= 5
    text = await client.completions.create(model=MODEL, prompt="The sun", max_tokens=3)
    assert text.usage is not None
    assert text.usage.completion_tokens == 3
    assert [model.id async for model in client.models.list()] == [MODEL]
    with pytest.raises(openai.BadRequestError, match="messages"):
        await client.post("/chat/completions", body={"model": MODEL}, cast_to=object)
    await stack.settles("heliotrope_requests_in_flight", 0)


async def test_traffic_follows_the_cleaner_region_while_it_changes_and_nothing_fails(stack: Stack) -> None:
    assert await served_by(stack) == "engine-clean"
    failures: list[str] = []
    served: list[str] = []

    async def keep_asking() -> None:
        while len(served) < 10_000:
            try:
                served.append(await served_by(stack))
            except (AssertionError, httpx.HTTPError) as error:
                failures.append(str(error))

    asking = asyncio.create_task(keep_asking())
    write_regions(stack.resources, {"clean": 400.0, "dirty": 20.0})
    await eventually(lambda: "engine-dirty" in served[-3:])
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert not failures
    assert await served_by(stack) == "engine-dirty"


async def test_a_broken_resource_changes_nothing_and_is_reported(stack: Stack) -> None:
    (stack.resources / "policy.yaml").write_text("apiVersion: heliotrope.io/v1alpha1\nkind: CarbonPolicy\nspec: {oops")
    state = await stack.state()
    for _ in range(200):
        if state["problems"]:
            break
        await asyncio.sleep(0.1)
        state = await stack.state()
    policy = state["policy"]
    assert (policy["name"], policy["enforce"]) == ("default/p", True)
    assert "policy.yaml" in policy["outdated_because"]
    assert "policy.yaml" in state["problems"][0]
    assert await served_by(stack) == "engine-clean"


async def test_an_engine_killed_mid_stream_costs_its_own_requests_only(
    client: openai.AsyncOpenAI, stack: Stack
) -> None:
    stream = await client.chat.completions.create(
        **CHAT, max_tokens=2000, stream=True, extra_body={"vllm_xargs": {"output_tokens": 2000}}
    )
    iterator = aiter(stream)
    await anext(iterator)
    await stack.settles("heliotrope_requests_in_flight", 1)
    stack.engines["clean"].child.send_signal(signal.SIGKILL)
    with pytest.raises((openai.APIError, httpx.HTTPError)):
        async for _ in iterator:
            pass
    await stack.settles("heliotrope_requests_in_flight", 0)
    async with asyncio.timeout(20):
        while True:
            try:
                if await served_by(stack) == "engine-dirty":
                    break
            except AssertionError:  # until its metrics are stale the dead engine may still be chosen
                await asyncio.sleep(0.2)
    assert [await served_by(stack) for _ in range(5)] == ["engine-dirty"] * 5


async def test_envoy_killed_mid_stream_leaves_nothing_in_flight(client: openai.AsyncOpenAI, stack: Stack) -> None:
    stream = await client.chat.completions.create(
        **CHAT, max_tokens=2000, stream=True, extra_body={"vllm_xargs": {"output_tokens": 2000}}
    )
    await anext(aiter(stream))
    await stack.settles("heliotrope_requests_in_flight", 1)
    await stack.gateway.kill()
    await stack.settles("heliotrope_requests_in_flight", 0)
    stack.gateway = await Gateway.start(GatewayConfig(pickers=(f"127.0.0.1:{stack.ports.grpc}",)))
    await stack.gateway.wait_for_pickers()
    assert await served_by(stack) == "engine-clean"


async def test_a_picker_told_to_stop_lets_streams_end(client: openai.AsyncOpenAI, stack: Stack) -> None:
    stream = await client.chat.completions.create(
        **CHAT,
        max_tokens=300,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"vllm_xargs": {"output_tokens": 300}},
    )
    iterator = aiter(stream)
    await anext(iterator)
    stopping = asyncio.create_task(stack.picker.stop(grace_seconds=40.0))
    rest = [chunk async for chunk in iterator]
    assert rest[-1].usage is not None
    assert rest[-1].usage.completion_tokens == 300
    await stopping
    assert stack.picker.exit_code == 0


async def test_a_ten_megabyte_body_and_bad_json_get_answers_and_the_picker_lives(stack: Stack) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        url = f"{stack.url}/v1/chat/completions"
        big = await client.post(url, json={**CHAT, "messages": [{"role": "user", "content": "x" * 10_000_000}]})
        assert big.status_code == 400
        assert "does not fit" in big.json()["error"]["message"]
        bad = await client.post(
            url, content=b'{"model": "m", "messages": [', headers={"content-type": "application/json"}
        )
        assert bad.status_code == 400
        assert bad.json()["error"]["message"] == "body: not valid JSON"
        assert bad.headers["x-llm-d-request-dropped-reason"] == "rejected-bad-request"
        try:
            huge = await client.post(url, content=b" " * 40_000_000)
        except httpx.TransportError:
            pass  # the gateway closes a connection whose client goes on sending after the answer
        else:
            assert huge.status_code == 413
    assert await stack.metric("heliotrope_refused_requests_total") == 1
    assert await served_by(stack) == "engine-clean"


async def test_a_body_that_is_split_inside_a_character_arrives_whole(stack: Stack) -> None:
    body = json.dumps(
        {**CHAT, "messages": [{"role": "user", "content": "☀️ über 漢字"}], "max_tokens": 2}, ensure_ascii=False
    ).encode()
    cut = body.index("漢".encode()) + 1
    host, port = stack.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )

    def talk() -> bytes:
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(head.encode() + body[:cut])
            connection.settimeout(20)
            time.sleep(0.3)
            connection.sendall(body[cut:])
            received = b""
            while chunk := connection.recv(65536):
                received += chunk
            return received

    answer = await asyncio.to_thread(talk)
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]


async def test_ctrl_c_ends_the_picker_cleanly_and_without_a_traceback(stack: Stack) -> None:
    stack.picker.send_signal(signal.SIGINT)
    await stack.picker.wait(20.0)
    assert stack.picker.exit_code == 0
    assert "Traceback" not in stack.picker.log_tail()
