"""Prefill here, decode there: the same answer, with the transfer in its time and its joules on both sides."""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator import ServedEngine
from heliotrope_sim.engine import SleepLevel

Serve = Callable[..., Awaitable[ServedEngine]]
Front = Callable[..., Awaitable[httpx.AsyncClient]]
Connect = Callable[[str], httpx.AsyncClient]

PROMPT = "tell me everything about the sun and its spots " * 12
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 20, "ignore_eos": True}
# 1,000 tokens per second of engine time: much longer than anything else takes.
SLOW_LINK = {
    "bytes_per_second": 327_680_000.0,
    "latency_seconds": 0.25,
    "network_joules_per_bit": 4e-9,
    "sender_joules_per_bit": 2e-9,
    "receiver_joules_per_bit": 1e-9,
}
QUICK_LINK = SLOW_LINK | {"bytes_per_second": 32_768_000_000.0, "latency_seconds": 0.05}
SLOW: dict[str, Any] = {"links": {"region": SLOW_LINK}}
BYTES_PER_TOKEN = 327_680


def target(engine: ServedEngine) -> str:
    return engine.url.removeprefix("http://")


def via(prefiller: ServedEngine, name: str = "one") -> dict[str, str]:
    return {"x-prefiller-host-port": target(prefiller), "x-request-id": name}


def alike(text: str) -> str:
    """An answer without the times and names at which two engines differ."""
    return re.sub(r'"created":\s*\d+', "", text)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def used_blocks(engine: ServedEngine) -> int:
    return engine.driver.engine.kv.used_blocks


def sample(page: str, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", page, re.MULTILINE)
    return float(value)


def check_books(engine: ServedEngine) -> None:
    """What its requests drew is what it drew."""
    now_ns = engine.driver.clock.now_ns()
    drawn = engine.driver.engine.energy.busy_picojoules + engine.driver.engine.transfers.picojoules(now_ns)
    assert sum(f.joules for f in engine.driver.finished.values()) == pytest.approx(drawn / 1e12, rel=1e-9)


@pytest.mark.parametrize("stream", [True, False])
async def test_the_answer_is_that_of_one_engine(serve: Serve, front: Front, stream: bool) -> None:
    alone = await serve("alone")
    prefiller, decoder = await serve("p", kv_transfer={}), await serve("d", kv_transfer={})
    direct, sidecar = await front(alone.url), await front(decoder.url)
    body = BODY | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})
    expected = await direct.post("/v1/chat/completions", json=body, headers={"x-request-id": "one"})
    got = await sidecar.post("/v1/chat/completions", json=body, headers=via(prefiller))
    assert (got.status_code, alike(got.text)) == (200, alike(expected.text))
    assert got.headers["x-inference-pod"] == "d"
    assert prefiller.driver.engine.counters.prefill_tokens == 144
    assert decoder.driver.engine.counters.prefill_tokens == 0
    await until(lambda: used_blocks(prefiller) == 0)
    assert prefiller.driver.engine.num_held == 0
    # The prefiller still knows the prompt, and its cached tokens are what the client is told of.
    again = await sidecar.post("/v1/chat/completions", json=BODY, headers=via(prefiller, "two"))
    assert again.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 128}


