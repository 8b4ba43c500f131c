"""Three clusters on this machine, each with its own Envoy, picker and engine, and in front of them the region tier."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from aiohttp import ClientError, ClientSession, ClientTimeout, web
from e2e.stack import Engine, start_engine, write_folder, write_regions

from heliotrope_sim.children import Child
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway

READY_SECONDS = 180.0
LIGHT = ("--no-learn", "--no-meter", "--no-ledger")
POLICY = {
    "apiVersion": "heliotrope.io/v1alpha1",
    "kind": "CarbonPolicy",
    "metadata": {"name": "tier", "namespace": "default"},
    "spec": {
        "targetRefs": [{"name": "pool"}],
        "slo": {"ttft": "5s", "tpot": "500ms"},
        "enforcement": "Enforce",
        "placement": {"scheduler": "Facility", "window": "20ms", "solverDeadline": "1s"},
    },
}


@dataclass(slots=True)
class Picker:
    """A picker's process and where it listens."""

    child: Child
    grpc_port: int
    admin_port: int


@dataclass(slots=True)
class Cluster:
    """One region."""

    name: str
    folder: Path
    engine: Engine
    picker: Picker
    gateway: Gateway

    @property
    def address(self) -> str:
        return self.gateway.url.removeprefix("http://")

    @property
    def state_url(self) -> str:
        return f"http://127.0.0.1:{self.picker.admin_port}/v1/state"

    async def kill(self) -> None:
        """All of it, as a power cut would."""
        await self.gateway.kill()
        await self.picker.child.kill()
        await self.engine.child.kill()

    async def revive(self) -> None:
        """All of it, where it was."""
        port = int(self.address.rpartition(":")[2])
        self.engine, self.picker = await asyncio.gather(
            start_engine(self.folder, self.engine.name, self.name, port=self.engine.port),
            start(self.folder, *_endpoint_flags(self.folder), admin_port=self.picker.admin_port),
        )
        self.gateway = await _gateway(self.folder, self.picker, port)


class StateMirror:
    """Stands before a picker's state, as its region's gateway may; tells something else when a test wants it."""

    def __init__(self) -> None:
        self.upstream: str | None = None
        """None: the region is not there."""
        self.garbage: bytes | None = None
        self._runner: web.AppRunner | None = None
        self._session: ClientSession | None = None
        self.url = ""

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/state", self._state)
        self._session = ClientSession(timeout=ClientTimeout(total=2.0))
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1/state"

    async def close(self) -> None:
        if self._runner is not None and self._session is not None:
            await self._runner.cleanup()
            await self._session.close()

    async def _state(self, _: web.Request) -> web.Response:
        if self.garbage is not None:
            return web.Response(body=self.garbage)
        if self.upstream is None:
            return web.Response(status=502)
        assert self._session is not None
        try:
            async with self._session.get(self.upstream) as answer:
                return web.Response(body=await answer.read(), status=answer.status)
        except (ClientError, TimeoutError):
            return web.Response(status=502)


@dataclass(slots=True)
class Tier:
    """Everything that runs."""

    clusters: dict[str, Cluster]
    mirrors: dict[str, StateMirror]
    picker: Picker
    second: Picker
    """Another scheduler of the same regions; the gateway asks both in turn."""
    gateway: Gateway
    resources: Path

    def intensities(self, values: Mapping[str, float]) -> None:
        write_regions(self.resources, values)

    async def page(self, path: str) -> Any:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"http://127.0.0.1:{self.picker.admin_port}{path}")).json()

    async def state(self) -> dict[str, Any]:
        state: dict[str, Any] = await self.page("/debug/state")
        return state

    async def metric(self, name: str, *parts: str, of: Picker | None = None) -> float:
        """Sum of a metric of a scheduler, by default the first, over the lines whose labels have all parts."""
        port = (of or self.picker).admin_port
        async with httpx.AsyncClient(trust_env=False) as client:
            text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.partition("{")[0].partition(" ")[0] == name and all(part in line for part in parts)
        )


@dataclass(slots=True)
class Answer:
    """What a client saw."""

    status: int
    region: str | None
    engine: str | None


@dataclass(slots=True)
class Traffic:
    """Clients that keep asking."""

    url: str
    answers: list[Answer] = field(default_factory=list)

    @property
    def failures(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 200]

    async def until_all_in(self, region: str, count: int = 8, seconds: float = 30.0) -> None:
        """Wait until so many answers in a row came from one region."""
        async with asyncio.timeout(seconds):
            while [a.region for a in self.answers[-count:] if a.status == 200] != [region] * count:
                await asyncio.sleep(0.05)

    async def ask(self, client: httpx.AsyncClient, number: int) -> None:
        body = {
            "model": "test-model",
            "messages": [{"role": "user", "content": f"{number} How green is the grid?"}],
            "max_tokens": 4,
        }
        try:
            answer = await client.post(
                f"{self.url}/v1/chat/completions", json=body, headers={"x-heliotrope-region": "nowhere"}
            )
        except httpx.TransportError:
            self.answers.append(Answer(0, None, None))
            return
        headers = answer.headers
        self.answers.append(
            Answer(answer.status_code, headers.get("x-heliotrope-region"), headers.get("x-inference-pod"))
        )


