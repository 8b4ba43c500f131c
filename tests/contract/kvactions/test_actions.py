"""KV actions through a real Envoy, the picker's own process, sidecars and emulated engines that share their caches."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from e2e.stack import ENGINE_HEADER, MODEL, PROFILE, start_engine, start_picker, write_folder, write_regions

from heliotrope.engine import profiles
from heliotrope_sim.demo.fleet import PickerPorts
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway
from heliotrope_sim.sidecar import Sidecar, SidecarConfig

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

LABELS = {"heliotrope.io/kv-transfer": "p2p", "kubernetes.io/hostname": "node-1"}
PROMPT = "The forum, the baths and the aqueducts of the old city. " * 200


@dataclass
class Shared:
    """Two regions with one engine each, on one host, so that the link between them is the fastest."""

    url: str
    ports: PickerPorts
    resources: Path

    async def ask(self, name: str, session: str, prompt: str = PROMPT) -> tuple[str, int, dict[str, Any]]:
        """The engine that answered, what it had cached, and the chosen plan."""
        headers = {"x-request-id": name, "x-session-id": session}
        body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": 8}
        async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
            answer = await client.post(f"{self.url}/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            record = (await client.get(f"http://127.0.0.1:{self.ports.admin}/debug/decisions/{name}")).json()
        details = answer.json()["usage"].get("prompt_tokens_details") or {}
        plan = next(c for c in record["carbon_decision"]["candidates"] if c["chosen"])
        return answer.headers[ENGINE_HEADER], details.get("cached_tokens", 0), plan

    async def intensities(self, wanted: Mapping[str, float]) -> None:
        """Wait until the picker reads these."""
        write_regions(self.resources, wanted)
        async with asyncio.timeout(20.0), httpx.AsyncClient(trust_env=False) as client:
            while True:
                state = (await client.get(f"http://127.0.0.1:{self.ports.admin}/debug/state")).json()
                if {r["name"]: r["intensity_g_per_kwh"] for r in state["regions"]} == wanted:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def shared(folder: Path, intensities: Mapping[str, float]) -> AsyncIterator[Shared]:
    async with AsyncExitStack() as stack:
        endpoints = []
        for region in intensities:
            engine = await start_engine(folder, f"engine-{region}", region, time_scale=5.0, kv_transfer={})
            stack.push_async_callback(engine.child.stop)
            sidecar = await stack.enter_async_context(
                Sidecar(SidecarConfig(decoder_url=f"http://{engine.host}:{engine.port}", enable_p2p_pull=True))
            )
            endpoints.append((engine, int(sidecar.url.rpartition(":")[2])))
        resources = folder / "resources"
        write_folder(resources, [engine for engine, _ in endpoints], intensities)
        endpoint_documents = [
            {
                "name": engine.name,
                "namespace": "default",
                "address": engine.host,
                "port": str(port),
                "labels": {**LABELS, "heliotrope.io/region": engine.region, "app": "llm"},
            }
            for engine, port in endpoints
        ]
        (resources / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": endpoint_documents}))
        yield await fronted(stack, folder, resources)


async def fronted(stack: AsyncExitStack, folder: Path, resources: Path) -> Shared:
    """A picker with these resources behind an Envoy."""
    picker, ports = await start_picker(folder, resources)
    stack.push_async_callback(picker.stop)
    gateway = await Gateway.start(GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",)), directory=folder / "envoy")
    stack.push_async_callback(gateway.stop)
    await gateway.wait_for_pickers()
    return Shared(gateway.url, ports, resources)


async def test_recompute_pull_local_hit_and_route_to_owner(tmp_path: Path) -> None:
    async with shared(tmp_path, {"north": 20.0, "south": 400.0}) as stack:
        engine, cached, plan = await stack.ask("first", "ann")
        assert (engine, cached, plan["kv_action"]) == ("engine-north", 0, "Recompute")
        # The other region is clean now; it pulls what the first one computed.
        await stack.intensities({"north": 400.0, "south": 20.0})
        engine, cached, plan = await stack.ask("pulled", "bob")
        assert (engine, plan["kv_action"], plan["kv_source"]) == (
            "engine-south",
            "PeerTransfer",
            "default/engine-north",
        )
        assert cached > 0.9 * plan["cached_tokens"] > 2_000
        assert plan["transfer_joules"] > 0.0
        # The same session finds its own cache, another one that of the endpoint.
        engine, cached, plan = await stack.ask("again", "bob")
        assert (engine, plan["kv_action"], plan["kv_source"]) == ("engine-south", "LocalHit", None)
        assert cached > 2_000
        engine, cached, plan = await stack.ask("other", "cleo")
        assert (engine, plan["kv_action"]) == ("engine-south", "RouteToOwner")
        assert cached > 2_000
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{stack.ports.admin}/metrics")).text
        for action in ("Recompute", "PeerTransfer", "LocalHit", "RouteToOwner"):
            assert f'heliotrope_kv_actions_total{{action="{action}"' in page, json.dumps(action)


def listed(host: str, port: int, labels: Mapping[str, str]) -> str:
    """`endpoints.yaml` of one engine."""
    all_labels = {**labels, "heliotrope.io/region": "north", "app": "llm"}
    endpoint = {"name": "small", "namespace": "default", "address": host, "port": str(port), "labels": all_labels}
    return yaml.safe_dump({"endpoints": [endpoint]})


async def test_what_was_evicted_is_reloaded(tmp_path: Path) -> None:
    """An engine with room for one of two prompts, and host memory for both."""
    model = replace(profiles.load(PROFILE), kv_capacity_tokens=4_096)
    settings = {"offload": {"cpu": {"capacity_bytes": 10_000_000_000}}, "time_scale": 5.0, "max_model_len": 4_096}
    config = EngineConfig.model_validate({"name": "small", "profile": PROFILE, "model": MODEL, **settings})
    async with AsyncExitStack() as stack:
        emulator = await stack.enter_async_context(Emulator(EmulatorConfig(engines=(config,)), models={"small": model}))
        host, _, port = emulator.engines["small"].url.removeprefix("http://").partition(":")
        resources = tmp_path / "resources"
        write_folder(resources, [], {"north": 100.0})
        labels = {"heliotrope.io/kv-offload": "cpu", "heliotrope.io/kv-offload-tokens": "1000000"}
        (resources / "endpoints.yaml").write_text(listed(host, int(port), labels))
        shared = await fronted(stack, tmp_path, resources)
        first, second = "one " * 3_000, "two " * 3_000
        assert (await shared.ask("a", "ann", first))[2]["kv_action"] == "Recompute"
        await shared.ask("b", "bob", second)
        _, cached, plan = await shared.ask("c", "cleo", first)
        assert plan["kv_action"] == "OffloadReload"
        assert cached > 0.9 * plan["cached_tokens"] > 2_000
        assert plan["transfer_seconds"] > 0.0
        assert plan["transfer_joules"] > 0.0