async def test_the_transfer_takes_time_and_joules_on_both_sides(serve: Serve, front: Front) -> None:
    prefiller, decoder = await serve("p", kv_transfer=SLOW), await serve("d", kv_transfer=SLOW)
    sidecar = await front(decoder.url)
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=via(prefiller))
    await until(lambda: prefiller.driver.engine.num_held == 0)
    sent, received = (e.driver.finished[answer.json()["id"]] for e in (prefiller, decoder))
    tokens = answer.json()["usage"]["prompt_tokens"]
    assert received.ttft_seconds is not None
    assert received.ttft_seconds == pytest.approx(0.25 + tokens / 1000, abs=0.05)
    bits = tokens * BYTES_PER_TOKEN * 8
    assert sent.sent_joules == pytest.approx(2e-9 * bits)
    assert sent.joules > sent.sent_joules
    steps = decoder.driver.engine.energy.busy_picojoules / 1e12
    assert received.joules == pytest.approx(steps + 5e-9 * bits)
    for engine in (prefiller, decoder):
        check_books(engine)
    page = (await sidecar.get("/metrics")).text
    assert sample(page, "vllm:nixl_bytes_transferred_sum") == tokens * BYTES_PER_TOKEN
    assert sample(page, "vllm:nixl_xfer_time_seconds_sum") == pytest.approx(0.25 + tokens / 1000)
    assert sample(page, "vllm:nixl_num_descriptors_sum") == -(-tokens // 16)
    assert sample(page, "vllm:nixl_num_failed_transfers_total") == 0
    async with httpx.AsyncClient(base_url=prefiller.url) as http:
        assert sample((await http.get("/metrics")).text, "heliotrope_emulator_sent_bytes_total") == bits / 8


async def test_plain_completions_are_split_too(serve: Serve, front: Front) -> None:
    prefiller, decoder = await serve("p", kv_transfer={}), await serve("d", kv_transfer={})
    sidecar = await front(decoder.url)
    body = {"prompt": PROMPT, "max_tokens": 20, "min_tokens": 3, "ignore_eos": True}
    split = await sidecar.post("/v1/completions", json=body, headers=via(prefiller))
    whole = await sidecar.post("/v1/completions", json=body | {"cache_salt": "own"})
    assert split.json()["choices"] == whole.json()["choices"]
    assert prefiller.driver.engine.counters.prefill_tokens == len(PROMPT) // 4
    state = (await sidecar.get("/emulator/v1/state")).json()
    assert (state["role"], state["loading"], state["held"], state["encoder"]) == ("generate", 0, 0, None)


async def test_pages_are_read_by_prometheus_own_parser(serve: Serve, connect: Connect) -> None:
    engine = await serve("e", kv_transfer={}, encoder={})
    async with connect(engine.url) as http:
        names = [family.name for family in text_string_to_metric_families((await http.get("/metrics")).text)]
    assert len(names) == len(set(names))
    # Those of vLLM 0.32's NixlConnector (vllm/distributed/kv_transfer/kv_connector/v1/nixl/stats.py).
    assert {name for name in names if name.startswith("vllm:nixl_")} == {
        "vllm:nixl_xfer_time_seconds",
        "vllm:nixl_post_time_seconds",
        "vllm:nixl_bytes_transferred",
        "vllm:nixl_num_descriptors",
        "vllm:nixl_num_failed_transfers",
        "vllm:nixl_num_failed_notifications",
        "vllm:nixl_num_kv_expired_reqs",
    }
    assert {"vllm:mm_cache_queries", "vllm:mm_cache_hits"} <= set(names)


async def test_many_pull_at_once_and_nothing_is_left(serve: Serve, front: Front) -> None:
    prefiller, decoder = await serve("p", kv_transfer=SLOW), await serve("d", kv_transfer=SLOW)
    sidecar = await front(decoder.url)

    async def ask(i: int) -> httpx.Response:
        body = BODY | {"messages": [{"role": "user", "content": f"{i} {PROMPT}"}]}
        return await sidecar.post("/v1/chat/completions", json=body, headers=via(prefiller, str(i)))

    answers = await asyncio.gather(*(ask(i) for i in range(12)))
    assert [a.status_code for a in answers] == [200] * 12
    assert len({a.json()["choices"][0]["message"]["content"] for a in answers}) > 1
    await until(lambda: used_blocks(prefiller) == used_blocks(decoder) == 0)
    for engine in (prefiller, decoder):
        check_books(engine)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("policy", ["fail", "recompute"])
async def test_a_prefiller_that_loses_its_memory_during_the_transfer(
    serve: Serve, front: Front, policy: str, stream: bool
) -> None:
    endless = {
        "links": {"region": SLOW_LINK | {"latency_seconds": 10_000.0}},
        "kv_load_failure_policy": policy,
        "kv_lease_duration": 60,
    }
    prefiller, decoder = await serve("p", kv_transfer=endless), await serve("d", kv_transfer=endless)
    sidecar = await front(decoder.url)
    asked = asyncio.create_task(
        sidecar.post("/v1/chat/completions", json=BODY | {"stream": stream}, headers=via(prefiller))
    )
    await until(lambda: decoder.driver.engine.num_loading == 1)
    prefiller.driver.sleep(SleepLevel.DISCARDED)
    answer = await asked
    (record,) = decoder.driver.finished.values()
    if policy == "recompute":
        assert (answer.status_code, record.finish_reason) == (200, "length")
        assert decoder.driver.engine.counters.prefill_tokens == 144
        assert answer.text.endswith("data: [DONE]\n\n") == stream
    else:
        assert answer.status_code == (200 if stream else 500)
        assert "Internal server error" in answer.text
        assert (record.finish_reason, decoder.driver.metrics.finished["error"]) == ("error", 1)
    assert sample((await sidecar.get("/metrics")).text, "vllm:nixl_num_failed_transfers_total") == 1
    assert used_blocks(decoder) == used_blocks(prefiller) == 0


async def test_a_client_that_leaves_during_the_transfer_frees_both_engines(serve: Serve, front: Front) -> None:
    endless = {"links": {"region": SLOW_LINK | {"latency_seconds": 10_000.0}}, "kv_lease_duration": 150}
    prefiller, decoder = await serve("p", kv_transfer=endless), await serve("d", kv_transfer=endless)
    sidecar = await front(decoder.url)
    asked = asyncio.create_task(sidecar.post("/v1/chat/completions", json=BODY, headers=via(prefiller)))
    await until(lambda: decoder.driver.engine.num_loading == 1)
    assert prefiller.driver.engine.num_held == 1
    # The reader gives signs of itself.
    deadline = prefiller.driver.engine.next_work_ns
    assert deadline is not None
    await until(lambda: (prefiller.driver.engine.next_work_ns or 0) > deadline)
    asked.cancel()
    await until(lambda: used_blocks(prefiller) == used_blocks(decoder) == 0)
    assert prefiller.driver.engine.external.expired_holds == 0


async def test_a_decoder_that_refuses_a_request_frees_its_prefiller(serve: Serve, front: Front) -> None:
    prefiller, decoder = await serve("p", kv_transfer={}), await serve("d", kv_transfer={})
    sidecar = await front(decoder.url)
    await sidecar.post("/emulator/v1/faults", json={"kind": "error", "status": 503, "count": 1})
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=via(prefiller))
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "Injected fault")
    await until(lambda: prefiller.driver.engine.num_held == used_blocks(prefiller) == 0)
    assert prefiller.driver.engine.external.expired_holds == 0


