"""Sleep, clock, faults, clients that leave, limits, and time."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.engine import SleepLevel

Serve = Callable[..., Awaitable[ServedEngine]]
Connect = Callable[[str], httpx.AsyncClient]

PROFILE = "llama-3.1-70b-h100-tp4"
MODEL = "meta-llama/Llama-3.1-70B-Instruct"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": True}
# Longer than any test waits, at the speed of the fixtures.
FOREVER: dict[str, Any] = BODY | {"max_tokens": 4000}


async def state(http: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await http.get("/emulator/v1/state")).json()
    return found


async def until(http: httpx.AsyncClient, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Poll the engine's state until it is as wanted."""
    async with asyncio.timeout(20):
        while True:
            found = await state(http)
            if condition(found):
                return found


async def test_sleep_drops_what_runs_and_holds_what_comes(serve: Serve, connect: Connect, model: EngineModel) -> None:
    engine = await serve(engine_model=replace(model, sleep_watts=40.0))
    async with connect(engine.url) as http:
        await sleep_and_wake(http)


async def sleep_and_wake(http: httpx.AsyncClient) -> None:
    running = asyncio.create_task(http.post("/v1/chat/completions", json=FOREVER))
    streaming = asyncio.create_task(http.post("/v1/chat/completions", json=FOREVER | {"stream": True}))
    await until(http, lambda s: s["running"] == 2)
    assert (await http.post("/sleep", params={"level": "2"})).json() == {"status": "sleeping", "level": 2}
    assert (await running).json()["choices"][0]["finish_reason"] == "abort"
    events = (await streaming).text.split("\n\n")
    assert events[-2] == "data: [DONE]"
    assert json.loads(events[-3].removeprefix("data: "))["choices"][0]["finish_reason"] == "abort"
    assert (await http.get("/is_sleeping")).json() == {"is_sleeping": True}
    page = (await http.get("/metrics")).text
    assert 'sleep_state="awake"} 0' in page
    assert 'sleep_state="discard_all"} 1' in page
    assert 'finished_reason="abort"} 2' in page

    asleep = await state(http)
    held = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
    later = await until(http, lambda s: s["waiting"] == 1 and s["engine_seconds"] > asleep["engine_seconds"] + 1)
    assert later["running"] == 0
    assert later["kv_blocks"]["cached"] == 0
    drawn = later["joules"]["asleep"] - asleep["joules"]["asleep"]
    elapsed = later["engine_seconds"] - asleep["engine_seconds"]
    assert drawn == pytest.approx(40 * elapsed)
    assert later["joules"]["idle"] == asleep["joules"]["idle"]

    assert (await http.post("/wake_up")).json() == {"status": "awake", "tags": None}
    assert (await held).json()["choices"][0]["finish_reason"] == "length"
    assert (await http.get("/is_sleeping")).json() == {"is_sleeping": False}


async def test_a_late_engine_may_be_switched(engine: ServedEngine, http: httpx.AsyncClient) -> None:
    for switch in (
        lambda: engine.driver.set_clock(900),
        lambda: engine.driver.sleep(SleepLevel.DISCARDED),
        engine.driver.wake_up,
    ):
        running = asyncio.create_task(http.post("/v1/chat/completions", json=BODY | {"max_tokens": 200}))
        await until(http, lambda s: s["running"] == 1)
        # The machine stands still for many steps; then the switch comes before the engine has caught up.
        time.sleep(0.05)  # noqa: ASYNC251
        switch()
        engine.driver.wake_up()
        assert (await running).status_code == 200
        found = await state(http)
        assert found["joules"]["total"] > found["joules"]["busy"] > 0
        assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize("level", ["3", "-1", "deep"])
