"""Sidecar, prefiller and decoder as processes of their own, one of which is killed."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from heliotrope_sim.children import Child

pytestmark = pytest.mark.slow

PROMPT = "tell me everything about the sun and its spots " * 12
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8, "ignore_eos": True}
ENGINE = {"profile": "llama-3.1-70b-h100-tp4", "time_scale": 20, "max_model_len": 8192}
LINK = {
    "bytes_per_second": 1e12,
    "latency_seconds": 0.01,
    "network_joules_per_bit": 1e-10,
    "sender_joules_per_bit": 1e-10,
    "receiver_joules_per_bit": 1e-10,
}


class Fleet:
    """Processes of one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.children: dict[str, Child] = {}

    async def engine(self, name: str, **transfer: Any) -> str:
        """Start an engine; its address."""
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps({"engines": [{"name": name, **ENGINE, "kv_transfer": transfer}]}))
        line = await self._start(name, "heliotrope_sim.emulator", "--config", str(file))
        url: str = json.loads(line)["engines"][0]["url"]
        return url

    async def sidecar(self, decoder_url: str, *options: str) -> str:
        """Start a sidecar; its address."""
        name = f"sidecar-{len(self.children)}"
        line = await self._start(name, "heliotrope_sim.sidecar", "--decoder-url", decoder_url, *options)
        url: str = json.loads(line)["url"]
        return url

    async def _start(self, name: str, module: str, *options: str) -> str:
        child = await Child.start(name, [sys.executable, "-m", module, *options], self._folder / f"{name}.log")
        self.children[name] = child
        return await child.first_line(30)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    fleet = Fleet(tmp_path)
    async with AsyncExitStack() as stack:
        yield fleet
        for child in fleet.children.values():
            stack.push_async_callback(child.kill)


def via(prefiller_url: str) -> dict[str, str]:
    return {"x-prefiller-host-port": prefiller_url.removeprefix("http://"), "x-request-id": "one"}


async def until(http: httpx.AsyncClient, url: str, condition: Callable[[dict[str, Any]], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition((await http.get(f"{url}/emulator/v1/state")).json()):
            await asyncio.sleep(0.01)


async def test_prefill_and_decode_in_two_processes_are_one_answer(fleet: Fleet) -> None:
    prefiller, decoder = await asyncio.gather(
        fleet.engine("p", links={"region": LINK}), fleet.engine("d", links={"region": LINK})
    )
    url = await fleet.sidecar(decoder, "--allowed-targets", "127.0.0.1")
    async with httpx.AsyncClient(timeout=30) as http:
        split = await http.post(f"{url}/v1/chat/completions", json=BODY, headers=via(prefiller))
        whole = await http.post(f"{prefiller}/v1/chat/completions", json=BODY | {"cache_salt": "own"})
        assert split.json()["choices"] == whole.json()["choices"]
        assert split.json()["usage"] == whole.json()["usage"]
        response_id = split.json()["id"]
        await until(http, prefiller, lambda state: state["kv_blocks"]["used"] == 0)
        records = [(await http.get(f"{e}/emulator/v1/requests/{response_id}")).json() for e in (prefiller, decoder)]
        bits = 144 * 327_680 * 8
        assert records[0]["sent_joules"] == pytest.approx(1e-10 * bits)
        assert (records[0]["output_tokens"], records[1]["output_tokens"]) == (1, 8)
        # Together they drew more than the one engine: the prompt's KV went over a link, and two engines took steps.
        alone = (await http.get(f"{prefiller}/emulator/v1/requests/{whole.json()['id']}")).json()
        assert sum(r["joules"] for r in records) - 3e-10 * bits == pytest.approx(alone["joules"], rel=0.2)
    sidecar = fleet.children["sidecar-2"]
    sidecar.send_signal(signal.SIGTERM)
    await sidecar.wait(20)
    assert sidecar.exit_code == 0


async def test_a_prefiller_that_is_killed_while_it_prefills(fleet: Fleet) -> None:
    prefiller, decoder = await asyncio.gather(fleet.engine("p"), fleet.engine("d"))
    strict, kind = await fleet.sidecar(decoder), await fleet.sidecar(decoder, "--prefill-fallback")
    async with httpx.AsyncClient(timeout=30) as http:
        # Asleep, it takes the requests and does not answer.
        await http.post(f"{prefiller}/sleep", params={"level": "0"})
        asked = [
            asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=BODY, headers=via(prefiller)))
            for url in (strict, kind)
        ]
        await until(http, prefiller, lambda state: state["waiting"] == 2)
        await fleet.children["p"].kill()
        refused, served = await asyncio.gather(*asked)
        assert (refused.status_code, refused.json()["type"]) == (502, "BadGateway")
        assert (served.status_code, served.json()["usage"]["completion_tokens"]) == (200, 8)


@pytest.mark.parametrize("policy", ["fail", "recompute"])
async def test_a_prefiller_that_is_killed_while_its_blocks_are_read(fleet: Fleet, policy: str) -> None:
    transfer = {
        "links": {"region": LINK | {"latency_seconds": 100_000.0}},
        "kv_load_failure_policy": policy,
        "kv_lease_duration": 6,
    }
    prefiller, decoder = await asyncio.gather(fleet.engine("p", **transfer), fleet.engine("d", **transfer))
    url = await fleet.sidecar(decoder)
    async with httpx.AsyncClient(timeout=30) as http:
        asked = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=BODY, headers=via(prefiller)))
        await until(http, decoder, lambda state: state["waiting"] == 1 and state["kv_blocks"]["used"] > 0)
        await fleet.children["p"].kill()
        answer = await asked
        assert answer.status_code == (500 if policy == "fail" else 200)
        page = (await http.get(f"{decoder}/metrics")).text
        assert 'transfer_failures_total{model_name="meta-llama/Llama-3.1-70B-Instruct",engine="0",' in page
        assert 'reason="unreachable"} 1' in page
        await until(http, decoder, lambda state: state["kv_blocks"]["used"] == 0)
