"""Images through a real Envoy, the picker, llm-d's sidecar and emulated engines, one of which only encodes."""

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from e2e.stack import MODEL, PROFILE, write_folder

from heliotrope.engine.counters import CounterLimits
from heliotrope_epp.app import Picker
from heliotrope_epp.clock import Clock
from heliotrope_epp.ledger.read import opened
from heliotrope_epp.ledger.settings import LedgerSettings
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.settings import EppSettings
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway
from heliotrope_sim.sidecar import Sidecar, SidecarConfig
from heliotrope_sim.sidecar.config import ECConnector

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

METERING = MeteringSettings(hold_s=1.0, limits=CounterLimits(shortest_seconds=1.0))
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: encode-filter
- type: decode-filter
- type: queue-scorer
- type: max-score-picker
- type: mm-embeddings-cache-producer
- type: mm-embeddings-cache-scorer
- type: always-disagg-multimodal-decider
- type: disagg-profile-handler
  parameters: {deciders: {encode: always-disagg-multimodal-decider}}
schedulingProfiles:
- name: encode
  plugins: [{pluginRef: encode-filter}, {pluginRef: mm-embeddings-cache-scorer}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]
"""


def picture(width: int, height: int = 280) -> dict[str, Any]:
    """A picture of (width / 28) × (height / 28) tokens."""
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


@dataclass(slots=True)
class Told:
    """What the picker's sinks were told."""

    requests: dict[str, FinishedRequest] = field(default_factory=dict)
    energies: dict[str, RequestEnergy | None] = field(default_factory=dict)
    intervals: list[MeteredInterval] = field(default_factory=list)

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        self.requests[request.request_id], self.energies[request.request_id] = request, energy

    def metered(self, interval: MeteredInterval) -> None:
        self.intervals.append(interval)


@dataclass
class Pool:
    url: str
    admin: str
    engines: Mapping[str, ServedEngine]
    told: Told

    async def ask(self, name: str, *parts: dict[str, Any], **headers: str) -> dict[str, Any]:
        """The usage of one answer."""
        content = [*parts, {"type": "text", "text": "what is this?"}]
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 4, "ignore_eos": True}
        async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
            url = f"{self.url}/v1/chat/completions"
            answer = await client.post(url, json=body, headers={"x-request-id": name, **headers})
        assert answer.status_code == 200, answer.text
        usage: dict[str, Any] = answer.json()["usage"]
        return usage

    async def chosen(self, name: str) -> dict[str, Any]:
        """The candidate that the policy took."""
        async with httpx.AsyncClient(trust_env=False) as client:
            record = (await client.get(f"{self.admin}/debug/decisions/{name}")).json()
        found: dict[str, Any] = next(c for c in record["carbon_decision"]["candidates"] if c["chosen"])
        return found

    async def metrics(self) -> str:
        """The picker's page."""
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"{self.admin}/metrics")).text

    async def energy(self, name: str) -> RequestEnergy:
        """What was attributed to a request, once that is settled."""
        async with asyncio.timeout(20.0):
            while name not in self.told.energies:
                await asyncio.sleep(0.1)
        found = self.told.energies[name]
        assert found is not None
        return found

    def drawn(self, engine: str, name: str) -> float:
        """The joules that an engine truly drew for a request."""
        finished = self.engines[engine].driver.finished
        return sum(record.joules for key, record in finished.items() if key.startswith(f"chatcmpl-{name}"))

    def encoded(self) -> dict[str, int]:
        """Images that each engine has encoded."""
        encoders = {name: engine.driver.engine.encoder for name, engine in self.engines.items()}
        return {name: 0 if encoder is None else encoder.encoded_images for name, encoder in encoders.items()}


