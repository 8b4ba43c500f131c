"""The picker behind a real Envoy in front of a real vLLM: what it reads is there, and requests pass whole."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

import httpx
import openai
import pytest
from e2e.stack import Stack
from tests.vllm.emulated import emulated_engine, emulated_page
from tests.vllm.engine import MAX_MODEL_LEN, MAX_NUM_SEQS, MODEL, RECORDED_PAGE, RealEngine
from tests.vllm.pages import differences, families
from tests.vllm.shapes import shape_of
from tests.vllm.stack import ENDPOINT

from heliotrope_epp.datalayer.endpoint import EngineMetrics
from heliotrope_epp.datalayer.metrics_text import VLLM, engine_metrics

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

PATIENCE_SECONDS = 120.0
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "How green is the grid?"}]}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "The sun"}
EXACT = {"ignore_eos": True}
STREAM: dict[str, Any] = {"max_tokens": 60, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}
ANSWERS: dict[str, dict[str, Any]] = {
    "chat": {"max_tokens": 5},
    "chat-stream": STREAM,
    "chat-stream-usage": STREAM | USAGE,
    "unknown-model": {"model": "another"},
    "no-output": {"max_tokens": 0},
    "long-output": {"max_tokens": MAX_MODEL_LEN + 1},
    "long-prompt": {"messages": [{"role": "user", "content": "word " * 2 * MAX_MODEL_LEN}]},
    "wrong-type": {"max_tokens": "many"},
    "usage-without-stream": USAGE,
    "completion": {"prompt": "The wind", "max_tokens": 5},
    "completion-stream": {"prompt": "The wind"} | STREAM,
    "completion-stream-usage": {"prompt": "The wind"} | STREAM | USAGE,
    "no-prompt": {"prompt": "", "max_tokens": 5},
}


async def page(engine: RealEngine) -> str:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        return (await http.get(f"{engine.url}/metrics")).raise_for_status().text


async def metrics(engine: RealEngine) -> EngineMetrics:
    return engine_metrics((await page(engine)).encode(), VLLM, scraped_s=0.0)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.05)


async def idle(engine: RealEngine) -> EngineMetrics:
    """Its metrics once nothing runs."""

    async def empty() -> bool:
        seen = await metrics(engine)
        return (seen.running, seen.waiting) == (0.0, 0.0)

    await eventually(empty)
    return await metrics(engine)


@asynccontextmanager
async def load(client: openai.AsyncOpenAI, requests: int) -> AsyncIterator[None]:
    """Streams that run for the length of a block, which one that fails ends; their client then leaves."""

    async def ask(number: int) -> None:
        message: Any = {"role": "user", "content": f"Question {number}: {uuid.uuid4()}"}
        async with client.chat.completions.with_streaming_response.create(
            model=MODEL, messages=[message], max_tokens=MAX_MODEL_LEN - 200, stream=True, extra_body=EXACT
        ) as response:
            async for _ in response.iter_lines():
                pass

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask(number)) for number in range(requests)]
        yield
        for task in asking:
            task.cancel()


async def test_every_metric_that_the_picker_reads_is_there(engine: RealEngine) -> None:
    await idle(engine)
    text = await page(engine)
    names = {getattr(VLLM, f.name).decode() for f in fields(VLLM) if not f.name.endswith("_label")}
    assert names - {line.partition("{")[0] for line in text.splitlines()} == set()
    read = engine_metrics(text.encode(), VLLM, scraped_s=0.0)
    # The accelerators' energy is not the engine's to tell.
    assert {f.name for f in fields(read) if getattr(read, f.name) is None} == {
        "energy_millijoules",
        "power_limit_watts",
        "power_watts",
        "throttled",
        "sm_clock_mhz",
    }
    assert (read.running, read.waiting, read.kv_usage, read.asleep) == (0.0, 0.0, 0.0, False)
    assert read.block_size is not None
    assert read.num_blocks is not None
    assert read.block_size * read.num_blocks >= MAX_MODEL_LEN


async def test_the_recorded_page_is_what_this_vllm_says(engine: RealEngine) -> None:
    recorded, live = families(RECORDED_PAGE.read_text()), families(await page(engine))
    assert {n: f.kind for n, f in recorded.items()} == {n: f.kind for n, f in live.items()}
    assert {n: f.series for n, f in recorded.items()} == {n: f.series for n, f in live.items()}


async def test_the_emulator_says_nothing_that_vllm_does_not_say(engine: RealEngine) -> None:
    assert differences(await emulated_page(MAX_MODEL_LEN), await page(engine)) == []


@pytest.mark.parametrize("change", ANSWERS.values(), ids=ANSWERS)
async def test_the_emulator_answers_in_vllms_shape(engine: RealEngine, change: dict[str, Any]) -> None:
    path, body = ("/v1/completions", COMPLETION) if "prompt" in change else ("/v1/chat/completions", CHAT)
    async with emulated_engine(MAX_MODEL_LEN) as emulated, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        mine = await shape_of(http, emulated, path, body | EXACT | change)
        theirs = await shape_of(http, engine.url, path, body | EXACT | change)
    assert len(mine) == len(theirs)
    assert [only_mine for a, b in zip(mine, theirs, strict=True) if (only_mine := a - b)] == []
    # What vLLM adds is null, or about things that the emulator doesn't have.
    more = {field for a, b in zip(mine, theirs, strict=True) for field in b - a}
    assert {field for field in more if not field.endswith((": NoneType", ".created_cache_tokens: int"))} == set()


async def test_the_openai_client_gets_answers_streams_and_models(
    client: openai.AsyncOpenAI, stack: Stack, engine: RealEngine
) -> None:
    before = await idle(engine)
    chat = await client.chat.completions.create(**CHAT, max_tokens=5, extra_body=EXACT)
    stream = await client.chat.completions.create(
        **CHAT, max_tokens=6, stream=True, stream_options={"include_usage": True}, extra_body=EXACT
    )
    chunks = [chunk async for chunk in stream]
    text = await client.completions.create(model=MODEL, prompt="The sun", max_tokens=3, extra_body=EXACT)
    parts = await client.completions.create(
        model=MODEL,
        prompt="The wind",
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=EXACT,
    )
    pieces = [piece async for piece in parts]

    usages = [chat.usage, chunks[-1].usage, text.usage, pieces[-1].usage]
    assert [usage and usage.completion_tokens for usage in usages] == [5, 6, 3, 4]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert [model.id async for model in client.models.list()] == [MODEL]

    # What the picker read at the end of the answers is what their client got, and what the engine counted.
    prompts = sum(usage.prompt_tokens for usage in usages if usage)
    await stack.settles("heliotrope_output_tokens_total", 18)
    assert await stack.metric("heliotrope_prompt_tokens_total") == prompts
    after = await idle(engine)
    assert after.generation_tokens_total == (before.generation_tokens_total or 0.0) + 18
    assert after.prompt_tokens_total == (before.prompt_tokens_total or 0.0) + prompts
    assert await stack.metric("heliotrope_time_to_first_token_seconds_count") == 2
    assert await stack.metric("heliotrope_time_per_output_token_seconds_count") == 2
    # The policy decided, by the region's signal.
    assert await stack.metric("heliotrope_decisions_total") == 4
    assert await stack.metric("heliotrope_dropped_terms_total") == 0
    assert await stack.metric("heliotrope_estimated_grams_co2e_total") > 0


async def test_a_stream_without_usage_passes_whole(client: openai.AsyncOpenAI, stack: Stack) -> None:
    stream = await client.chat.completions.create(**CHAT, max_tokens=8, stream=True, extra_body=EXACT)
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)
    await stack.settles("heliotrope_requests_total", 1)
    assert await stack.metric("heliotrope_output_tokens_total") == 0


async def test_the_engines_errors_pass_unchanged(stack: Stack, engine: RealEngine) -> None:
    bodies = [
        CHAT | {"model": "another"},
        CHAT | {"max_tokens": 10 * MAX_MODEL_LEN},
        CHAT | {"messages": [{"role": "user", "content": "word " * 2 * MAX_MODEL_LEN}]},
        CHAT | {"temperature": -1.0},
    ]
    statuses = []
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for body in bodies:
            direct = await http.post(f"{engine.url}/v1/chat/completions", json=body)
            through = await http.post(f"{stack.url}/v1/chat/completions", json=body)
            assert (through.status_code, through.json()) == (direct.status_code, direct.json())
            statuses.append(through.status_code)
    assert statuses == [404, 400, 400, 400]
    await stack.settles("heliotrope_requests_total", len(bodies))
    assert await stack.metric("heliotrope_rejected_requests_total") == 0
    assert await stack.metric("heliotrope_requests_in_flight") == 0


async def test_a_full_engine_shows_its_batch_and_its_queue_and_lets_go_of_clients_that_left(
    client: openai.AsyncOpenAI, stack: Stack, engine: RealEngine
) -> None:
    waiting = 4
    before = await idle(engine)
    ended = _ended(await page(engine))
    state: dict[str, Any] = {}

    async def full() -> bool:
        seen = await metrics(engine)
        return (seen.running, seen.waiting) == (MAX_NUM_SEQS, waiting)

    async def shown() -> bool:
        (state["endpoint"],) = (await stack.state())["endpoints"]
        return bool(state["endpoint"]["waiting"] == waiting)

    async with load(client, MAX_NUM_SEQS + waiting):
        await eventually(full)
        await eventually(shown)
        during = await metrics(engine)

    seen = state["endpoint"]
    assert (seen["endpoint"], seen["region"], seen["asleep"]) == (ENDPOINT, "home", False)
    assert (seen["own_requests"], seen["running"]) == (MAX_NUM_SEQS + waiting, MAX_NUM_SEQS)
    assert during.block_size is not None
    assert during.num_blocks is not None
    assert during.kv_usage is not None
    blocks = during.kv_usage * during.num_blocks
    assert MAX_NUM_SEQS <= round(blocks) <= MAX_NUM_SEQS * MAX_MODEL_LEN / during.block_size
    assert seen["kv_tokens"] >= MAX_NUM_SEQS * during.block_size
    assert (during.generation_tokens_total or 0.0) > (before.generation_tokens_total or 0.0)
    assert (during.prompt_tokens_total or 0.0) > (before.prompt_tokens_total or 0.0)

    await idle(engine)
    await stack.settles("heliotrope_requests_in_flight", 0)
    assert _ended(await page(engine)) == ended  # none went on to its end; vLLM counts no request whose client left


async def test_a_prompt_that_comes_again_is_found_in_the_cache(
    client: openai.AsyncOpenAI, stack: Stack, engine: RealEngine
) -> None:
    before = await idle(engine)
    prompt = f"{uuid.uuid4()} " + "the sun is shining on the grid " * 40
    answers = [
        await client.completions.create(model=MODEL, prompt=prompt, max_tokens=2, extra_body=EXACT) for _ in range(2)
    ]
    cached = []
    for answer in answers:
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        cached.append(answer.usage.prompt_tokens_details.cached_tokens or 0)
    after = await idle(engine)
    assert after.block_size is not None
    assert answers[0].usage is not None
    whole_blocks = answers[0].usage.prompt_tokens // after.block_size * after.block_size
    assert cached == [0, whole_blocks]
    assert whole_blocks > 0
    assert after.prefix_cache_hits_total == (before.prefix_cache_hits_total or 0.0) + whole_blocks
    assert after.prefix_cache_queries_total == (
        (before.prefix_cache_queries_total or 0.0) + 2 * answers[0].usage.prompt_tokens
    )
    await stack.settles("heliotrope_cached_tokens_total", whole_blocks)


async def test_bad_json_never_reaches_the_engine(stack: Stack, engine: RealEngine) -> None:
    before = await idle(engine)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.post(
            f"{stack.url}/v1/chat/completions",
            content=json.dumps(CHAT)[:-1],
            headers={"content-type": "application/json"},
        )
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "body: not valid JSON")
    assert await idle(engine) == before


def _ended(text: str) -> float:
    """Requests that came to an end."""
    lines = [line for line in text.splitlines() if line.startswith("vllm:request_success_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)