@pytest.mark.slow
async def test_whatever_clients_do_nothing_is_left_and_no_joule_is_lost(serve: Serve, front: Front) -> None:
    # Of prefills whose client has left, long enough for a machine that is slow.
    transfer = {"links": {"region": QUICK_LINK}, "kv_lease_duration": 300}
    engines = {name: await serve(name, kv_transfer=transfer) for name in ("p0", "p1", "d0", "d1")}
    sidecars = [await front(engines[name].url, enable_p2p_pull=True) for name in ("d0", "d1")]
    rng = random.Random(7)

    async def ask(index: int) -> int | None:
        body = BODY | {
            "messages": [{"role": "user", "content": PROMPT[rng.randrange(3) :] * rng.randint(1, 4)}],
            "max_tokens": rng.randint(1, 60),
            "stream": rng.random() < 0.5,
        }
        headers = {"x-request-id": f"r{index}"}
        if rng.random() < 0.8:
            headers["x-prefiller-host-port"] = target(engines[rng.choice(("p0", "p1"))])
        if rng.random() < 0.3:
            headers["x-kv-cache-source-host-port"] = target(rng.choice(list(engines.values())))
        await asyncio.sleep(rng.random() / 4)
        asked = sidecars[index % 2].post("/v1/chat/completions", json=body, headers=headers)
        try:
            return (await asyncio.wait_for(asked, rng.choice((30, 30, 0.02, 0.1)))).status_code
        except TimeoutError:
            return None

    statuses = await asyncio.gather(*(ask(i) for i in range(60)))
    assert statuses.count(200) > 20
    assert set(statuses) == {200, None}
    await until(lambda: not any(e.driver.engine.in_flight for e in engines.values()))
    await until(lambda: not any(e.driver.engine.num_held or used_blocks(e) for e in engines.values()))
    ended = [e.driver.clock.now_ns() for e in engines.values()]
    await until(lambda: all(e.driver.clock.now_ns() > t + 10**9 for e, t in zip(engines.values(), ended, strict=True)))
    for engine in engines.values():
        check_books(engine)


