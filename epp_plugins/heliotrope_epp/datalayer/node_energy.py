"""The energy counters of whole nodes, as a DCGM exporter or the node agent shows them.

Engines do not know their watts. An exporter on the node does, and where it watches the kubelet it labels every series
with the pod that has the accelerator; with several where they share it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heliotrope_epp.datalayer.metrics_text import ENERGY_COUNTER, label_text, samples, whole
from heliotrope_epp.datalayer.pages import PageCounts, PageError, PageReader, pause_after_failure
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.tasks import KeyedTasks

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
        self._pages = PageReader(timeout_s=settings.timeout_s, max_page_bytes=settings.max_page_bytes)
        self._nodes: dict[str, set[str]] = {}
        self._tasks = KeyedTasks()
        self.readings: dict[str, NodeReading] = {}
        """The last good page by node address."""
        self.counts = PageCounts()

    async def __aenter__(self) -> "NodeEnergy":
        await self._pages.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._tasks.close()
        await self._pages.__aexit__(*exc_info)

    def added(self, state: EndpointState) -> None:
        """Read the endpoint's node from now on."""
        address = state.endpoint.node_address
        if address is None or not self._pages.is_open:
            return
        self._nodes.setdefault(address, set()).add(state.endpoint.key)
        if address not in self._tasks:
            self._tasks.start(address, self._follow(address), f"energy of node {address}")

    def removed(self, key: str) -> None:
        """Stop to read nodes without an endpoint."""
        for address, keys in list(self._nodes.items()):
            keys.discard(key)
            if not keys:
                del self._nodes[address]
                self.readings.pop(address, None)
                self._tasks.stop(address)

    def cache_lost(self, key: str) -> None:
        """Nothing: counters of nodes outlive engines."""

    async def _follow(self, address: str) -> None:
        s = self._settings
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{s.port}{s.path}"
        await asyncio.sleep(self._rng.uniform(0.0, s.interval_s))
        failures = 0
        while True:
            started_s = self._clock()
            try:
                page = await self._pages.read(url)
            except PageError as error:
                failures += 1
                self.counts.add_failure(error.reason)
                if failures == _FAILURES_BEFORE_WARNING:
                    _log.warning("node %s does not give energy: %s", address, error)
                await asyncio.sleep(pause_after_failure(failures, s.interval_s, s.longest_interval_s, self._rng))
                continue
            if failures >= _FAILURES_BEFORE_WARNING:
                _log.info("node %s gives energy again", address)
            failures = 0
            self.counts.succeeded += 1
            self.readings[address] = node_reading(page, self._clock())
            await asyncio.sleep(max(started_s + s.interval_s - self._clock(), s.interval_s / 2.0))
