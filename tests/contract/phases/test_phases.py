"""Phases through a real Envoy, the picker, llm-d's sidecar and emulated engines: split or not, and whose joules."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from e2e.stack import MODEL, PROFILE, write_folder

from heliotrope.engine import profiles
from heliotrope.engine.counters import CounterLimits
from heliotrope_epp.app import Picker
from heliotrope_epp.clock import Clock
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.settings import EppSettings
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway
from heliotrope_sim.sidecar import Sidecar, SidecarConfig

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

METERING = MeteringSettings(hold_s=1.0, limits=CounterLimits(shortest_seconds=6.0))
"""Intervals are long beside what a request takes, however late its pieces come on a busy machine."""
LONG = "The forum, the baths and the aqueducts of the old city. " * 400
ROLES = {"p": "prefill", "d": "decode", "b": "prefill-decode"}
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: max-score-picker
- type: prefix-based-pd-decider
  parameters: {nonCachedTokens: 1000}
- type: disagg-profile-handler
  parameters: {deciders: {prefill: prefix-based-pd-decider}}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]
"""


@dataclass(slots=True)
class Told:
    """What the picker's sinks were told."""

    requests: dict[str, FinishedRequest] = field(default_factory=dict)
    energies: dict[str, RequestEnergy | None] = field(default_factory=dict)
    intervals: Counter[str] = field(default_factory=Counter)
    """Of every endpoint, how many."""

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        self.requests[request.request_id], self.energies[request.request_id] = request, energy

    def metered(self, interval: MeteredInterval) -> None:
        self.intervals[interval.endpoint] += 1


@dataclass
class Pool:
    """A prefiller, and a decoder or one that does both, which have a sidecar in front, as in llm-d's guides."""

    url: str
    admin: str
    engines: Mapping[str, ServedEngine]
    told: Told

    async def ask(
        self, name: str, prompt: str, max_tokens: int = 40, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """One answer."""
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
            answer = await client.post(
                f"{self.url}/v1/chat/completions", json=body, headers={"x-request-id": name, **(headers or {})}
            )
        assert answer.status_code == 200, answer.text
        return answer

    async def decision(self, name: str) -> dict[str, Any]:
        """What the picker remembers of a request."""
        async with httpx.AsyncClient(trust_env=False) as client:
            record: dict[str, Any] = (await client.get(f"{self.admin}/debug/decisions/{name}")).json()
        return record

    async def metrics(self) -> str:
        """The picker's page."""
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"{self.admin}/metrics")).text

    async def phases(self, name: str) -> tuple[str, str]:
        """Where the policy had it prefilled and decoded."""
        record = await self.decision(name)
        chosen = next(c for c in record["carbon_decision"]["candidates"] if c["chosen"])
        return chosen["prefill_endpoint"].removeprefix("default/"), chosen["endpoint"].removeprefix("default/")

    def records(self, name: str) -> dict[str, float]:
        """By engine, the joules that it truly drew for a request."""
        of_engines = {engine_name: engine.driver.finished for engine_name, engine in self.engines.items()}
        return {
            e: finished[f"chatcmpl-{name}"].joules
            for e, finished in of_engines.items()
            if f"chatcmpl-{name}" in finished
        }


