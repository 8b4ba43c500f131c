"""A real Envoy in front of regions that speak TLS, with the region director behind the real transport."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.unit.epp.region.bench import Bench, chat, policy

from heliotrope_epp.transport.aio.server import AioServer
from heliotrope_epp.transport.certificates import self_signed
from heliotrope_epp.transport.interface import SelfSigned
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway
from heliotrope_sim.gateway.regions import server_name

pytestmark = pytest.mark.envoy

INTENSITIES = {"clean": 20.0, "dirty": 400.0}
BODY = chat()


@dataclass
class RegionGateway:
    """A region's own gateway: TLS with a certificate of its own, and what reached it."""

    region: str
    certificate: Path
    key: Path
    address: str = ""
    headers: list[Mapping[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.copy())
        self.bodies.append(await request.read())
        usage = {"prompt_tokens": 10, "completion_tokens": 3}
        return web.json_response({"region": self.region, "usage": usage})


def certified(folder: Path, region: str, name: str) -> RegionGateway:
    pair = self_signed(SelfSigned((name,)))
    certificate, key = folder / f"{region}.crt", folder / f"{region}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return RegionGateway(region, certificate, key)


@dataclass
class Running:
    bench: Bench
    regions: dict[str, RegionGateway]
    client: aiohttp.ClientSession

    async def ask(self, headers: Mapping[str, str] | None = None) -> aiohttp.ClientResponse:
        answer = await self.client.post("/v1/chat/completions", data=BODY, headers=headers)
        await answer.read()
        return answer


@asynccontextmanager
async def running(folder: Path, names: Mapping[str, str] | None = None) -> AsyncIterator[Running]:
    """`names` are those in the regions' certificates, by default the right ones."""
    bench = Bench(INTENSITIES, carbon_policy=policy(window="5ms"))
    regions = {name: certified(folder, name, (names or {}).get(name, server_name(name))) for name in INTENSITIES}
    async with AsyncExitStack() as stack:
        for region in regions.values():
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(region.certificate, region.key)
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", region.answer)
            runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            region.address = "{}:{}".format(*runner.addresses[0][:2])
        server = AioServer(bench.director)
        bound = await server.start("127.0.0.1:0")
        stack.push_async_callback(server.shutdown, 0.0)
        server.set_serving(True)
        config = GatewayConfig(
            pickers=(f"127.0.0.1:{bound.port}",),
            regions={name: region.address for name, region in regions.items()},
            region_authorities={name: region.certificate for name, region in regions.items()},
        )
        gateway = await stack.enter_async_context(running_gateway(config))
        await gateway.wait_for_pickers()
        timeout = aiohttp.ClientTimeout(total=60.0)
        client = await stack.enter_async_context(aiohttp.ClientSession(gateway.url, timeout=timeout))
        yield Running(bench, regions, client)


async def test_a_request_reaches_the_chosen_region_whole_over_its_own_tls(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        answer = await it.ask({"x-heliotrope-regions": "clean", "x-heliotrope-class": "batch"})
        assert (answer.status, (await answer.json())["region"]) == (200, "clean")
        assert answer.headers["x-heliotrope-region"] == "clean"
        seen = it.regions["clean"]
        assert seen.bodies == [BODY]
        assert seen.headers[0]["x-heliotrope-region"] == "clean"
        assert seen.headers[0]["x-heliotrope-class"] == "batch"
        assert "x-heliotrope-regions" not in seen.headers[0]
        assert it.regions["dirty"].bodies == []


async def test_no_client_chooses_its_region(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        answer = await it.ask({"x-heliotrope-region": "dirty"})
        assert (await answer.json())["region"] == "clean"
        refused = await it.client.post("/v1/chat/completions", data=b"{", headers={"x-heliotrope-region": "dirty"})
        assert refused.status == 400
        assert json.loads(await refused.read())["error"]["message"] == "body: not valid JSON"
        assert it.regions["dirty"].bodies == []


async def test_a_gateway_with_anothers_certificate_gets_nothing_and_its_region_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path, {"clean": server_name("somebody-else")}) as it:
        statuses = []
        for _ in range(6):
            answer = await it.ask()
            statuses.append((answer.status, answer.headers.get("x-heliotrope-region")))
        assert statuses == [(503, "clean")] * 5 + [(200, "dirty")]
        assert it.regions["clean"].bodies == []


async def test_streams_pass_and_the_books_are_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        for _ in range(3):
            assert (await it.ask()).status == 200
        assert it.bench.director.inflight == 0
        assert it.bench.metric("heliotrope_region_requests_total", region="clean", code="200", cause="complete") == 3