@asynccontextmanager
async def traffic(tier: Tier, clients: int = 3) -> AsyncIterator[Traffic]:
    """Steady load for the length of a block."""
    running = Traffic(tier.gateway.url)

    async def keep_asking(client: httpx.AsyncClient, number: int) -> None:
        while True:
            await running.ask(client, number)
            await asyncio.sleep(0.02)

    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        tasks = [asyncio.create_task(keep_asking(client, number)) for number in range(clients)]
        try:
            yield running
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def running_tier(folder: Path, intensities: Mapping[str, float]) -> AsyncIterator[Tier]:
    """One cluster per region and the tier in front; everything is stopped afterwards."""
    clusters: list[Cluster] = []
    mirrors: dict[str, StateMirror] = {}
    pickers: list[Picker] = []
    gateway: Gateway | None = None
    try:
        for name in intensities:
            mirrors[name] = StateMirror()
            await mirrors[name].open()
        resources = folder / "tier" / "resources"
        resources.mkdir(parents=True)
        (resources / "policy.yaml").write_text(yaml.safe_dump(POLICY))
        write_regions(resources, intensities)
        regions = folder / "tier" / "regions.yaml"
        regions.write_text(yaml.safe_dump(_tier_document(mirrors)))
        # All of them take seconds to start, so they do it at once.
        flags = ("--tier=region", f"--regions={regions}", f"--folder={resources}")
        await asyncio.to_thread((folder / "second").mkdir)
        one, two, *clusters = await asyncio.gather(
            start(folder / "tier", *flags),
            start(folder / "second", *flags),
            *(_cluster(folder / name, name) for name in intensities),
        )
        pickers = [one, two]
        for cluster in clusters:
            mirrors[cluster.name].upstream = cluster.state_url
        gateway = await Gateway.start(
            GatewayConfig(
                pickers=tuple(f"127.0.0.1:{picker.grpc_port}" for picker in pickers),
                regions={cluster.name: cluster.address for cluster in clusters},
            ),
            directory=folder / "tier" / "envoy",
        )
        await gateway.wait_for_pickers(len(pickers))
        yield Tier({cluster.name: cluster for cluster in clusters}, mirrors, one, two, gateway, resources)
    finally:
        if gateway is not None:
            await gateway.stop()
        for picker in pickers:
            await picker.child.stop()
        for mirror in mirrors.values():
            await mirror.close()
        for cluster in clusters:
            await cluster.gateway.stop()
            await cluster.picker.child.stop()
            await cluster.engine.child.stop()


async def start(folder: Path, *flags: str, admin_port: int = 0) -> Picker:
    """A picker of either tier."""
    child = await Child.start(
        f"picker {folder.name}",
        [
            sys.executable,
            "-m",
            "heliotrope_cli.main",
            "epp",
            "--host=127.0.0.1",
            "--grpc-port=0",
            "--health-port=0",
            f"--metrics-port={admin_port}",
            "--no-secure-serving",
            "--drain-seconds=0",
            "--announce",
            *flags,
        ],
        folder / "picker.log",
    )
    ports = json.loads(await child.first_line(READY_SECONDS))
    return Picker(child, ports["grpc_port"], ports["metrics_port"])


async def _cluster(folder: Path, name: str) -> Cluster:
    await asyncio.to_thread(folder.mkdir, parents=True)
    engine = await start_engine(folder, f"engine-{name}", name)
    write_folder(folder / "resources", [engine], {name: 100.0})
    picker = await start(folder, *_endpoint_flags(folder))
    return Cluster(name, folder, engine, picker, await _gateway(folder, picker, 0))


def _endpoint_flags(folder: Path) -> Sequence[str]:
    return (f"--folder={folder / 'resources'}", *LIGHT)


async def _gateway(folder: Path, picker: Picker, port: int) -> Gateway:
    config = GatewayConfig(pickers=(f"127.0.0.1:{picker.grpc_port}",), listen_port=port)
    gateway = await Gateway.start(config, directory=folder / "envoy")
    await gateway.wait_for_pickers()
    return gateway


def _tier_document(mirrors: Mapping[str, StateMirror]) -> dict[str, Any]:
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "RegionTier",
        "schedulers": 2,
        "polling": {"interval": "300ms", "timeout": "300ms", "lostAfterPolls": 4, "longestInterval": "1s"},
        "regions": [{"name": name, "stateUrls": [mirror.url]} for name, mirror in mirrors.items()],
    }
