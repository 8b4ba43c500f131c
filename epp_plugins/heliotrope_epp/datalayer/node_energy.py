"""The energy counters of whole nodes, as a DCGM exporter or the node agent shows them.

Engines do not know their watts. An exporter on the node does, and where it watches the kubelet it labels every series
with the pod that has the accelerator; with several where they share it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from heliotrope_epp.datalayer import tasks
from heliotrope_epp.datalayer.metrics_text import ENERGY_COUNTER, label_text, samples, whole
from heliotrope_epp.datalayer.state import EndpointState

_log = logging.getLogger(__name__)

_FAILURES_BEFORE_WARNING = 5
_POD_LABELS = ((b"pod", b"namespace"), (b"pod_name", b"pod_namespace"), (b"exported_pod", b"exported_namespace"))

Pod = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class NodeEnergySettings:
    """How a node's exporter is asked."""

    port: int
    path: str = "/metrics"
    interval_s: float = 0.5
    timeout_s: float = 1.0
    longest_interval_s: float = 10.0
    """What the time between two tries grows to while a node does not answer."""
    max_page_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator on a node's page."""

    millijoules: int | None
    """Its counter; None: not a number."""
    pods: frozenset[Pod]
    """Who has it; empty: nobody, or the exporter does not say."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One page of a node's exporter."""

    read_s: float
    """Monotonic time at which the page arrived."""
    accelerators: Mapping[str, Accelerator]
    """By UUID."""


def node_reading(page: bytes, read_s: float) -> NodeReading:
    """Read one page. Series of one UUID are one accelerator that several pods share, never several accelerators."""
    found: dict[str, Accelerator] = {}
    for labels, text in samples(b"\n" + page, ENERGY_COUNTER):
        uuid = label_text(labels, b"UUID") or label_text(labels, b"uuid") or label_text(labels, b"gpu")
        if uuid is None:
            continue
        pod = _pod(labels)
        pods = frozenset() if pod is None else frozenset({pod})
        before = found.get(uuid)
        value = whole(text)
        if before is None:
            found[uuid] = Accelerator(value, pods)
        else:
            found[uuid] = Accelerator(value if before.millijoules is None else before.millijoules, before.pods | pods)
    return NodeReading(read_s, found)


def _pod(labels: bytes) -> Pod | None:
    for name, namespace in _POD_LABELS:
        pod = label_text(labels, name)
        if pod is not None:
            return label_text(labels, namespace) or "default", pod
    return None


@dataclass(slots=True)
class NodeCounts:
    """Counts since start."""

    succeeded: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    """By why a page could not be read: `status`, `timeout`, `connection`, `size`."""


class _PageError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class NodeEnergy:
    """Keeps a reading of every node that has an endpoint, one task per node. Use as a context manager."""

    def __init__(
        self,
        settings: NodeEnergySettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng or random.Random()
        self._session: aiohttp.ClientSession | None = None
        self._nodes: dict[str, set[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.readings: dict[str, NodeReading] = {}
        """The last good page by node address."""
        self.counts = NodeCounts()

    async def __aenter__(self) -> "NodeEnergy":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=1, use_dns_cache=False),
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_s),
            headers={"Accept": "text/plain", "Accept-Encoding": "identity", "User-Agent": "heliotrope-epp"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        running = list(self._tasks.values())
        self._tasks.clear()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def added(self, state: EndpointState) -> None:
        """Read the endpoint's node from now on."""
        address = state.endpoint.node_address
        if address is None or self._session is None:
            return
        self._nodes.setdefault(address, set()).add(state.endpoint.key)
        if address not in self._tasks:
            self._tasks[address] = tasks.start(self._follow(address, self._session), f"energy of node {address}")

    def removed(self, key: str) -> None:
        """Stop to read nodes without an endpoint."""
        for address, keys in list(self._nodes.items()):
            keys.discard(key)
            if not keys:
                del self._nodes[address]
                self.readings.pop(address, None)
                self._tasks.pop(address).cancel()

    def cache_lost(self, key: str) -> None:
        """Nothing: counters of nodes outlive engines."""

    async def _follow(self, address: str, session: aiohttp.ClientSession) -> None:
        s = self._settings
        await asyncio.sleep(self._rng.uniform(0.0, s.interval_s))
        failures = 0
        while True:
            started_s = self._clock()
            try:
                page = await self._page(address, session)
            except _PageError as error:
                failures += 1
                self.counts.failed[error.reason] = self.counts.failed.get(error.reason, 0) + 1
                if failures == _FAILURES_BEFORE_WARNING:
                    _log.warning("node %s does not give energy: %s", address, error)
                pause = min(s.interval_s * 2.0 ** min(failures - 1, 16), s.longest_interval_s)
                await asyncio.sleep(pause * self._rng.uniform(0.75, 1.0))
                continue
            if failures >= _FAILURES_BEFORE_WARNING:
                _log.info("node %s gives energy again", address)
            failures = 0
            self.counts.succeeded += 1
            self.readings[address] = node_reading(page, self._clock())
            await asyncio.sleep(max(started_s + s.interval_s - self._clock(), s.interval_s / 2.0))

    async def _page(self, address: str, session: aiohttp.ClientSession) -> bytes:
        s = self._settings
        host = f"[{address}]" if ":" in address else address
        try:
            async with session.get(f"http://{host}:{s.port}{s.path}", allow_redirects=False) as response:
                if response.status != 200:
                    raise _PageError("status", f"HTTP {response.status}")
                chunks: list[bytes] = []
                size = 0
                async for chunk in response.content.iter_any():
                    size += len(chunk)
                    if size > s.max_page_bytes:
                        response.close()
                        raise _PageError("size", f"the page exceeds {s.max_page_bytes} bytes")
                    chunks.append(chunk)
                return b"".join(chunks)
        except TimeoutError as error:
            raise _PageError("timeout", f"no answer within {s.timeout_s} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _PageError("connection", str(error) or type(error).__name__) from error
