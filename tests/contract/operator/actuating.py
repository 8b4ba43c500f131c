"""The operator's actuation in this process, on a real API server: the test says what is wanted and when it looks.

It is assembled as the operator assembles it; only the loops are missing, so a test sees every step, and can end it at
any write and begin anew with nothing but what the API server has.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.actuation import part as actuation
from heliotrope_operator.actuation.authority import authority
from heliotrope_operator.actuation.wanted import Wanted
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.controllers import statuses
from heliotrope_operator.errors import NotFoundError
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.targets import actuations
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.parts import Context
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import SCALE_TARGETS, Key, Kind
from heliotrope_operator.resync import Resync
from heliotrope_operator.settings import OperatorSettings, Parts
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes

Document = dict[str, Any]
PROCESSED = (Kind.ACTUATION, Kind.WORKLOAD_VARIANT)
ROUNDS = 20
OTHERS = ("/deployments/", "/statefulsets/", "/leaderworkersets/", "/horizontalpodautoscalers/", "/scaledobjects/")


class CrashError(Exception):
    """The process ends here."""


class CountingKube(Kube):
    """Counts writes to other people's objects, and ends the process at one of them."""

    def __init__(self, kubeconfig: Path, metrics: Metrics, *, crash_before: int, crash_after: int) -> None:
        super().__init__(kubeconfig, metrics)
        self._crash_before = crash_before
        self._crash_after = crash_after
        self.written: list[tuple[str, Document]] = []

    async def _request(self, method: str, path: str, document: Document | None = None, **options: Any) -> Document:
        if method != "PATCH" or not any(each in path for each in OTHERS):
            return await super()._request(method, path, document, **options)
        number = len(self.written) + 1
        if number == self._crash_before:
            self.end(f"before write {number}")
        answer = await super()._request(method, path, document, **options)
        self.written.append((path, document or {}))
        if number == self._crash_after:
            self.end(f"after write {number}")
        return answer

    def end(self, when: str) -> None:
        """Ends this life; a process of its own kills itself instead."""
        raise CrashError(when)


class Leads:
    """A leadership that is held."""

    held = True


class Actuating:
    """One life of the operator; `async with` starts and ends it."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        *,
        operator: str = "heliotrope-system",
        crash_before: int = 0,
        crash_after: int = 0,
    ) -> None:
        self.namespace = namespace
        self.metrics = Metrics(CollectorRegistry())
        self.kube = CountingKube(kubeconfig, self.metrics, crash_before=crash_before, crash_after=crash_after)
        parts = Parts(scaling=True)
        self.cluster = Cluster(watched(parts))
        self._queue: list[Key] = []
        writes = Writes(self.kube, Leads())
        recorder = Recorder(self.kube, self.metrics, instance="test", unix_clock=time.time)
        self.context = Context(
            settings=OperatorSettings(namespace=operator, parts=parts),
            kube=self.kube,
            writes=writes,
            writer=Writer(writes, self.cluster, recorder, self.metrics, refresh_s=0.0, enqueue=self.enqueue),
            cluster=self.cluster,
            recorder=recorder,
            metrics=self.metrics,
            unix_clock=time.time,
            enqueue=self.enqueue,
        )
        self.actuation = actuation.part(self.context)
        self._controllers = {**statuses.part(self.context).controllers, **self.actuation.controllers}
        self._resync = Resync(
            self.kube, self.cluster, self.metrics, namespaces=(namespace,), interval_s=1e9, enqueue=self.enqueue
        )
        self._targets: dict[tuple[str, str], Document] = {}
        self.again_s: dict[Key, float | None] = {}
        self._led = False

    def enqueue(self, keys: Iterable[Key]) -> None:
        self._queue += [key for key in keys if key.kind in PROCESSED and key not in self._queue]

    def want(
        self, variant: str, replicas: int | None, mode: Actuation = Actuation.SCALE, *, act: bool | None = None
    ) -> None:
        """What the planning decides about a variant."""
        key = Key(Kind.WORKLOAD_VARIANT, self.namespace, variant)
        allowed = authority(self.cluster, key).act if act is None else act
        wanted = Wanted(replicas, mode, allowed, "Planned", "carries 12 requests/s", time.time())
        if self.context.tables.wanted.put(key, wanted):
            self.enqueue({key} | actuations(self.cluster, [key]))

    async def look(self) -> Self:
        """Take in everything as lists and watches would, without doing anything."""
        await self._resync.once(everything=False)
        on_target = self.actuation.on_target
        assert on_target is not None
        for resource in SCALE_TARGETS:
            found: dict[tuple[str, str], Document] = {}
            try:
                async for page in self.kube.pages(resource, self.namespace):
                    for item in page.items:
                        found[resource.kind, item["metadata"]["name"]] = item
            except NotFoundError:
                continue
            for known in [each for each in self._targets if each[0] == resource.kind and each not in found]:
                self.enqueue(on_target(resource, "DELETED", self._targets.pop(known)))
            for name, item in found.items():
                self._targets[name] = item
                self.enqueue(on_target(resource, None, item))
        return self

    async def settle(self) -> None:
        """Look and reconcile until nothing is left to do."""
        for _ in range(ROUNDS):
            await self.look()
            if not self._led:
                self._led = True
                self.enqueue([*self.actuation.seeds, *self.cluster.reconciled()])
            if not self._queue:
                return
            while self._queue:
                key = self._queue.pop(0)
                self.again_s[key] = await self._controllers[key.kind].reconcile(key)
        raise AssertionError(f"never settled: {self._queue}")

    def samples(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of a metric by labels."""
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name
        }

    async def __aenter__(self) -> Self:
        await self.kube.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kube.close()


def managers(document: Mapping[str, Any]) -> set[str]:
    """Everybody who owns a field of an object."""
    return {each["manager"] for each in document["metadata"].get("managedFields", ())}
