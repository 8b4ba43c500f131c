"""KV actions in front of two real vLLMs: what the picker expects to be cached is what the engines find."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.stack import start_picker
from e2e.traced_chat import CACHED_INPUT, Chat, Told, intensities_are
from tests.support.otlp import Collector, collector
from tests.vllm.emulated import PROFILE
from tests.vllm.engine import MODEL, RealEngine
from tests.vllm.stack import READY_SECONDS

from heliotrope_sim.demo.conservation import picker_state
from heliotrope_sim.demo.fleet import PickerPorts
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

SYSTEM = "the sun is shining on the grid " * 60
EXACT = {"ignore_eos": True}


@dataclass
class Pair:
    """Two engines in two regions behind one gateway."""

    url: str
    ports: PickerPorts
    resources: Path
    traces: Collector

    def chat(self, name: str, system: str = SYSTEM) -> Chat:
        """A new conversation."""
        return Chat(self.url, self.traces, MODEL, name, system, EXACT)


@pytest.fixture(scope="module")
def other_engine(
    vllm_python: Path, tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]
) -> Iterator[RealEngine]:
    """A second vLLM."""
    engine = RealEngine.start(vllm_python, tmp_path_factory.mktemp("vllm-2"), say)
    try:
        yield engine
    finally:
        engine.stop()


@pytest.fixture
async def two(engine: RealEngine, other_engine: RealEngine, tmp_path: Path) -> AsyncIterator[Pair]:
    """The picker with a collector, Envoy, and both engines' metrics read."""
    resources = tmp_path / "resources"
    resources.mkdir()
    regions = {"north": 300.0, "south": 400.0}
    for name, documents in _documents(dict(zip(regions, (engine, other_engine), strict=True))).items():
        (resources / name).write_text(yaml.safe_dump_all(documents))
    with collector() as traces:
        flags = (f"--otlp-endpoint={traces.grpc_url}", "--trace-ratio=1", "--no-learn")
        picker, ports = await start_picker(tmp_path, resources, *flags)
        try:
            config = GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",))
            async with running_gateway(config, directory=tmp_path / "envoy") as gateway:
                await gateway.wait_for_pickers()
                await intensities_are(ports, resources, regions)
                async with asyncio.timeout(READY_SECONDS):
                    admin = f"http://127.0.0.1:{ports.admin}"
                    while any(row["running"] is None for row in (await picker_state(admin))["endpoints"]):
                        await asyncio.sleep(0.1)
                yield Pair(gateway.url, ports, resources, traces)
        finally:
            await picker.stop()


def _documents(engines: dict[str, RealEngine]) -> dict[str, list[dict[str, Any]]]:
    kind = {"apiVersion": "heliotrope.io/v1alpha1"}
    endpoints = [
        {
            "name": f"vllm-{region}",
            "namespace": "default",
            "address": "127.0.0.1",
            "port": str(engine.port),
            "labels": {"heliotrope.io/region": region, "app": "llm"},
        }
        for region, engine in engines.items()
    ]
    policy = {
        **kind,
        "kind": "CarbonPolicy",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "targetRefs": [{"name": "pool"}],
            "slo": {"ttft": "60s", "tpot": "10s"},
            "enforcement": "Enforce",
        },
    }
    variant = {
        **kind,
        "kind": "WorkloadVariant",
        "metadata": {"name": "v", "namespace": "default"},
        "spec": {
            "model": MODEL,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
            "endpointSelector": {"matchLabels": {"app": "llm"}},
            "accelerator": {"type": "H100-SXM-80GB", "count": 1},
            # The joules and seconds in the trace are those of this profile; what is cached is the engines' own word.
            "engine": {"profile": PROFILE},
        },
    }
    return {"endpoints.yaml": [{"endpoints": endpoints}], "policy.yaml": [policy], "variants.yaml": [variant]}


def _reused(told: Told, action: str) -> None:
    assert told.action == action
    assert told.endpoint == "default/vllm-north"
    assert told.cached_tokens > 0
    assert told.request[CACHED_INPUT] == told.cached_tokens
    assert told.expected_tokens > 0.0
    assert told.avoided_joules > 0.0
    assert told.avoided_seconds > 0.0


async def test_recompute_local_hit_and_route_to_owner_on_real_engines(two: Pair, say: Callable[[str], None]) -> None:
    ann = two.chat("ann")
    first = await ann.turn("Where is the market?")
    assert (first.action, first.endpoint, first.cached_tokens) == ("Recompute", "default/vllm-north", 0)
    assert (first.expected_tokens, first.avoided_joules, first.avoided_seconds) == (0.0, 0.0, 0.0)
    # Cleaner, but not by what the prompt would draw there once more.
    await intensities_are(two.ports, two.resources, {"north": 300.0, "south": 295.0})
    second = await ann.turn("And where do people bathe?")
    _reused(second, "LocalHit")
    assert second.decision["heliotrope.session.movement"] == "stayed"
    other = await two.chat("bob").turn("How long is the river?")
    _reused(other, "RouteToOwner")
    assert other.decision["heliotrope.session.movement"] == "new"
    await intensities_are(two.ports, two.resources, {"north": 300.0, "south": 20.0})
    moved = await two.chat("cleo").turn("How long is the river?")
    assert (moved.endpoint, moved.action, moved.cached_tokens) == ("default/vllm-south", "Recompute", 0)
    for told in (first, second, other, moved):
        found = f"{told.expected_tokens:.0f} expected and {told.cached_tokens} found cached of {told.prompt_tokens}"
        avoided = f"{told.avoided_joules:.1f} J and {told.avoided_seconds * 1000:.1f} ms avoided"
        say(f"{told.action} at {told.endpoint}: {found} tokens, {avoided}")