@asynccontextmanager
async def running(
    folder: Path, intensities: Mapping[str, float], *, policy: bool = True, tpot: str = "500ms"
) -> AsyncIterator[Pool]:
    """`intensities` of the engines' regions, by engine; those on one host move KV as fast as on one node."""
    async with AsyncExitStack() as stack:
        settings = {"profile": PROFILE, "model": MODEL, "kv_transfer": {"node": "node-1"}}
        configs = [EngineConfig.model_validate({"name": n, "region": n, **settings}) for n in intensities]
        emulator = await stack.enter_async_context(Emulator(EmulatorConfig(engines=tuple(configs))))
        endpoints = []
        for name in intensities:
            url = emulator.engines[name].url
            if ROLES[name] != "prefill":
                url = (await stack.enter_async_context(Sidecar(SidecarConfig(decoder_url=url)))).url
            host, _, port = url.removeprefix("http://").partition(":")
            labels = {"app": "llm", "heliotrope.io/region": name, "kubernetes.io/hostname": "node-1"}
            endpoints.append(
                {
                    "name": name,
                    "namespace": "default",
                    "address": host,
                    "port": port,
                    "labels": {**labels, "llm-d.ai/role": ROLES[name]},
                }
            )
        resources = folder / "resources"
        write_folder(resources, [], intensities)
        (resources / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": endpoints}))
        attached = resources / "policy.yaml"
        attached.write_text(attached.read_text().replace("500ms", tpot))
        if not policy:
            attached.unlink()
        told = Told()
        picker = Picker(
            EppSettings(
                folder=resources,
                config_text=CONFIG,
                host="127.0.0.1",
                grpc_port=0,
                health_port=0,
                metrics_port=0,
                metering=METERING,
                grace_seconds=1.0,
            ),
            Clock(),
        )
        picker._sinks.add(told)
        await picker.start(stack)
        source = asyncio.create_task(picker.follow_source())
        await asyncio.wait_for(picker.first_world.wait(), 10.0)
        picker.set_serving()
        try:
            config = GatewayConfig(pickers=(f"127.0.0.1:{picker.ports.grpc_port}",))
            async with running_gateway(config, directory=folder / "envoy") as gateway:
                await gateway.wait_for_pickers()
                await asyncio.sleep(2.0)  # metrics are read, counters have been seen
                admin = f"http://127.0.0.1:{picker.ports.metrics_port}"
                yield Pool(gateway.url, admin, emulator.engines, told)
        finally:
            source.cancel()
            await asyncio.gather(source, return_exceptions=True)


async def intervals_begin(pool: Pool) -> None:
    """Until the energy of every engine is counted anew: tokens and joules of one request then fall into one interval.

    The picker sees tokens somewhat later than engines count them; what lies across a border is taken for others'.
    """
    before = dict(pool.told.intervals)
    async with asyncio.timeout(30.0):
        while any(pool.told.intervals[f"default/{name}"] <= before.get(f"default/{name}", 0) for name in pool.engines):
            await asyncio.sleep(0.1)


async def settled(pool: Pool, name: str) -> RequestEnergy:
    async with asyncio.timeout(20.0):
        while name not in pool.told.energies:
            await asyncio.sleep(0.1)
    energy = pool.told.energies[name]
    assert energy is not None
    return energy


async def books_are_right(pool: Pool, name: str, engines: set[str]) -> None:
    """The engines' own accounts of a request, and what the picker's meter found.

    Where a busy machine holds up the answer, the engines wait, and the picker can only think that they work.
    """
    energy, request = await settled(pool, name), pool.told.requests[name]
    drawn = pool.records(name)
    assert set(drawn) == engines
    assert request.expected is not None
    held_up_s = max(request.ended_s - request.dispatched_s - request.expected.service_seconds, 0.0)
    joules, true_joules = energy.millijoules / 1_000.0, sum(drawn.values())
    most = 1.2 * true_joules + held_up_s * len(engines) * profiles.load(PROFILE).idle_watts
    assert 0.8 * true_joules <= joules <= most


async def test_a_long_prompt_is_split_a_short_one_is_not_and_every_joule_is_found(tmp_path: Path) -> None:
    async with running(tmp_path, {"p": 20.0, "d": 400.0}) as pool:
        for name, prompt, prefiller in (("long", LONG, "p"), ("short", "Hello there, how are you today?", "d")):
            await intervals_begin(pool)
            await pool.ask(name, prompt)
            assert await pool.phases(name) == (prefiller, "d")
            await books_are_right(pool, name, {prefiller, "d"})
        assert pool.engines["p"].driver.engine.counters.prefill_tokens > 5_000
        assert pool.engines["d"].driver.engine.counters.prefill_tokens < 100
        page = await pool.metrics()
        assert 'heliotrope_phase_placements_total{placement="disaggregated"} 1.0' in page
        assert 'heliotrope_phase_placements_total{placement="aggregated"} 1.0' in page
        expected = pool.told.requests["long"].expected
        assert expected is not None
        assert expected.energy_joules == pytest.approx(sum(pool.records("long").values()), rel=0.15)
        assert pool.told.requests["long"].features is None, "models learn of single endpoints"
        assert pool.told.requests["short"].features is not None


async def test_the_client_does_not_choose_the_prefiller(tmp_path: Path) -> None:
    async with running(tmp_path, {"p": 400.0, "d": 20.0}) as pool:
        prefiller = pool.engines["p"].url.removeprefix("http://")
        await pool.ask("forged", LONG, headers={"x-prefiller-host-port": prefiller})
        assert await pool.phases("forged") == ("d", "d")
        assert set(pool.records("forged")) == {"d"}


async def test_a_busy_endpoint_sends_long_prompts_elsewhere(tmp_path: Path) -> None:
    """Equal grids: in place while there is headroom, elsewhere when those that decode there would be too slow."""
    async with running(tmp_path, {"p": 100.0, "b": 100.0}, tpot="25ms") as pool:
        await pool.ask("idle", LONG, 8)
        assert await pool.phases("idle") == ("b", "b")
        async with busy(pool, "b", 24):
            await pool.ask("busy", "Once more. " + LONG, 8)
            await pool.ask("short", "Hello there, how are you today?", 8)
            record = await pool.decision("busy")
            assert await pool.phases("busy") == ("p", "b")
            assert await pool.phases("short") == ("b", "b")
        lost = {c["prefill_endpoint"]: c["lost_because"] for c in record["carbon_decision"]["candidates"]}
        assert "would slow those that decode there" in lost["default/b"]


@asynccontextmanager
async def busy(pool: Pool, name: str, streams: int) -> AsyncIterator[None]:
    """Others' answers are decoded at an engine all the while, and the picker has seen it."""
    body = {"model": MODEL, "prompt": "Go on.", "max_tokens": 20_000, "ignore_eos": True}
    async with httpx.AsyncClient(trust_env=False, timeout=None, limits=httpx.Limits(max_connections=None)) as client:
        url = pool.engines[name].url
        tasks = [asyncio.create_task(client.post(f"{url}/v1/completions", json=body)) for _ in range(streams)]
        try:
            async with asyncio.timeout(20.0):
                while True:
                    state = (await client.get(f"{pool.admin}/debug/state")).json()
                    running = {e["endpoint"]: e["running"] for e in state["endpoints"]}
                    if running[f"default/{name}"] == streams:
                        break
                    await asyncio.sleep(0.1)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_without_a_policy_llm_ds_decider_decides(tmp_path: Path) -> None:
    async with running(tmp_path, {"p": 400.0, "d": 20.0}, policy=False) as pool:
        await pool.ask("long", LONG)
        await pool.ask("short", "Hello there, how are you today?")
        assert set(pool.records("long")) == {"p", "d"}
        assert set(pool.records("short")) == {"d"}
