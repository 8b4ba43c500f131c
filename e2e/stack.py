"""A whole picker stack on this machine: emulated engines, the picker's own process, and a real Envoy in front."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from heliotrope_sim.children import Child
from heliotrope_sim.demo.fleet import PickerPorts, start_picker
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway

MODEL = "test-model"
PROFILE = "llama-3.1-8b-h100"
ENGINE_HEADER = "x-inference-pod"


@dataclass(slots=True)
class Engine:
    """One emulated engine in its own process, so that a test can kill it."""

    name: str
    region: str
    child: Child
    host: str
    port: int


@dataclass(slots=True)
class Stack:
    """Everything that runs."""

    engines: dict[str, Engine]
    picker: Child
    ports: PickerPorts
    gateway: Gateway
    resources: Path

    @property
    def url(self) -> str:
        return self.gateway.url

    async def metric(self, name: str) -> float:
        """Sum of a metric of the picker over all labels."""
        async with httpx.AsyncClient(trust_env=False) as client:
            text = (await client.get(f"http://127.0.0.1:{self.ports.admin}/metrics")).text
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.partition("{")[0].partition(" ")[0] == name
        )

    @property
    def debug_url(self) -> str:
        """Of the picker's `/debug/state`."""
        return f"http://127.0.0.1:{self.ports.admin}/debug/state"

    async def state(self) -> dict[str, Any]:
        """What stands there."""
        async with httpx.AsyncClient(trust_env=False) as client:
            state: dict[str, Any] = (await client.get(self.debug_url)).json()
            return state

    async def settles(self, name: str, value: float, seconds: float = 10.0) -> None:
        """Wait until a metric has a value."""
        async with asyncio.timeout(seconds):
            while await self.metric(name) != value:
                await asyncio.sleep(0.05)


async def start_engine(
    folder: Path, name: str, region: str, *, host: str = "127.0.0.1", port: int = 0, **settings: Any
) -> Engine:
    """One engine process; `settings` as in the emulator's configuration."""
    engine = {
        "name": name,
        "host": host,
        "port": port,
        "profile": PROFILE,
        "model": MODEL,
        "region": region,
        **settings,
    }
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump({"engines": [engine]}))
    child = await Child.start(
        name, [sys.executable, "-m", "heliotrope_sim.emulator", "--config", str(config)], folder / f"{name}.log"
    )
    bound = json.loads(await child.first_line(30.0))["engines"][0]
    return Engine(name, region, child, bound["host"], bound["port"])


def write_folder(
    folder: Path, engines: Sequence[Engine], intensities: Mapping[str, float], *, enforcement: str = "Enforce"
) -> None:
    """The picker's folder of resources."""
    folder.mkdir(exist_ok=True)
    endpoints = [
        {
            "name": e.name,
            "namespace": "default",
            "address": e.host,
            "port": str(e.port),
            "labels": {"heliotrope.io/region": e.region, "app": "llm"},
        }
        for e in engines
    ]
    documents: dict[str, list[dict[str, Any]]] = {
        "endpoints.yaml": [{"endpoints": endpoints}],
        "policy.yaml": [
            {
                "apiVersion": "heliotrope.io/v1alpha1",
                "kind": "CarbonPolicy",
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {
                    "targetRefs": [{"name": "pool"}],
                    "slo": {"ttft": "5s", "tpot": "500ms"},
                    "enforcement": enforcement,
                },
            }
        ],
        "variants.yaml": [
            {
                "apiVersion": "heliotrope.io/v1alpha1",
                "kind": "WorkloadVariant",
                "metadata": {"name": "v", "namespace": "default"},
                "spec": {
                    "model": MODEL,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
                    "endpointSelector": {"matchLabels": {"app": "llm"}},
                    "accelerator": {"type": "H100-SXM-80GB", "count": 1},
                    "engine": {"profile": PROFILE},
                },
            }
        ],
    }
    for name, content in documents.items():
        _replace(folder / name, content)
    write_regions(folder, intensities)


def write_regions(folder: Path, intensities: Mapping[str, float]) -> None:
    """Static regions with these intensities in g/kWh."""
    _replace(
        folder / "regions.yaml",
        [
            {
                "apiVersion": "heliotrope.io/v1alpha1",
                "kind": "RegionProfile",
                "metadata": {"name": name},
                "spec": {"zone": "Z", "source": {"static": {"intensityGramsPerKwh": f"{value:g}"}}},
            }
            for name, value in intensities.items()
        ],
    )


def _replace(path: Path, documents: Sequence[dict[str, Any]]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(yaml.safe_dump_all(documents))
    partial.replace(path)


@asynccontextmanager
async def running_stack(
    folder: Path, intensities: Mapping[str, float], picker_flags: Sequence[str] = (), **engine_settings: Any
) -> AsyncIterator[Stack]:
    """One engine per region, the picker with these flags, and Envoy; everything is stopped afterwards."""
    engines = [await start_engine(folder, f"engine-{region}", region, **engine_settings) for region in intensities]
    picker: Child | None = None
    gateway: Gateway | None = None
    try:
        resources = folder / "resources"
        write_folder(resources, engines, intensities)
        picker, ports = await start_picker(folder, resources, *picker_flags)
        gateway = await Gateway.start(GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",)), directory=folder / "envoy")
        await gateway.wait_for_pickers()
        yield Stack({e.region: e for e in engines}, picker, ports, gateway, resources)
    finally:
        if gateway is not None:
            await gateway.stop()
        for child in [picker, *(e.child for e in engines)]:
            if child is not None:
                await child.stop()
