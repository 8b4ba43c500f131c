"""The picker's own process behind a real Envoy learns from real traffic and decides by what it learned."""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2e.stack import MODEL, Stack, running_stack, start_picker

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(400)]

WORDS = ["sun", "wind", "rain", "hail", "snow", "fog", "tide", "leaf", "moss", "fern"]


async def ask(client: httpx.AsyncClient, url: str, rng: random.Random, number: int) -> None:
    body = {
        "model": MODEL,
        "prompt": f"{number} " + " ".join(rng.choices(WORDS, k=rng.randint(20, 2_000))),
        "max_tokens": rng.randint(2, 60),
        "stream": True,
        "stream_options": {"include_usage": number % 20 != 0},
    }
    headers = {"x-request-id": f"learn-{number}"}
    async with client.stream("POST", f"{url}/v1/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200
        async for _ in answer.aiter_bytes():
            pass


async def traffic(stack: Stack, count: int, seed: int) -> None:
    rng = random.Random(seed)
    numbers = iter(range(seed * 100_000, seed * 100_000 + count))
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:

        async def one_after_the_other() -> None:
            for number in numbers:
                await ask(client, stack.url, rng, number)

        await asyncio.gather(*(one_after_the_other() for _ in range(8)))


async def learned(stack: Stack, seconds: float = 120.0) -> dict[str, Any]:
    """What the picker says of its learning once it has models."""
    async with asyncio.timeout(seconds):
        while True:
            found: dict[str, Any] = (await stack.state())["learning"]
            if found["models"] is not None:
                return found
            await asyncio.sleep(0.2)


async def learned_both(stack: Stack) -> tuple[dict[str, Any], int]:
    """The same once it has a model of both latencies, which may take more traffic; and how many requests were sent."""
    targets: object = "no models"
    for seed in range(1, 6):
        await traffic(stack, 330, seed)
        try:
            found = await learned(stack, 30.0)
        except TimeoutError:  # on a busy machine some samples are not taken
            continue
        targets = found["models"]["targets"].keys()
        if {"ttft_seconds", "tpot_seconds"} <= found["models"]["targets"].keys():
            return found, seed * 330
    raise AssertionError(targets)


async def decision(stack: Stack, request_id: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"http://127.0.0.1:{stack.ports.admin}/debug/decisions/{request_id}")).text


async def test_a_picker_learns_from_traffic_and_keeps_it_over_a_kill(tmp_path: Path) -> None:
    flags = [f"--state-dir={tmp_path / 'state'}"]
    async with running_stack(tmp_path, {"clean": 20.0, "dirty": 400.0}, flags, time_scale=20.0) as stack:
        found, sent = await learned_both(stack)
        assert found["samples"]["refused"]["usage-missing"] == pytest.approx(sent / 20, abs=2 * sent / 330)
        assert found["sources"]["ttft_seconds"] == "learned"
        scores = found["models"]["targets"]["tpot_seconds"]
        assert scores["mape"] < scores["analytic_mape"], "engines run at 20 times the speed that the profile says"
        await traffic(stack, 1, seed=9)
        assert '"learned"' in await decision(stack, "learn-900000")
        await stack.picker.kill()
        picker, stack.ports = await start_picker(tmp_path, stack.resources, *flags)
        try:
            again = await learned(stack)
            assert again["models"]["digest"] == found["models"]["digest"]
            assert again["sources"] == found["sources"]
        finally:
            await picker.stop()
