"""How a prompt's KV comes to an engine, as a user sees it: OpenAI's client, a real Envoy, the picker, its traces."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml
from e2e.stack import ENGINE_HEADER, MODEL, PROFILE, start_engine, start_picker, write_folder, write_regions
from tests.support.otlp import Collector, Span, collector

from heliotrope.engine import profiles
from heliotrope_sim.demo.fleet import PickerPorts
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway
from heliotrope_sim.sidecar import Sidecar, SidecarConfig

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(300)]

SYSTEM = "You guide visitors through the forum, the baths and the aqueducts of the old city. " * 180
PULLING = {"heliotrope.io/kv-transfer": "p2p", "kubernetes.io/hostname": "node-1"}
DECISION = "gateway.request_orchestration"


@dataclass(frozen=True)
class Told:
    """What a client learned of one turn, and what the trace says of it."""

    engine: str
    prompt_tokens: int
    cached_tokens: int
    decision: Mapping[str, Any]
    request: Mapping[str, Any]

    @property
    def expected_tokens(self) -> float:
        """Cached tokens that the decision counted on."""
        return float(self.decision["heliotrope.cached_tokens"])


@dataclass
class Running:
    """The whole path, with a collector at the picker's side."""

    gateway: Gateway
    ports: PickerPorts
    resources: Path
    collector: Collector
    turns: int = 0

    async def intensities(self, wanted: Mapping[str, float]) -> None:
        """Change the grids and wait until the picker reads it."""
        write_regions(self.resources, wanted)
        async with asyncio.timeout(20.0), httpx.AsyncClient(trust_env=False) as client:
            while True:
                state = (await client.get(f"http://127.0.0.1:{self.ports.admin}/debug/state")).json()
                if {r["name"]: r["intensity_g_per_kwh"] for r in state["regions"]} == wanted:
                    return
                await asyncio.sleep(0.05)


@dataclass
class Chat:
    """A conversation that resends its history, as OpenAI's chat API wants it."""

    running: Running
    name: str
    system: str = SYSTEM
    messages: list[dict[str, str]] = field(default_factory=list)

    async def turn(self, question: str) -> Told:
        """Ask once, and wait for the spans."""
        running = self.running
        running.turns += 1
        trace_id = f"{running.turns:032x}"
        if not self.messages:
            self.messages.append({"role": "system", "content": self.system})
        self.messages.append({"role": "user", "content": question})
        async with openai.AsyncOpenAI(base_url=f"{running.gateway.url}/v1", api_key="unused", max_retries=0) as client:
            raw = await client.chat.completions.with_raw_response.create(
                model=MODEL,
                messages=self.messages,  # type: ignore[arg-type]
                max_tokens=12,
                prompt_cache_key=self.name,
                extra_headers={"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"},
            )
        answer = raw.parse()
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        self.messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
        spans = await _spans(running.collector, trace_id)
        return Told(
            engine=raw.headers[ENGINE_HEADER],
            prompt_tokens=answer.usage.prompt_tokens,
            cached_tokens=answer.usage.prompt_tokens_details.cached_tokens or 0,
            decision=spans[DECISION].attributes,
            request=spans["gateway.request"].attributes,
        )


async def _spans(running: Collector, trace_id: str) -> dict[str, Span]:
    def found() -> dict[str, Span]:
        return {span.name: span for span in running.spans if span.trace_id == trace_id}

    wanted = {DECISION, "gateway.request"}
    await asyncio.to_thread(running.wait, lambda: wanted <= found().keys(), f"spans of {trace_id}", 40.0)
    return found()


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
    assert told.decision["heliotrope.kv.action"] == "Recompute"
    assert (told.cached_tokens, told.expected_tokens) == (0, 0.0)
    assert told.decision["heliotrope.avoided_recompute_joules"] == 0.0
    assert told.decision["heliotrope.avoided_recompute_seconds"] == 0.0
    assert told.request.get("gen_ai.usage.cache_read.input_tokens", 0) == 0


def reused(told: Told, action: str) -> None:
    """What the decision counted on is what the engine found, and what that avoided stands in the trace."""
    assert told.decision["heliotrope.kv.action"] == action
    assert told.cached_tokens > 3_000
    assert told.expected_tokens == pytest.approx(told.cached_tokens, rel=0.1)
    assert told.request["gen_ai.usage.cache_read.input_tokens"] == told.cached_tokens
    model = profiles.load(PROFILE)
    whole, rest = float(told.prompt_tokens), float(told.prompt_tokens - told.cached_tokens)
    joules = float(model.prefill_joules(whole)) - float(model.prefill_joules(rest))
    seconds = float(model.prefill_seconds(whole)) - float(model.prefill_seconds(rest))
    assert told.decision["heliotrope.avoided_recompute_joules"] == pytest.approx(joules, rel=0.15)
    assert told.decision["heliotrope.avoided_recompute_seconds"] == pytest.approx(seconds, rel=0.15)


async def test_a_conversation_hits_its_own_cache_and_another_one_goes_to_the_owner_of_what_they_share(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, {"north": 300.0, "south": 400.0}, pulling=False) as path:
        ann, bob = Chat(path, "ann"), Chat(path, "bob")
        first = await ann.turn("Where was the market?")
        assert first.engine == "engine-north"
        recomputed(first)
        # The other region is cleaner now, but not by what computing the prompt again would draw there.
        await path.intensities({"north": 300.0, "south": 250.0})
        second = await ann.turn("And where did people bathe?")
        assert second.engine == "engine-north"
        reused(second, "LocalHit")
        assert second.cached_tokens > first.prompt_tokens * 0.95
        assert second.decision["heliotrope.session.movement"] == "stayed"
        other = await bob.turn("How long is the aqueduct?")
        assert other.engine == "engine-north"
        reused(other, "RouteToOwner")
        assert other.decision["heliotrope.session.movement"] == "new"
        stranger = await Chat(path, "cleo", system="You count birds. ").turn("How many are there?")
        assert stranger.engine == "engine-south", "who has no cache goes where it is cleanest"
        recomputed(stranger)


async def test_a_much_cleaner_region_pulls_what_another_one_has_computed(tmp_path: Path) -> None:
    async with running(tmp_path, {"north": 20.0, "south": 400.0}, pulling=True) as path:
        first = await Chat(path, "ann").turn("Where was the market?")
        assert first.engine == "engine-north"
        recomputed(first)
        await path.intensities({"north": 400.0, "south": 20.0})
        pulled = await Chat(path, "bob").turn("How long is the aqueduct?")
        assert pulled.engine == "engine-south"
        reused(pulled, "PeerTransfer")
        assert pulled.decision["heliotrope.kv.source"] == "default/engine-north"
        assert (
            0.0
            < pulled.decision["heliotrope.kv.transfer_joules"]
            < (pulled.decision["heliotrope.avoided_recompute_joules"])
        )
        assert (
            0.0
            < pulled.decision["heliotrope.kv.transfer_seconds"]
            < (pulled.decision["heliotrope.avoided_recompute_seconds"])
        )
