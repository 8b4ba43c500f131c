"""Compares everything known with the API server: at start, now and then, and when something may have been missed.

Watches tell of changes at once but may miss a deletion: after 410 Gone, Kopf lists anew and says nothing of objects
that are no longer there. A resync drops those and looks at every object again.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.errors import ApiError, NotFoundError
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import RECONCILED, Key, Kind, ResourceType
from heliotrope_operator.workqueue import Backoff

_log = logging.getLogger(__name__)

LEAST_PAUSE_S = 1.0
"""Between two resyncs, however many are asked for."""


class Resync:
    """Runs when asked and at least every interval."""

    def __init__(
        self,
        kube: Kube,
        cluster: Cluster,
        metrics: Metrics,
        *,
        namespaces: tuple[str, ...],
        interval_s: float,
        enqueue: Callable[[Iterable[Key]], None],
        on_appeared: Callable[[Kind], None] = lambda _: None,
        rng: random.Random | None = None,
    ) -> None:
        """`namespaces` limits namespaced kinds, empty: all; `enqueue` takes keys; `on_appeared` hears of new kinds."""
        self._kube = kube
        self._cluster = cluster
        self._metrics = metrics
        self._namespaces = namespaces or ("",)
        self._interval_s = interval_s
        self._enqueue = enqueue
        self._on_appeared = on_appeared
        self._rng = rng or random.Random()
        self._wanted = asyncio.Event()

    def request(self) -> None:
        """Something may have been missed: compare soon. Requests until then are one."""
        self._wanted.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Compare until cancelled; `ready` is called after the first success."""
        failures, backoff = 0, Backoff(0.5, 30.0)
        while True:
            self._wanted.clear()
            try:
                await self.once()
            except ApiError as error:
                failures += 1
                self._metrics.resyncs.labels("error").inc()
                _log.warning("cannot compare with the API server: %s", error)
                await asyncio.sleep(backoff.delay_s(failures, self._rng))
                continue
            failures = 0
            self._metrics.resyncs.labels("success").inc()
            ready()
            await asyncio.sleep(LEAST_PAUSE_S)
            try:
                async with asyncio.timeout(self._interval_s * self._rng.uniform(0.9, 1.1)):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def once(self) -> None:
        """List every kind, take in what is there, drop what is not, and have all of it reconciled.

        Raises:
            ApiError: if the server does not answer.
        """
        for kind, resource in RECONCILED.items():
            for namespace in self._namespaces if resource.namespaced else ("",):
                await self._collection(kind, resource, namespace)
        self._enqueue(self._cluster.keys())

    async def _collection(self, kind: Kind, resource: ResourceType, namespace: str) -> None:
        try:
            listing = await self._kube.list_objects(resource, namespace)
        except NotFoundError:
            self._cluster.served[kind] = False
            items, version = [], ""
        else:
            if self._cluster.served.get(kind) is False:
                self._on_appeared(kind)
            self._cluster.served[kind] = True
            items, version = listing.items, listing.resource_version
        present = set()
        for document in items:
            metadata = document["metadata"]
            present.add(Key(kind, metadata.get("namespace", ""), metadata["name"]))
            typed = {"apiVersion": resource.api_version, "kind": resource.kind} | document
            self._enqueue(self._cluster.observe(kind, typed))
        for key in self._cluster.keys(kind):
            if (
                key not in present
                and namespace in ("", key.namespace)
                and not _newer(self._cluster.version(key), version)
            ):
                self._enqueue(self._cluster.forget(key))


def _newer(version: str, listing: str) -> bool:
    """Whether an object was seen after the list was made; then its absence there means nothing."""
    return version.isdecimal() and listing.isdecimal() and int(version) > int(listing)