async def test_an_unknown_depth_of_sleep_is_refused(http: httpx.AsyncClient, level: str) -> None:
    response = await http.post("/sleep", params={"level": level})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "query.level")
    assert (await http.get("/is_sleeping")).json() == {"is_sleeping": False}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_takes_its_request_along(
    engine: ServedEngine, http: httpx.AsyncClient, stream: bool
) -> None:
    reader, writer = await asyncio.open_connection(engine.host, engine.port)
    body = json.dumps(FOREVER | {"stream": stream}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    if stream:
        assert await reader.readuntil(b'"content":""')
    await until(http, lambda s: s["running"] == 1)
    writer.close()
    await writer.wait_closed()
    await until(http, lambda s: s["running"] == s["kv_blocks"]["used"] == 0)
    (left,) = (await http.get("/emulator/v1/requests")).json()["requests"]
    assert left["finish_reason"] == "abort"
    assert left["joules"] > 0
    assert 'finished_reason="abort"} 0' in (await http.get("/metrics")).text


async def test_a_client_that_never_reads_is_cut_off(engine: ServedEngine, http: httpx.AsyncClient) -> None:
    reader, writer = await asyncio.open_connection(engine.host, engine.port, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    # Long ids make the chunks long, so that the buffers of both kernels fill.
    body = json.dumps(FOREVER | {"stream": True}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Request-Id: %b\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (b"x" * 7000, len(body), body)
    )
    await until(http, lambda s: s["running"] == 1)
    await until(http, lambda s: s["running"] == 0)
    page = (await http.get("/metrics")).text
    (line,) = (x for x in page.splitlines() if x.startswith("heliotrope_emulator_slow_readers_total"))
    assert line.endswith(" 1")
    writer.close()
    del reader


async def test_the_clock_slows_and_saves(http: httpx.AsyncClient) -> None:
    async def take() -> dict[str, Any]:
        answer = (await http.post("/v1/chat/completions", json=BODY | {"cache_salt": str(time.monotonic())})).json()
        truth: dict[str, Any] = (await http.get(f"/emulator/v1/requests/{answer['id']}")).json()
        return truth

    fast = await take()
    response = await http.post("/emulator/v1/clock", json={"sm_clock_mhz": 900})
    assert response.json() == {"sm_clock_mhz": 900}
    slow = await take()
    assert (await state(http))["sm_clock_mhz"] == 900
    assert slow["ttft_seconds"] > fast["ttft_seconds"] * 1.3
    assert slow["joules"] / slow["e2e_seconds"] < fast["joules"] / fast["e2e_seconds"]
    page = (await http.get("/metrics")).text
    assert page.count("DCGM_FI_DEV_SM_CLOCK{") == page.count("} 900\n") == 4
    clamped = (await http.post("/emulator/v1/clock", json={"sm_clock_mhz": 10**6})).json()
    assert clamped["sm_clock_mhz"] < 10**6
    assert (await http.post("/emulator/v1/clock", json={"mhz": 900})).status_code == 400


async def add_fault(http: httpx.AsyncClient, **fault: Any) -> None:
    response = await http.post("/emulator/v1/faults", json=fault)
    assert response.status_code == 200, response.text


async def test_errors_on_demand(http: httpx.AsyncClient, client: AsyncOpenAI) -> None:
    await add_fault(http, kind="error", status=500, count=1)
    await add_fault(http, kind="error", status=429, count=1)
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model=MODEL, messages=BODY["messages"])
    with pytest.raises(openai.RateLimitError):
        await client.chat.completions.create(model=MODEL, messages=BODY["messages"])
    assert (await client.chat.completions.create(model=MODEL, messages=BODY["messages"])).choices
    assert (await http.get("/emulator/v1/faults")).json() == {"faults": []}


async def test_a_stream_cut_on_demand(http: httpx.AsyncClient) -> None:
    await add_fault(http, kind="cut", after_tokens=2, count=2)
    received = ""

    async def read() -> None:
        nonlocal received
        async with http.stream("POST", "/v1/chat/completions", json=FOREVER | {"stream": True}) as response:
            async for text in response.aiter_text():
                received += text

    with pytest.raises(httpx.RemoteProtocolError):
        await read()
    # The role and two tokens.
    assert received.count("data: ") == 3
    with pytest.raises(httpx.RemoteProtocolError):
        await http.post("/v1/chat/completions", json=FOREVER)
    await until(http, lambda s: s["running"] == 0)
    assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200


async def test_slow_hanging_and_ill_on_demand(http: httpx.AsyncClient) -> None:
    await add_fault(http, kind="slow", delay_seconds=0.2, count=1)
    start = time.monotonic()
    assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
    assert time.monotonic() - start >= 0.2

    await add_fault(http, kind="hang", count=1)
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/v1/chat/completions", json=BODY, timeout=0.2)
    assert (await state(http))["running"] == 0

    await add_fault(http, kind="unhealthy")
    assert (await http.get("/health")).status_code == 503
    assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
    await http.delete("/emulator/v1/faults")
    assert (await http.get("/health")).status_code == 200
    assert (await http.post("/emulator/v1/faults", json={"kind": "explode"})).status_code == 400


async def test_a_full_queue_refuses_and_counts(serve: Serve, connect: Connect) -> None:
    engine = await serve(max_num_queued_reqs=2)
    async with connect(engine.url) as http:
        tasks = [asyncio.create_task(http.post("/v1/chat/completions", json=FOREVER)) for _ in range(2)]
        await until(http, lambda s: s["running"] == 2)
        refused = await http.post("/v1/chat/completions", json=BODY)
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "Service Unavailable"
        assert 'reason="max_num_queued_reqs"} 1' in (await http.get("/metrics")).text
        await http.post("/sleep")
        await asyncio.gather(*tasks)
        await http.post("/wake_up")
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200


async def test_memory_pressure_preempts_and_everyone_is_served(
    serve: Serve, connect: Connect, model: EngineModel
) -> None:
    engine = await serve(engine_model=replace(model, kv_capacity_tokens=640))
    body = BODY | {"max_tokens": 300}
    async with connect(engine.url) as http:
        answers = await asyncio.gather(*(http.post("/v1/chat/completions", json=body) for _ in range(4)))
        assert [a.json()["usage"]["completion_tokens"] for a in answers] == [300] * 4
        found = await state(http)
        assert found["counters"]["preemptions"] > 0
        assert found["counters"]["generation_tokens"] == 1200
        truth = (await http.get("/emulator/v1/requests")).json()["requests"]
        assert sum(t["joules"] for t in truth) == pytest.approx(found["joules"]["busy"])


async def test_time_is_the_models(serve: Serve, connect: Connect, model: EngineModel) -> None:
    engine = await serve(time_scale=4)
    async with connect(engine.url) as http:
        await http.post("/v1/chat/completions", json=BODY)
        start = time.monotonic()
        answer = (await http.post("/v1/chat/completions", json=BODY | {"max_tokens": 100})).json()
        wall = time.monotonic() - start
        truth = (await http.get(f"/emulator/v1/requests/{answer['id']}")).json()
    tokens = answer["usage"]["prompt_tokens"]
    predicted = float(model.prefill_seconds(float(tokens))) + sum(
        float(model.decode_seconds(1.0, float(tokens + i))) for i in range(99)
    )
    # Engine time knows nothing of this machine; the wall clock does.
    assert truth["ttft_seconds"] == pytest.approx(float(model.prefill_seconds(float(tokens))))
    assert truth["e2e_seconds"] == pytest.approx(predicted)
    assert predicted / 4 * 0.98 <= wall <= predicted / 4 + 10


async def test_engines_of_one_process_are_apart(connect: Connect) -> None:
    config = EmulatorConfig(
        engines=tuple(EngineConfig(name=n, profile=PROFILE, region=n.upper(), time_scale=50) for n in ("es", "no"))
    )
    async with Emulator(config) as emulator:
        es, no = emulator.engines["es"], emulator.engines["no"]
        assert es.port != no.port
        async with connect("") as http:
            assert (await http.post(f"{es.url}/v1/chat/completions", json=BODY)).status_code == 200
            states = [(await http.get(f"{e.url}/emulator/v1/state")).json() for e in (es, no)]
    assert [s["region"] for s in states] == ["ES", "NO"]
    assert [s["counters"]["generation_tokens"] for s in states] == [3, 0]


async def test_a_port_in_use_is_named(engine: ServedEngine) -> None:
    taken = EngineConfig(name="b", profile=PROFILE, port=engine.port)
    config = EmulatorConfig(engines=(EngineConfig(name="free", profile=PROFILE), taken))
    with pytest.raises(InvalidInputError) as error:
        async with Emulator(config):
            pass
    assert error.value.path == "engines.1.port"
    assert "cannot listen" in error.value.problem


@pytest.mark.parametrize(
    ("settings", "path"),
    [({"profile": "gpt-5"}, "engines.0.profile"), ({"max_model_len": 10**9}, "engines.0.max_model_len")],
)
async def test_an_impossible_engine_is_named(settings: dict[str, Any], path: str) -> None:
    config = EmulatorConfig(engines=(EngineConfig.model_validate({"name": "a", "profile": PROFILE} | settings),))
    with pytest.raises(InvalidInputError) as error:
        async with Emulator(config):
            pass
    assert error.value.path == path


async def test_stopping_ends_streams_and_leaves_no_task(connect: Connect) -> None:
    before = asyncio.all_tasks()
    config = EmulatorConfig(engines=(EngineConfig(name="a", profile=PROFILE),))
    async with connect("") as http:
        async with Emulator(config) as emulator:
            url = emulator.engines["a"].url
            request = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=FOREVER | {"stream": True}))
            async with connect(url) as watcher:
                await until(watcher, lambda s: s["running"] == 1)
        assert '"finish_reason":"abort"' in (await request).text
    assert asyncio.all_tasks() == before


async def test_waking_takes_its_time_and_the_engine_sleeps_until_then(serve: Serve, connect: Connect) -> None:
    engine = await serve(wake_seconds=25.0)  # half a second at fifty times the pace
    async with connect(engine.url) as http:
        await http.post("/sleep?level=1")
        waking = asyncio.create_task(http.post("/wake_up"))
        await asyncio.sleep(0.1)
        assert (await http.get("/is_sleeping")).json() == {"is_sleeping": True}
        assert (await waking).status_code == 200
        assert (await http.get("/is_sleeping")).json() == {"is_sleeping": False}


async def test_without_the_development_mode_there_is_no_sleep(serve: Serve, connect: Connect) -> None:
    engine = await serve(sleep_mode=False)
    async with connect(engine.url) as http:
        assert (await http.post("/sleep")).status_code == 404
        assert (await http.get("/is_sleeping")).status_code == 404
