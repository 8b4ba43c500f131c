"""Pulls of several engines out of one: its link is shared, and what each took is told."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig
from heliotrope_sim.engine import SleepLevel

PROMPT = list(range(100_000, 100_000 + 160))
ALONE_SECONDS = 160 * 1000 / 50_000
"""160 tokens of 1,000 bytes over 50 kB/s."""
LINK = {
    "bytes_per_second": 50_000.0,
    "latency_seconds": 0.0,
    "network_joules_per_bit": 0.0,
    "sender_joules_per_bit": 1e-9,
    "receiver_joules_per_bit": 1e-9,
}


def engine(name: str) -> EngineConfig:
    return EngineConfig.model_validate(
        {
            "name": name,
            "profile": "llama-3.1-70b-h100-tp4",
            "time_scale": 5.0,
            "region": "here",
            "kv_transfer": {"links": {"region": LINK}},
        }
    )


@pytest.fixture
async def emulator(model: EngineModel) -> AsyncIterator[Emulator]:
    names = ("source", "one", "two")
    small = replace(model, kv_bytes_per_token=1_000)
    config = EmulatorConfig(engines=tuple(engine(name) for name in names))
    async with Emulator(config, dict.fromkeys(names, small)) as running:
        yield running


async def ask(emulator: Emulator, name: str, last: int, *, pull: bool) -> dict[str, Any]:
    """What a request truly took."""
    source, at = emulator.engines["source"], emulator.engines[name]
    body: dict[str, Any] = {"model": "m", "prompt": [*PROMPT, last], "max_tokens": 1}
    if pull:
        peer = {"remote_host": source.host, "remote_port": source.port}
        body["kv_transfer_params"] = {"remote_kv_source": peer}
    async with httpx.AsyncClient(base_url=at.url, trust_env=False, timeout=30.0) as http:
        body["model"] = at.driver.served_model
        answer = await http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = (await http.get(f"/emulator/v1/requests/{answer.json()['id']}")).json()
    assert found["external_tokens"] == (160 if pull else 0)
    return found


async def test_two_pulls_at_once_take_twice_as_long(emulator: Emulator) -> None:
    await ask(emulator, "source", 1, pull=False)
    alone = await ask(emulator, "one", 2, pull=True)
    assert alone["ttft_seconds"] >= ALONE_SECONDS
    driver = emulator.engines["one"].driver
    driver.sleep(SleepLevel.WEIGHTS_OFFLOADED)
    driver.wake_up()
    together = await asyncio.gather(*(ask(emulator, name, 3, pull=True) for name in ("one", "two")))
    # Requests come one after the other by less than a transfer: so each shares most of its time.
    waited = sum(request["ttft_seconds"] for request in together)
    assert waited > 2.0 * alone["ttft_seconds"]
    assert max(request["ttft_seconds"] for request in together) >= 1.5 * ALONE_SECONDS
    async with httpx.AsyncClient(trust_env=False) as http:
        page = (await http.get(f"{emulator.engines['two'].url}/metrics")).text
    (line,) = [each for each in page.splitlines() if each.startswith("vllm:nixl_xfer_time_seconds_sum")]
    assert float(line.split()[-1]) >= 1.5 * ALONE_SECONDS
    assert emulator._networks[5.0][0].flows == [], "nothing is on its way"


async def test_pulls_one_after_the_other_have_the_link_for_themselves(emulator: Emulator) -> None:
    await ask(emulator, "source", 1, pull=False)
    first = await ask(emulator, "one", 2, pull=True)
    second = await ask(emulator, "two", 2, pull=True)
    loads = [emulator.engines[name].driver.engine.external.load_ns for name in ("one", "two")]
    assert loads == [round(ALONE_SECONDS * 1e9)] * 2
    assert min(first["ttft_seconds"], second["ttft_seconds"]) >= ALONE_SECONDS
