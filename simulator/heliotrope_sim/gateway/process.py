"""Runs Envoy as a child process: chosen ports, readiness, a clean end, and never an orphan."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from heliotrope_sim.children import Child
from heliotrope_sim.gateway.config import BASELINE_LISTENER, LISTENER, PICKER_CLUSTER, GatewayConfig, bootstrap
from heliotrope_sim.gateway.errors import GatewayError
from heliotrope_sim.gateway.install import install_envoy

READY_SECONDS = 30.0
LOG_NAME = "envoy.log"
HEALTHY_STAT = f"cluster.{PICKER_CLUSTER}.membership_healthy"


class Gateway:
    """A running Envoy. Made by `start`, on the thread that outlives it: Linux ends it together with that thread."""

    def __init__(self, child: Child, directory: Path, owns_directory: bool) -> None:
        self._child = child
        self._directory = directory
        self._owns_directory = owns_directory
        self.admin_url = ""
        self.url = ""
        """Where clients send requests, without a trailing slash."""
        self.baseline_url: str | None = None
        """The listener without a picker, if there is one."""

    @classmethod
    async def start(
        cls,
        config: GatewayConfig,
        *,
        directory: Path | None = None,
        binary: Path | None = None,
        concurrency: int = 1,
        ready_seconds: float = READY_SECONDS,
    ) -> "Gateway":
        """Start Envoy and wait until it takes requests.

        Args:
            config: what it is to do.
            directory: where its configuration and log are written and kept; a temporary one by default.
            binary: the Envoy to run; `install_envoy()` by default.
            concurrency: worker threads.
            ready_seconds: how long it may take to come up.

        Raises:
            GatewayError: if it does not come up; the message ends with its log.
        """
        if binary is None:
            binary = await asyncio.to_thread(install_envoy)
        owned = directory is None
        folder = directory or Path(tempfile.mkdtemp(prefix="heliotrope-envoy-"))
        folder.mkdir(parents=True, exist_ok=True)
        child = await _spawn(binary, folder, config, concurrency)
        gateway = cls(child, folder, owned)
        try:
            async with asyncio.timeout(ready_seconds):
                await gateway._wait_ready(config)
        except TimeoutError:
            tail = gateway.log_tail()
            await gateway.kill()
            raise GatewayError(f"Envoy was not ready within {ready_seconds:g} s; its log ends:\n{tail}") from None
        except BaseException:
            await gateway.kill()
            raise
        return gateway

    @property
    def pid(self) -> int:
        """Process id of Envoy itself."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._child.running

    @property
    def log_path(self) -> Path:
        """Envoy's log, warnings and above."""
        return self._directory / LOG_NAME

    def log_tail(self) -> str:
        """The end of the log."""
        return self._child.log_end()

    async def stats(self, pattern: str = "") -> dict[str, int]:
        """Envoy's counters and gauges whose name matches a regular expression."""
        body = await self._admin("/stats", {"format": "json", "filter": pattern, "type": "All"})
        return {entry["name"]: entry["value"] for entry in body["stats"] if "value" in entry}

    async def wait_for_pickers(self, count: int = 1, seconds: float = READY_SECONDS) -> None:
        """Wait until at least this many pickers pass Envoy's health check.

        Raises:
            GatewayError: if they do not in time.
        """

        async def healthy() -> bool:
            return (await self.stats(f"^{HEALTHY_STAT}$")).get(HEALTHY_STAT, 0) >= count

        try:
            async with asyncio.timeout(seconds):
                await _poll(healthy)
        except TimeoutError:
            raise GatewayError(f"fewer than {count} pickers became healthy within {seconds:g} s") from None

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """End it: SIGTERM, then SIGKILL. Its temporary folder goes too. Does nothing the second time."""
        await self._child.stop(grace_seconds)
        await self.kill()

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        await self._child.kill()
        if self._owns_directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _wait_ready(self, config: GatewayConfig) -> None:
        await _poll(self._live)
        body = await self._admin("/listeners", {"format": "json"})
        ports = {
            entry["name"]: entry["local_address"]["socket_address"]["port_value"] for entry in body["listener_statuses"]
        }
        self.url = f"http://{config.listen}:{ports[LISTENER]}"
        if config.baseline:
            self.baseline_url = f"http://{config.listen}:{ports[BASELINE_LISTENER]}"

    def _knows_admin(self) -> bool:
        """Whether Envoy has told its admin address; raises once the process has ended."""
        if not self.running:
            raise GatewayError(f"Envoy ended with {self._child.exit_code}; its log ends:\n{self.log_tail()}")
        try:
            address = (self._directory / "admin-address").read_text()
        except FileNotFoundError:
            return False
        self.admin_url = f"http://{address}"
        return bool(address)

    async def _live(self) -> bool:
        if not self._knows_admin():
            return False
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                return (await client.get(f"{self.admin_url}/ready", timeout=2.0)).status_code == 200
        except httpx.TransportError:
            return False

    async def _admin(self, path: str, query: dict[str, str]) -> Any:
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                response = await client.get(f"{self.admin_url}{path}", params=query, timeout=5.0)
                return response.raise_for_status().json()
        except httpx.HTTPError as error:
            raise GatewayError(f"Envoy's admin interface: {error}; its log ends:\n{self.log_tail()}") from error


async def _poll(condition: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await condition():
            return
        await asyncio.sleep(0.02)


async def _spawn(binary: Path, folder: Path, config: GatewayConfig, concurrency: int) -> Child:
    configuration = folder / "envoy.json"
    configuration.write_text(json.dumps(bootstrap(config), indent=1))
    address = folder / "admin-address"
    address.unlink(missing_ok=True)
    command = [
        str(binary),
        "--config-path",
        str(configuration),
        "--admin-address-path",
        str(address),
        "--concurrency",
        str(concurrency),
        "--disable-hot-restart",
        "--log-level",
        "warn",
    ]
    return await Child.start("Envoy", command, folder / LOG_NAME)


@asynccontextmanager
async def running_gateway(
    config: GatewayConfig, *, directory: Path | None = None, binary: Path | None = None, concurrency: int = 1
) -> AsyncIterator[Gateway]:
    """A gateway for the length of a block."""
    gateway = await Gateway.start(config, directory=directory, binary=binary, concurrency=concurrency)
    try:
        yield gateway
    finally:
        await gateway.stop()
