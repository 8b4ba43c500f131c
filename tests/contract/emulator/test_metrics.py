"""/metrics: vLLM's and DCGM's names, counts that agree with what was served, and energy that is exact when read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from heliotrope_sim.emulator import ServedEngine

Serve = Callable[..., Awaitable[ServedEngine]]
Connect = Callable[[str], httpx.AsyncClient]

# From a page of vLLM 0.32.
COUNTERS = {
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:prompt_tokens_by_source_total",
    "vllm:prompt_tokens_cached_total",
    "vllm:prompt_tokens_cached_by_source_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:admission_rejections_total",
}
GAUGES = {
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:engine_sleep_state",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_prefill_kv_computed_tokens",
    "vllm:iteration_tokens_total",
}
# Prometheus' parser adds `_total` to the samples of every counter.
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total"
DCGM = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK"}


class Scrape:
    """One page, read by Prometheus' own parser."""

    def __init__(self, text: str) -> None:
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        self.samples = {
            (s.name, *sorted((k, v) for k, v in s.labels.items() if k not in ("engine", "model_name"))): s
            for f in self.families.values()
            for s in f.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return float(self.samples[name, *sorted(labels.items())].value)

    def total(self, name: str) -> float:
        return sum(s.value for key, s in self.samples.items() if key[0] == name)


async def scrape(http: httpx.AsyncClient) -> Scrape:
    response = await http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(response.text)


async def ask(http: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "once upon a time " * 20}], "max_tokens": 5, "ignore_eos": True}
    response = await http.post("/v1/chat/completions", json=body | options)
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    return answer


async def test_every_name_is_there_with_its_type_and_labels(http: httpx.AsyncClient) -> None:
    page = await scrape(http)
    kinds = {name: family.type for name, family in page.families.items()}
    for name in COUNTERS:
        assert kinds[name.removesuffix("_total")] == "counter"
    for name in GAUGES:
        assert kinds[name] == "gauge"
    for name in HISTOGRAMS:
        assert kinds[name] == "histogram"
    assert kinds.keys() >= DCGM
    for family in page.families.values():
        for sample in family.samples:
            if family.name.startswith("DCGM"):
                assert sample.labels.keys() >= {"gpu", "UUID", "modelName", "Hostname"}
            elif family.name.startswith("vllm:") and family.name not in (
                "vllm:cache_config_info",
                "vllm:admission_rejections",
            ):
                assert sample.labels["engine"] == "0"
                assert sample.labels["model_name"] == "meta-llama/Llama-3.1-70B-Instruct"
    (config,) = page.families["vllm:cache_config_info"].samples
    assert (config.labels["block_size"], config.labels["num_gpu_blocks"]) == ("16", "256")


async def test_counts_agree_with_what_was_served(http: httpx.AsyncClient) -> None:
    answers = [await ask(http), await ask(http), await ask(http, max_tokens=1)]
    prompt = sum(a["usage"]["prompt_tokens"] for a in answers)
    output = sum(a["usage"]["completion_tokens"] for a in answers)
    cached = sum(a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers)
    assert cached > 0
    page = await scrape(http)
    assert page.value("vllm:prompt_tokens_total") == prompt
    assert page.value("vllm:generation_tokens_total") == output == 11
    assert page.value("vllm:prompt_tokens_by_source_total", source="local_compute") == prompt - cached
    assert page.value("vllm:prompt_tokens_by_source_total", source="local_cache_hit") == cached
    assert page.value("vllm:prompt_tokens_cached_by_source_total", source="device") == cached
    assert page.value("vllm:prefix_cache_queries_total") == prompt
    assert page.value("vllm:prefix_cache_hits_total") == cached
    assert page.value("vllm:request_success_total", finished_reason="length") == 3
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_prompt_tokens"):
        assert page.value(f"vllm:{name}_count") == 3
    assert page.value("vllm:inter_token_latency_seconds_count") == output - 3
    assert page.value("vllm:request_prompt_tokens_sum") == prompt
    assert page.value("vllm:request_generation_tokens_sum") == output
    assert page.value("vllm:request_prefill_kv_computed_tokens_sum") == prompt - cached
    phases = ("request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds")
    assert sum(page.value(f"vllm:{p}_sum") for p in phases) == pytest.approx(
        page.value("vllm:e2e_request_latency_seconds_sum")
    )
    # What no request holds may stay in the cache, but is not in use.
    assert page.value("vllm:kv_cache_usage_perc") == page.value("vllm:num_requests_running") == 0


async def test_energy_is_exact_at_every_scrape_idle_or_not(engine: ServedEngine, http: httpx.AsyncClient) -> None:
    driver = engine.driver
    idle_watts = driver.engine.model.idle_watts
    before = (await http.get("/emulator/v1/state")).json()
    await asyncio.sleep(0.05)
    after = (await http.get("/emulator/v1/state")).json()
    elapsed = after["engine_seconds"] - before["engine_seconds"]
    assert elapsed > 1
    assert after["joules"]["total"] - before["joules"]["total"] == pytest.approx(idle_watts * elapsed)
    assert after["watts"] == pytest.approx(idle_watts)

    readings = [(await scrape(http)).total(ENERGY)]
    task = asyncio.create_task(ask(http, max_tokens=200))
    while not task.done():
        readings.append((await scrape(http)).total(ENERGY))
    answer = await task
    assert readings == sorted(set(readings))
    assert len(readings) > 3

    # The request's own joules and the rest are the whole.
    truth = (await http.get(f"/emulator/v1/requests/{answer['id']}")).json()
    state = (await http.get("/emulator/v1/state")).json()
    assert state["joules"]["busy"] == pytest.approx(truth["joules"])
    assert state["joules"]["total"] == pytest.approx(
        state["joules"]["busy"] + state["joules"]["idle"] + state["joules"]["asleep"]
    )


async def test_the_gpus_of_a_group_share_its_energy(http: httpx.AsyncClient) -> None:
    page = await scrape(http)
    shares = [s for k, s in page.samples.items() if k[0] == ENERGY]
    assert len({s.labels["UUID"] for s in shares}) == 4
    assert max(s.value for s in shares) - min(s.value for s in shares) <= 1
    assert page.value("heliotrope_emulator_host_energy_joules_total") > 0


async def test_running_and_waiting_are_seen_while_they_last(serve: Serve, connect: Connect) -> None:
    engine = await serve(time_scale=1)
    async with connect(engine.url) as http:
        tasks = [asyncio.create_task(ask(http, max_tokens=200, cache_salt=str(i))) for i in range(12)]
        async with asyncio.timeout(20):
            while True:
                page = await scrape(http)
                running, waiting = page.value("vllm:num_requests_running"), page.value("vllm:num_requests_waiting")
                assert page.value("vllm:num_requests_waiting_by_reason", reason="capacity") == waiting
                if (running, waiting) == (8, 4):
                    break
        assert page.value("vllm:kv_cache_usage_perc") == pytest.approx(8 * 6 / 256, abs=8 / 256)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