@asynccontextmanager
async def running(folder: Path, intensities: Mapping[str, float], *, policy: bool = True) -> AsyncIterator[Pool]:
    """An encoder `e` and a decoder `d` on one host, with grids of their own."""
    async with AsyncExitStack() as stack:
        settings = {"profile": PROFILE, "model": MODEL, "kv_transfer": {"node": "node-1"}, "encoder": {}}
        roles = {"e": {"role": "encode"}, "d": {}}
        configs = [EngineConfig.model_validate({"name": n, "region": n, **settings, **roles[n]}) for n in intensities]
        emulator = await stack.enter_async_context(Emulator(EmulatorConfig(engines=tuple(configs))))
        front = SidecarConfig(decoder_url=emulator.engines["d"].url, ec_connector=ECConnector.NIXL)
        urls = {"e": emulator.engines["e"].url, "d": (await stack.enter_async_context(Sidecar(front))).url}
        endpoints = []
        for name, role in (("e", "encode"), ("d", "decode")):
            host, _, port = urls[name].removeprefix("http://").partition(":")
            labels = {"app": "llm", "heliotrope.io/region": name, "kubernetes.io/hostname": "node-1"}
            labels["llm-d.ai/role"] = role
            at = {"name": name, "namespace": "default", "address": host, "port": port, "labels": labels}
            endpoints.append(at)
        resources = folder / "resources"
        write_folder(resources, [], intensities)
        (resources / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": endpoints}))
        if not policy:
            (resources / "policy.yaml").unlink()
        picker = Picker(
            EppSettings(
                folder=resources,
                config_text=CONFIG,
                host="127.0.0.1",
                grpc_port=0,
                health_port=0,
                metrics_port=0,
                metering=METERING,
                ledger=LedgerSettings(folder / "ledger", flush_seconds=0.1),
                grace_seconds=1.0,
            ),
            Clock(),
        )
        told = Told()
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
                yield Pool(gateway.url, f"http://127.0.0.1:{picker.ports.metrics_port}", emulator.engines, told)
        finally:
            source.cancel()
            await asyncio.gather(source, return_exceptions=True)


async def test_a_clean_encoder_encodes_and_what_is_remembered_is_not_encoded_again(tmp_path: Path) -> None:
    async with running(tmp_path, {"e": 20.0, "d": 400.0}) as pool:
        text = await pool.ask("text")
        assert pool.encoded() == {"e": 0, "d": 0}
        usage = await pool.ask("first", picture(560))
        assert usage["prompt_tokens"] - text["prompt_tokens"] == 202
        assert pool.encoded() == {"e": 1, "d": 0}
        first = await pool.chosen("first")
        assert (first["endpoint"], first["encode_endpoints"]) == ("default/d", ["default/e"])
        drawn = pool.engines["e"].driver.finished["chatcmpl-first-enc-0"].joules
        assert first["encode_joules"] == pytest.approx(drawn, rel=0.2)
        await pool.ask("again", picture(560))
        assert pool.encoded() == {"e": 1, "d": 0}
        again = await pool.chosen("again")
        assert again["encode_joules"] == 0.0
        await pool.ask("two", picture(280), picture(560))
        assert pool.encoded() == {"e": 2, "d": 0}
        page = await pool.metrics()
        assert 'heliotrope_encode_placements_total{placement="encoder"} 2.0' in page
        assert 'heliotrope_encode_placements_total{placement="in-place"} 1.0' in page


async def test_an_encoders_joules_are_its_requests_and_stand_at_its_own_place(tmp_path: Path) -> None:
    async with running(tmp_path, {"e": 20.0, "d": 400.0}) as pool:
        pictures = [picture(1400 + 28 * i, 1400) for i in range(6)]
        await pool.ask("seen", *pictures)
        assert pool.encoded() == {"e": 6, "d": 0}
        energy = await pool.energy("seen")
        assert [share.endpoint for share in energy.engines] == ["default/d", "default/e"]
        assert sum(share.millijoules for share in energy.engines) == energy.millijoules
        for share, engine in zip(energy.engines, ("d", "e"), strict=True):
            assert share.region == engine
            assert share.millijoules / 1_000.0 == pytest.approx(pool.drawn(engine, "seen"), rel=0.25)
        expected = pool.told.requests["seen"].expected
        assert expected is not None
        assert expected.energy_joules == pytest.approx(energy.millijoules / 1_000.0, rel=0.3)

        await pool.ask("text")
        assert (await pool.energy("text")).engines == ()
        shares = {share.region: share.millijoules for share in energy.engines}
        at_e = [each for each in pool.told.intervals if each.endpoint == "default/e"]
        assert sum(each.requests_millijoules for each in at_e) == shares["e"]
        assert sum(each.others_millijoules for each in at_e) == 0
    with opened(tmp_path / "ledger") as connection:
        rows = connection.sql(
            "SELECT region, sum(millijoules), sum(requests), sum(grams_co2e) > 0 FROM ledger WHERE line = 'request' "
            "GROUP BY region"
        ).fetchall()
        left = connection.sql("SELECT region, sum(millijoules) FROM ledger WHERE line = 'unrecorded' GROUP BY region")
        assert all(millijoules == 0 for _, millijoules in left.fetchall())
    found = {region: (int(millijoules), int(requests), priced) for region, millijoules, requests, priced in rows}
    assert found["e"] == (shares["e"], 0, True)
    assert found["d"][1] == 2, "a request is counted once, where it was answered"


async def test_a_dirty_encoder_is_left_alone_also_where_the_client_names_it(tmp_path: Path) -> None:
    async with running(tmp_path, {"e": 400.0, "d": 20.0}) as pool:
        encoder = pool.engines["e"].url.removeprefix("http://")
        await pool.ask("forged", picture(560), **{"x-encoder-hosts-ports": encoder})
        assert pool.encoded() == {"e": 0, "d": 1}
        assert (await pool.chosen("forged"))["encode_endpoints"] == []


async def test_without_a_policy_llm_ds_decider_decides(tmp_path: Path) -> None:
    async with running(tmp_path, {"e": 400.0, "d": 20.0}, policy=False) as pool:
        await pool.ask("image", picture(560))
        await pool.ask("text")
        assert pool.encoded() == {"e": 1, "d": 0}
