"""The path of a traced request: Envoy, the picker's own process, and an emulated engine that shows its headers."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from e2e.stack import Engine, start_engine, write_folder

from heliotrope_sim.children import Child
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway, running_gateway

REGIONS = {"clean": 20.0, "dirty": 400.0}


@dataclass
class Wiretap:
    """Stands before an engine's port, passes every byte on and keeps the heads of requests."""

    host: str
    port: int
    heads: list[dict[str, str]] = field(default_factory=list)
    address: str = ""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_connection(self.host, self.port)
        back = asyncio.create_task(self._copy(engine_reader, writer))
        self.tasks.add(back)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while data := await reader.read(65_536):
                if b" HTTP/1.1\r\n" in data:
                    self._keep(data)
                engine_writer.write(data)
                await engine_writer.drain()
        engine_writer.close()
        await asyncio.gather(back, return_exceptions=True)

    def _keep(self, data: bytes) -> None:
        lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        head = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        self.heads.append({":line": lines[0], **head})

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    def heads_of(self, request_id: str) -> list[dict[str, str]]:
        """The requests with this id."""
        return [head for head in self.heads if head.get("x-request-id") == request_id]


@dataclass
class Stack:
    """Everything that runs."""

    gateway: Gateway
    picker: Child
    taps: dict[str, Wiretap]
    metrics_url: str


@asynccontextmanager
async def traced_stack(
    folder: Path, environment: Mapping[str, str], *flags: str, trace_collector: str | None = None
) -> AsyncIterator[Stack]:
    """One engine per region behind a wiretap, the picker with these variables and flags, and Envoy in front."""
    async with AsyncExitStack() as stack:
        engines: list[Engine] = []
        taps: dict[str, Wiretap] = {}
        for region in REGIONS:
            engine = await start_engine(folder, f"engine-{region}", region)
            stack.push_async_callback(engine.child.stop)
            tap = Wiretap(engine.host, engine.port)
            server = await asyncio.start_server(tap.connected, "127.0.0.1", 0)
            stack.callback(server.close)
            host, port = server.sockets[0].getsockname()[:2]
            taps[region] = tap
            engines.append(replace(engine, host=host, port=port))
        write_folder(folder / "resources", engines, REGIONS)
        picker = await Child.start(
            "picker",
            [
                sys.executable, "-m", "heliotrope_cli.main", "epp", f"--folder={folder / 'resources'}",
                "--grpc-port=0", "--health-port=0", "--metrics-port=0", "--host=127.0.0.1", "--no-secure-serving",
                "--announce", "--drain-seconds=0.1", "--grace-seconds=5", *flags,
            ],
            folder / "picker.log",
            env={"OTEL_BSP_SCHEDULE_DELAY": "100", **environment},
        )  # fmt: skip
        stack.push_async_callback(picker.stop)
        ports = json.loads(await picker.first_line(90.0))
        config = GatewayConfig(pickers=(f"127.0.0.1:{ports['grpc_port']}",), trace_collector=trace_collector)
        gateway = await stack.enter_async_context(running_gateway(config, directory=folder / "envoy"))
        await gateway.wait_for_pickers()
        yield Stack(gateway, picker, taps, f"http://127.0.0.1:{ports['metrics_port']}/metrics")
