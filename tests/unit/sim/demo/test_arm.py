"""An arm waits for its last turns, but not for ever."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from heliotrope_sim.demo.arm import play_out
from heliotrope_sim.demo.client import LoadGenerator, RequestResult
from heliotrope_sim.demo.plan import PlannedRequest

HORIZON_SECONDS = 0.3


@asynccontextmanager
async def engine(answer: Callable[[], Awaitable[object]]) -> AsyncIterator[str]:
    """A server whose answers take what `answer` takes."""

    async def complete(_: web.Request) -> web.Response:
        await answer()
        choices = [{"message": {"role": "assistant", "content": "sun"}, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 5, "completion_tokens": 3}
        return web.json_response({"id": "a", "choices": choices, "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def conversation(turns: int) -> list[PlannedRequest]:
    """Turns planned for every 10 ms."""
    return [
        PlannedRequest(
            request_id=f"turn-{turn}",
            arrival_seconds=turn / 100,
            prompt_tokens=5,
            output_tokens=3,
            streaming=False,
            model="m",
            messages=({"role": "user", "content": "moon"},),
            conversation="c",
            turn=turn,
        )
        for turn in range(turns)
    ]


async def played(url: str, turns: int, patience_seconds: float) -> tuple[list[RequestResult], int]:
    """Results, and how many of them there were at the horizon."""
    results: list[RequestResult] = []
    at_horizon = 0

    async def horizon() -> None:
        nonlocal at_horizon
        await asyncio.sleep(HORIZON_SECONDS)
        at_horizon = len(results)

    generator = LoadGenerator(url, headers_for=lambda _: {}, on_result=results.append)
    load = generator.run(conversation(turns), asyncio.get_running_loop().time())
    await play_out(load, horizon(), patience_seconds)
    return results, at_horizon


async def test_turns_that_a_slow_engine_has_delayed_are_sent_after_the_horizon_and_have_not_failed() -> None:
    async with engine(lambda: asyncio.sleep(HORIZON_SECONDS / 2)) as url:
        results, at_horizon = await played(url, turns=4, patience_seconds=30.0)
    assert [r.turn for r in results] == [0, 1, 2, 3]
    assert at_horizon < 4
    assert not any(r.failed or r.violates(30.0, 1.0) for r in results)


async def test_an_answer_that_never_comes_ends_with_the_arms_patience() -> None:
    never = asyncio.Event()
    async with engine(never.wait) as url:
        async with asyncio.timeout(20.0):
            results, _ = await played(url, turns=2, patience_seconds=0.1)
        never.set()
    assert results == []


async def test_what_breaks_the_clients_is_not_swallowed() -> None:
    async def broken() -> None:
        raise json.JSONDecodeError("no", "", 0)

    with pytest.raises(json.JSONDecodeError):
        await play_out(broken(), asyncio.sleep(0.01), 1.0)
