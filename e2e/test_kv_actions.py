"""How a prompt's KV comes to an engine, as a user sees it: OpenAI's client, a real Envoy, the picker, its traces."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.stack import MODEL, PROFILE, start_engine, start_picker, write_folder
from e2e.traced_chat import CACHED_INPUT, Chat, Told, intensities_are
from tests.support.otlp import Collector, collector

from heliotrope.engine import profiles
from heliotrope_sim.demo.fleet import PickerPorts
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway
from heliotrope_sim.sidecar import Sidecar, SidecarConfig

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(300)]

SYSTEM = "You guide visitors through the forum, the baths and the aqueducts of the old city. " * 180
PULLING = {"heliotrope.io/kv-transfer": "p2p", "kubernetes.io/hostname": "node-1"}


@dataclass
class Running:
    """The whole path, with a collector at the picker's side."""

    gateway: Gateway
    ports: PickerPorts
    resources: Path
    traces: Collector

    def chat(self, name: str, system: str = SYSTEM) -> Chat:
        """A new conversation."""
        return Chat(self.gateway.url, self.traces, MODEL, name, system)

    async def intensities(self, wanted: Mapping[str, float]) -> None:
        """Change the grids."""
        await intensities_are(self.ports, self.resources, wanted)


@asynccontextmanager
async def running(folder: Path, intensities: Mapping[str, float], *, pulling: bool) -> AsyncIterator[Running]:
    """Two emulated engines, behind sidecars that pull KV if they shall, the picker with a collector, and Envoy."""
    async with AsyncExitStack() as stack:
        traces = stack.enter_context(collector())
        engines, ports_of = [], {}
        for region in intensities:
            settings: dict[str, Any] = {"kv_transfer": {}} if pulling else {}
            engine = await start_engine(folder, f"engine-{region}", region, **settings)
            stack.push_async_callback(engine.child.stop)
            engines.append(engine)
            ports_of[engine.name] = engine.port
            if pulling:
                config = SidecarConfig(decoder_url=f"http://{engine.host}:{engine.port}", enable_p2p_pull=True)
                sidecar = await stack.enter_async_context(Sidecar(config))
                ports_of[engine.name] = int(sidecar.url.rpartition(":")[2])
        resources = folder / "resources"
        write_folder(resources, engines, intensities)
        endpoints = [
            {
                "name": engine.name,
                "namespace": "default",
                "address": engine.host,
                "port": str(ports_of[engine.name]),
                "labels": {"heliotrope.io/region": engine.region, "app": "llm", **(PULLING if pulling else {})},
            }
            for engine in engines
        ]
        (resources / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": endpoints}))
        flags = (f"--otlp-endpoint={traces.grpc_url}", "--trace-ratio=1")
        picker, ports = await start_picker(folder, resources, *flags)
        stack.push_async_callback(picker.stop)
        gateway = await Gateway.start(GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",)), directory=folder / "envoy")
        stack.push_async_callback(gateway.stop)
        await gateway.wait_for_pickers()
        yield Running(gateway, ports, resources, traces)


def recomputed(told: Told) -> None:
    """Nothing was there, and the trace says so."""
    assert told.action == "Recompute"
    assert (told.cached_tokens, told.expected_tokens) == (0, 0.0)
    assert (told.avoided_joules, told.avoided_seconds) == (0.0, 0.0)
    assert told.request.get(CACHED_INPUT, 0) == 0


def reused(told: Told, action: str) -> None:
    """What the decision counted on is what the engine found, and what that avoided stands in the trace."""
    assert told.action == action
    assert told.cached_tokens > 3_000
    assert told.expected_tokens == pytest.approx(told.cached_tokens, rel=0.1)
    assert told.request[CACHED_INPUT] == told.cached_tokens
    model = profiles.load(PROFILE)
    whole, rest = float(told.prompt_tokens), float(told.prompt_tokens - told.cached_tokens)
    joules = float(model.prefill_joules(whole)) - float(model.prefill_joules(rest))
    seconds = float(model.prefill_seconds(whole)) - float(model.prefill_seconds(rest))
    assert told.avoided_joules == pytest.approx(joules, rel=0.15)
    assert told.avoided_seconds == pytest.approx(seconds, rel=0.15)


async def test_a_conversation_hits_its_own_cache_and_another_one_goes_to_the_owner_of_what_they_share(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, {"north": 300.0, "south": 400.0}, pulling=False) as path:
        ann, bob = path.chat("ann"), path.chat("bob")
        first = await ann.turn("Where was the market?")
        assert first.endpoint == "default/engine-north"
        recomputed(first)
        # The other region is cleaner now, but not by what computing the prompt again would draw there.
        await path.intensities({"north": 300.0, "south": 250.0})
        second = await ann.turn("And where did people bathe?")
        assert second.endpoint == "default/engine-north"
        reused(second, "LocalHit")
        assert second.cached_tokens > first.prompt_tokens * 0.95
        assert second.decision["heliotrope.session.movement"] == "stayed"
        other = await bob.turn("How long is the aqueduct?")
        assert other.endpoint == "default/engine-north"
        reused(other, "RouteToOwner")
        assert other.decision["heliotrope.session.movement"] == "new"
        stranger = await path.chat("cleo", "You count birds. ").turn("How many are there?")
        assert stranger.endpoint == "default/engine-south", "who has no cache goes where it is cleanest"
        recomputed(stranger)


async def test_a_much_cleaner_region_pulls_what_another_one_has_computed(tmp_path: Path) -> None:
    async with running(tmp_path, {"north": 20.0, "south": 400.0}, pulling=True) as path:
        first = await path.chat("ann").turn("Where was the market?")
        assert first.endpoint == "default/engine-north"
        recomputed(first)
        await path.intensities({"north": 400.0, "south": 20.0})
        pulled = await path.chat("bob").turn("How long is the aqueduct?")
        assert pulled.endpoint == "default/engine-south"
        reused(pulled, "PeerTransfer")
        assert pulled.decision["heliotrope.kv.source"] == "default/engine-north"
        assert 0.0 < pulled.decision["heliotrope.kv.transfer_joules"] < pulled.avoided_joules
        assert 0.0 < pulled.decision["heliotrope.kv.transfer_seconds"] < pulled.avoided_seconds
