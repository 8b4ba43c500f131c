"""Images through a real Envoy, the picker, llm-d's sidecar and emulated engines, one of which only encodes."""

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from e2e.stack import MODEL, PROFILE, write_folder

from heliotrope_epp.app import Picker
from heliotrope_epp.clock import Clock
from heliotrope_epp.settings import EppSettings
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway
from heliotrope_sim.sidecar import Sidecar, SidecarConfig
from heliotrope_sim.sidecar.config import ECConnector

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

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


def picture(width: int) -> dict[str, Any]:
    """A picture of ten times width / 28 tokens."""
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, 280)
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


@dataclass
class Pool:
    url: str
    admin: str
    engines: Mapping[str, ServedEngine]

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
                grace_seconds=1.0,
            ),
            Clock(),
        )
        await picker.start(stack)
        source = asyncio.create_task(picker.follow_source())
        await asyncio.wait_for(picker.first_world.wait(), 10.0)
        picker.set_serving()
        try:
            config = GatewayConfig(pickers=(f"127.0.0.1:{picker.ports.grpc_port}",))
            async with running_gateway(config, directory=folder / "envoy") as gateway:
                await gateway.wait_for_pickers()
                await asyncio.sleep(1.0)  # metrics are read
                yield Pool(gateway.url, f"http://127.0.0.1:{picker.ports.metrics_port}", emulator.engines)
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