async def test_blocks_that_nobody_reads_are_let_go_after_the_lease(serve: Serve, connect: Connect) -> None:
    prefiller = await serve("p", kv_transfer={"kv_lease_duration": 5})
    async with connect(prefiller.url) as http:
        body = BODY | {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        params = (await http.post("/v1/chat/completions", json=body)).json()["kv_transfer_params"]
        assert params["do_remote_prefill"] is True
        assert (params["remote_host"], params["remote_port"]) == (prefiller.host, prefiller.port)
        assert (params["tp_size"], params["remote_num_tokens"]) == (4, 144)
        assert params["remote_block_ids"] == [list(range(1, 10))]
        await until(lambda: prefiller.driver.engine.external.expired_holds == 1)
        assert used_blocks(prefiller) == 0
        assert sample((await http.get("/metrics")).text, "vllm:nixl_num_kv_expired_reqs_total") == 1


LIES: dict[str, dict[str, Any]] = {
    "another engine": {"remote_engine_id": "somebody"},
    "another request": {"remote_request_id": "chatcmpl-never"},
    "nobody there": {"remote_port": 1},
    "nobody anywhere": {"remote_host": "host.invalid"},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("policy", ["fail", "recompute"])
async def test_a_lie_about_blocks_is_found_out(
    serve: Serve, connect: Connect, lie: dict[str, Any], policy: str
) -> None:
    prefiller, decoder = (
        await serve("p", kv_transfer={}),
        await serve("d", kv_transfer={"kv_load_failure_policy": policy}),
    )
    async with connect(prefiller.url) as p, connect(decoder.url) as d:
        ask = BODY | {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        params = (await p.post("/v1/chat/completions", json=ask)).json()["kv_transfer_params"]
        answer = await d.post("/v1/chat/completions", json=BODY | {"kv_transfer_params": params | lie})
        assert answer.status_code == (500 if policy == "fail" else 200)
        assert decoder.driver.engine.counters.prefill_tokens == (0 if policy == "fail" else 144)
        assert sample((await d.get("/metrics")).text, "vllm:nixl_num_failed_transfers_total") == 1
        assert used_blocks(decoder) == 0


async def test_blocks_of_another_prompt_are_not_taken(serve: Serve, connect: Connect) -> None:
    prefiller, decoder = await serve("p", kv_transfer={}), await serve("d", kv_transfer={})
    async with connect(prefiller.url) as p, connect(decoder.url) as d:
        ask = BODY | {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        params = (await p.post("/v1/chat/completions", json=ask)).json()["kv_transfer_params"]
        other = [{"role": "user", "content": PROMPT.replace("sun", "moo")}]
        for change in ({"messages": other}, {"cache_salt": "another tenant"}):
            answer = await d.post("/v1/chat/completions", json=BODY | change | {"kv_transfer_params": params})
            assert answer.status_code == 500
        assert (await d.post("/v1/chat/completions", json=BODY | {"kv_transfer_params": params})).status_code == 200


async def test_params_that_make_no_sense_are_no_transfer(serve: Serve, connect: Connect) -> None:
    decoder = await serve("d", kv_transfer={})
    async with connect(decoder.url) as d:
        for params in (
            {"do_remote_prefill": True},
            {"do_remote_prefill": True, "remote_block_ids": [[1]], "remote_engine_id": 3},
            {"remote_kv_source": {"remote_host": "a/b", "remote_port": 1}},
            {"remote_kv_source": 3},
        ):
            answer = await d.post("/v1/chat/completions", json=BODY | {"kv_transfer_params": params})
            assert answer.status_code == 200
        page = (await d.get("/metrics")).text
        assert 'heliotrope_emulator_transfer_failures_total{model_name="meta-llama/Llama-3.1-70B-Instruct"' in page
        assert 'reason="params"} 4' in page


@pytest.mark.parametrize("changed", ["block_size", "model"])
async def test_engines_that_do_not_fit_do_not_read_each_other(
    serve: Serve, front: Front, model: EngineModel, changed: str
) -> None:
    other = replace(model, block_size=32) if changed == "block_size" else replace(model, model="other")
    prefiller = await serve("p", kv_transfer={}, engine_model=other, model="m")
    decoder = await serve("d", kv_transfer={"kv_load_failure_policy": "recompute"}, model="m")
    sidecar = await front(decoder.url)
    answer = await sidecar.post("/v1/chat/completions", json=BODY, headers=via(prefiller))
    assert answer.status_code == 200
    assert decoder.driver.engine.counters.prefill_tokens == 144
    assert sample((await sidecar.get("/metrics")).text, "vllm:nixl_num_failed_transfers_total") == 1


async def test_few_tokens_are_computed_rather_than_pulled(serve: Serve, front: Front) -> None:
    prefiller, decoder = await serve("p", kv_transfer={}), await serve("d", kv_transfer={"kv_recompute_threshold": 145})
    sidecar = await front(decoder.url)
    assert (await sidecar.post("/v1/chat/completions", json=BODY, headers=via(prefiller))).status_code == 200
    assert decoder.driver.engine.counters.prefill_tokens == 144
    await until(lambda: prefiller.driver.engine.num_held == 0)
    check_books(prefiller)


async def test_what_the_decoder_has_cached_is_not_pulled(serve: Serve, front: Front) -> None:
    prefiller, decoder = await serve("p", kv_transfer=SLOW), await serve("d", kv_transfer=SLOW)
    sidecar = await front(decoder.url)
    assert (await sidecar.post("/v1/chat/completions", json=BODY)).status_code == 200
    longer = BODY | {"messages": [*BODY["messages"], {"role": "user", "content": "and the moon " * 8}]}
    answer = await sidecar.post("/v1/chat/completions", json=longer, headers=via(prefiller))
    tokens = answer.json()["usage"]["prompt_tokens"]
    await until(lambda: prefiller.driver.engine.num_held == 0)
    # 143 tokens are the same; 8 full blocks of them are cached.
    assert sample((await sidecar.get("/metrics")).text, "vllm:nixl_bytes_transferred_sum") == (
        (tokens - 128) * BYTES_PER_TOKEN
    )
    assert prefiller.driver.finished[answer.json()["id"]].sent_joules == pytest.approx(
        2e-9 * (tokens - 128) * BYTES_PER_TOKEN * 8
    )
    for engine in (prefiller, decoder):
        check_books(engine)


@pytest.mark.parametrize("role", ["kv_consumer", "kv_producer"])
async def test_an_engine_keeps_to_its_role(serve: Serve, front: Front, role: str) -> None:
    roles = {"p": role, "d": "kv_both"} if role == "kv_consumer" else {"p": "kv_both", "d": role}
    prefiller = await serve("p", kv_transfer={"kv_role": roles["p"]})
    decoder = await serve("d", kv_transfer={"kv_role": roles["d"]})
    sidecar = await front(decoder.url)
    assert (await sidecar.post("/v1/chat/completions", json=BODY, headers=via(prefiller))).status_code == 200
    # Nothing was handed over, or nothing was taken: the decoder computes the prompt itself.
    assert decoder.driver.engine.counters.prefill_tokens == 144
    assert prefiller.driver.engine.num_held == (1 if role == "kv_producer" else 0)


async def test_a_prefillers_error_is_the_clients_or_served_locally(serve: Serve, front: Front) -> None:
    prefiller, decoder = await serve("p", kv_transfer={}), await serve("d", kv_transfer={})
    async with httpx.AsyncClient(base_url=prefiller.url) as http:
        await http.post("/emulator/v1/faults", json={"kind": "error", "status": 503, "count": 3})
    strict = await front(decoder.url)
    patient = await front(decoder.url, prefill_max_retries=2, prefill_retry_backoff_seconds=0)
    kind = await front(decoder.url, prefill_fallback=True)
    refused = await strict.post("/v1/chat/completions", json=BODY, headers=via(prefiller))
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "Injected fault")
    served = await patient.post("/v1/chat/completions", json=BODY, headers=via(prefiller))
    assert served.status_code == 200
    assert decoder.driver.engine.counters.prefill_tokens == 0
    async with httpx.AsyncClient(base_url=prefiller.url) as http:
        await http.post("/emulator/v1/faults", json={"kind": "error", "status": 500, "count": 1})
    local = await kind.post("/v1/chat/completions", json=BODY | {"cache_salt": "b"}, headers=via(prefiller))
    assert local.status_code == 200
    assert decoder.driver.engine.counters.prefill_tokens == 144


async def test_clients_do_not_say_where_kv_is(serve: Serve, front: Front, nobody: str) -> None:
    engine = await serve("d", kv_transfer={})
    sidecar = await front(engine.url)
    host, _, port = nobody.partition(":")
    lie = {
        "do_remote_prefill": True,
        "remote_block_ids": [[1]],
        "remote_engine_id": "e",
        "remote_request_id": "r",
        "remote_host": host,
        "remote_port": int(port),
    }
    answer = await sidecar.post("/v1/chat/completions", json=BODY | {"kv_transfer_params": lie})
    assert answer.status_code == 200
