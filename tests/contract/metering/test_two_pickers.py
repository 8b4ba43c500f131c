"""Two pickers behind their own gateways share one emulated engine: each claims its own requests' joules, no others."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import yaml

from heliotrope.engine.counters import CounterLimits
from heliotrope_epp.app import Picker
from heliotrope_epp.clock import Clock
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.settings import EppSettings
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.engine.fixed_point import joules
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

PROFILE = "llama-3.1-8b-h100"
SECONDS = 8.0
SETTINGS = MeteringSettings(hold_s=1.0, limits=CounterLimits(shortest_seconds=1.0))


@dataclass(slots=True)
class Told:
    """What a picker's sinks were told."""

    energies: dict[str, RequestEnergy | None] = field(default_factory=dict)
    intervals: list[MeteredInterval] = field(default_factory=list)

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        self.energies[request.request_id] = energy

    def metered(self, interval: MeteredInterval) -> None:
        self.intervals.append(interval)

    @property
    def claimed_joules(self) -> float:
        return sum(energy.millijoules for energy in self.energies.values() if energy is not None) / 1_000.0


def folder_of(path: Path, engine: ServedEngine) -> Path:
    path.mkdir()
    host, _, port = engine.url.removeprefix("http://").rpartition(":")
    endpoint = {"name": "e", "address": host, "port": port, "labels": {"app": "llm"}}
    (path / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": [endpoint]}))
    variant = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "WorkloadVariant",
        "metadata": {"name": "llm", "namespace": "default"},
        "spec": {
            "model": "m",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
            "endpointSelector": {"matchLabels": {"app": "llm"}},
            "accelerator": {"type": "H100-SXM-80GB", "count": 1},
            "engine": {"profile": PROFILE},
        },
    }
    (path / "variant.yaml").write_text(yaml.safe_dump(variant))
    return path


@asynccontextmanager
async def picking(folder: Path, told: Told) -> AsyncIterator[str]:
    """A picker and its gateway; the URL of the gateway."""
    settings = EppSettings(
        folder=folder,
        host="127.0.0.1",
        grpc_port=0,
        health_port=0,
        metrics_port=0,
        metering=SETTINGS,
        grace_seconds=1.0,
    )
    picker = Picker(settings, Clock())
    picker._sinks.add(told)
    async with AsyncExitStack() as stack:
        await picker.start(stack)
        source = asyncio.create_task(picker.follow_source())
        await asyncio.wait_for(picker.first_world.wait(), 10.0)
        picker.set_serving()
        try:
            config = GatewayConfig(pickers=(f"127.0.0.1:{picker.ports.grpc_port}",))
            async with running_gateway(config) as gateway:
                await gateway.wait_for_pickers()
                yield gateway.url
        finally:
            source.cancel()
            await asyncio.gather(source, return_exceptions=True)


async def client(url: str, number: int, ids: list[str]) -> None:
    """One request after the other; every third answer comes whole."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + SECONDS
    count = 0
    async with aiohttp.ClientSession() as session:
        while loop.time() < end_s:
            count += 1
            streamed = count % 3 > 0
            text = f"{number} {count} " + "word " * (100 * (1 + count % 7))
            body: dict[str, object] = {
                "model": "m",
                "messages": [{"role": "user", "content": text}],
                "max_tokens": 20 + 15 * (count % 5),
                "ignore_eos": True,
                "stream": streamed,
            }
            if streamed:
                body["stream_options"] = {"include_usage": True}
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                assert response.status == 200
                answer = await response.text()
            first = answer.partition("\n")[0].removeprefix("data: ") if streamed else answer
            ids.append(json.loads(first)["id"])


async def test_each_picker_claims_its_own_and_no_more(tmp_path: Path) -> None:
    config = EngineConfig(name="e", profile=PROFILE, model="m")
    told = (Told(), Told())
    ids: tuple[list[str], list[str]] = ([], [])
    async with Emulator(EmulatorConfig(engines=(config,))) as emulator:
        engine = emulator.engines["e"]
        async with AsyncExitStack() as stack:
            urls = [
                await stack.enter_async_context(picking(folder_of(tmp_path / str(i), engine), told[i])) for i in (0, 1)
            ]
            await asyncio.sleep(2.0)  # counters have been seen to change
            async with asyncio.TaskGroup() as group:
                for number in range(6):  # the first picker has twice the clients
                    picker = number % 3 // 2
                    group.create_task(client(urls[picker], number, ids[picker]))
            await asyncio.sleep(4.0)
        meter = engine.driver.engine.energy
        busy_joules = joules(meter.busy_picojoules)
        finished = engine.driver.finished

        for each, own in zip(told, ids, strict=True):
            true_joules = sum(finished[name].joules for name in own)
            assert_conserved(each)
            assert len(each.energies) == len(own)
            assert all(energy is not None for energy in each.energies.values())
            assert each.claimed_joules == pytest.approx(true_joules, rel=0.2)
        # On a busy machine answers are held up for a while in which the engine is idle: the margin is wide.
        assert 0.8 * busy_joules < told[0].claimed_joules + told[1].claimed_joules < 1.2 * busy_joules
        assert told[0].claimed_joules > 1.4 * told[1].claimed_joules


def assert_conserved(told: Told) -> None:
    """Every interval is its parts, and requests have exactly their line."""
    for interval in told.intervals:
        assert interval.total_millijoules == (
            interval.requests_millijoules
            + interval.others_millijoules
            + interval.idle_millijoules
            + interval.unattributed_millijoules
        )
    lines: Sequence[int] = [interval.requests_millijoules for interval in told.intervals]
    assert sum(lines) == sum(energy.millijoules for energy in told.energies.values() if energy is not None)
