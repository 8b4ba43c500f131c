"""Compares everything known with the API server: at start, now and then, and when something may have been missed.

Watches tell of changes at once but may miss a deletion: after 410 Gone, Kopf lists anew and says nothing of objects
that are no longer there. A comparison finds those. The one at each interval also has every object reconciled again,
whether it has changed or not.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.errors import ApiError, NotFoundError
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import Key, Kind, ResourceType
from heliotrope_operator.workqueue import Backoff

_log = logging.getLogger(__name__)

QUIET_S = 1.0
"""A comparison that was asked for waits until nobody has asked for this long."""
LONGEST_WAIT_S = 10.0
"""But not longer than this."""


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
        self._everything = True

    def request(self, *, everything: bool = False) -> None:
        """Something may have been missed: compare soon. Requests until then are one.

        Args:
            everything: also have every object reconciled again.
        """
        self._wanted.set()
        self._everything = self._everything or everything

    async def run(self, ready: Callable[[], None]) -> None:
        """Compare until cancelled; `ready` is called after each success."""
        failures, backoff = 0, Backoff(0.5, 30.0)
        clock = asyncio.get_running_loop().time
        while True:
            self._wanted.clear()
            everything, self._everything = self._everything, False
            try:
                await self.once(everything=everything)
            except ApiError as error:
                failures += 1
                self._metrics.resyncs.labels("error").inc()
                self._everything = self._everything or everything
                _log.warning("cannot compare with the API server: %s", error)
                await asyncio.sleep(backoff.delay_s(failures, self._rng))
                continue
            failures = 0
            self._metrics.resyncs.labels("success").inc()
            if everything:
                due = clock() + self._interval_s * self._rng.uniform(0.9, 1.1)
            ready()
            if not await self._asked_within(due - clock()):
                self._everything = True

    async def _asked_within(self, seconds: float) -> bool:
        """Wait until a comparison is asked for and the asking has died down; False if nobody asks in time."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wanted.wait()
        except TimeoutError:
            return False
        latest = clock() + LONGEST_WAIT_S
        while self._wanted.is_set() and clock() < latest:
            self._wanted.clear()
            await asyncio.sleep(QUIET_S)
        return True

    async def once(self, *, everything: bool) -> None:
        """List every kind, take in what is there and drop what is not.

        Args:
            everything: have all objects reconciled, not only those that turn out to have changed.

        Raises:
            ApiError: if the server does not answer.
        """
        for kind, spec in self._cluster.specs.items():
            for namespace in self._namespaces if spec.resource.namespaced else ("",):
                await self._collection(kind, spec.resource, namespace)
        if everything:
            self._enqueue(self._cluster.reconciled())

    async def _collection(self, kind: Kind, resource: ResourceType, namespace: str) -> None:
        present: set[Key] = set()
        version = ""
        try:
            async for page in self._kube.pages(resource, namespace):
                version = page.resource_version
                for document in page.items:
                    metadata = document["metadata"]
                    present.add(Key(kind, metadata.get("namespace", ""), metadata["name"]))
                    typed = {"apiVersion": resource.api_version, "kind": resource.kind} | document
                    self._enqueue(self._cluster.observe(kind, typed))
        except NotFoundError:
            self._cluster.served[kind] = False
        else:
            if self._cluster.served.get(kind) is False:
                self._on_appeared(kind)
            self._cluster.served[kind] = True
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
