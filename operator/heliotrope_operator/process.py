"""The parts of a running operator and what connects them."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from typing import Any

import kopf

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope_operator.activation import part as activation
from heliotrope_operator.actuation import part as actuation
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.controllers import statuses
from heliotrope_operator.deferral import part as deferral
from heliotrope_operator.hub import member as hub
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.targets import ScaleTarget
from heliotrope_operator.kube import Kube
from heliotrope_operator.lanes import lane_of, limits
from heliotrope_operator.leadership import Leadership
from heliotrope_operator.metrics import Metrics, RegionCollector
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.planning import part as planning
from heliotrope_operator.power import part as power
from heliotrope_operator.reconciler import Reconciler
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import Key, Kind, ResourceType
from heliotrope_operator.resync import Resync
from heliotrope_operator.settings import OperatorSettings
from heliotrope_operator.stopping import stop_on_signals
from heliotrope_operator.tables import Tables
from heliotrope_operator.watching import kopf_registry, kopf_settings
from heliotrope_operator.workqueue import WorkQueue
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes

_log = logging.getLogger(__name__)


class Operator:
    """The parts and what connects them."""

    def __init__(self, settings: OperatorSettings, kube: Kube, metrics: Metrics) -> None:
        self._settings = settings
        self._kube = kube
        self._metrics = metrics
        self._cluster = Cluster(watched(settings.parts))
        self._leadership = Leadership(
            kube,
            metrics,
            namespace=settings.namespace,
            identity=settings.identity,
            settings=settings.lease,
            unix_clock=time.time,
        )
        self._tables = Tables()
        self._queue: WorkQueue[Key] = WorkQueue(
            capacity=settings.queue_capacity,
            on_drop=self._dropped,
            lane=lambda key: lane_of(key, self._cluster, self._tables),
            limits=limits(settings.workers),
        )
        self._resync = Resync(
            kube,
            self._cluster,
            metrics,
            namespaces=settings.namespaces,
            interval_s=settings.resync_s,
            enqueue=self._queue.add_all,
            on_appeared=self._on_appeared,
        )
        self._appeared = asyncio.Event()
        self._parts = self._assembled()
        controllers = {kind: each for part in self._parts for kind, each in part.controllers.items()}
        self._reconciler = Reconciler(self._queue, controllers, self._leadership, metrics)
        metrics.registry.register(RegionCollector(self._regions, time.time))

    async def run(self, stop: asyncio.Event) -> bool:
        """Run until stopped, or until something happens that only a new start mends; says whether it was stopped."""
        listed = asyncio.Event()
        # Kopf ends every task that was made after its own; so ours come first.
        workers = [_start(self._reconciler.work(), f"worker {n}") for n in range(self._settings.workers)]
        helpers = [
            _start(self._reconciler.keep_beating(), "heartbeat"),
            _start(self._resync.run(listed.set), "resync"),
            _start(self._lead(listed), "leadership"),
            *(_start(helper(), f"part {n}") for n, part in enumerate(self._parts) for helper in part.helpers),
        ]
        watching = _start(self._watch(stop), "watching")
        ends = [_start(stop.wait(), "stop"), _start(self._appeared.wait(), "a kind that appeared")]
        await asyncio.wait({watching, *ends, *workers, *helpers}, return_when=asyncio.FIRST_COMPLETED)
        # Told to stop, all parts are still running. One that is not has failed, or has ended, which it never should.
        failed = not stop.is_set()
        stop.set()
        await asyncio.wait({watching})
        _log_failures([watching, *workers, *helpers])
        await self._reconciler.drain(workers, self._settings.drain_s)
        for task in (*workers, *helpers, *ends):
            task.cancel()
        await asyncio.gather(*workers, *helpers, *ends, return_exceptions=True)
        for part in self._parts:
            if part.close is not None:
                await part.close()
        await self._leadership.release()
        _log.info("stopped")
        return not failed

    def _assembled(self) -> list[Part]:
        """The parts that are switched on; the first one keeps statuses and is always there."""
        settings, cluster, clock = self._settings, self._cluster, time.time
        recorder = Recorder(self._kube, self._metrics, instance=settings.identity, unix_clock=clock)
        writes = Writes(self._kube, self._leadership)
        writer = Writer(
            writes,
            cluster,
            recorder,
            self._metrics,
            refresh_s=settings.status_refresh_s,
            enqueue=self._queue.add_all,
        )
        context = Context(
            settings=settings,
            kube=self._kube,
            writes=writes,
            writer=writer,
            cluster=cluster,
            recorder=recorder,
            metrics=self._metrics,
            unix_clock=clock,
            enqueue=self._queue.add_all,
            tables=self._tables,
        )
        parts = [statuses.part(context)]
        if settings.parts.engines:
            parts.append(planning.part(context))
        if settings.parts.scaling:
            parts.append(actuation.part(context))
        if settings.parts.activation:
            parts.append(activation.part(context))
        if settings.parts.power:
            parts.append(power.part(context))
        if settings.parts.deferral:
            parts.append(deferral.part(context))
        parts.append(hub.part(context))
        return parts

    async def _watch(self, stop: asyncio.Event) -> None:
        settings = self._settings
        registry = kopf_registry(
            {kind: spec.resource for kind, spec in self._cluster.specs.items()},
            login=self._kube.connection_info,
            on_object=self._on_object,
            on_target=self._on_target,
            on_failure=self._on_failure,
            stalled=self._stalled,
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        existing = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=kopf_settings(clusterwide=not settings.namespaces),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            liveness_endpoint=f"http://{host}:{settings.health_port}/healthz",
            stop_flag=stop,
        )
        stop_on_signals(stop)  # Kopf's own handlers fail on a second signal
        await kopf.run_tasks(tasks, ignored=existing)

    async def _lead(self, listed: asyncio.Event) -> None:
        """Write nothing before everything is known once."""
        await listed.wait()
        seeds = [seed for part in self._parts for seed in part.seeds]
        await self._leadership.run(lambda: self._queue.add_all([*self._cluster.reconciled(), *seeds]))

    def _on_object(self, kind: Kind, change: str | None, document: Mapping[str, Any]) -> None:
        metadata = document["metadata"]
        if change == "DELETED":
            key = Key(kind, metadata.get("namespace", ""), metadata["name"])
            self._queue.add_all(self._cluster.forget(key, metadata.get("uid")))
            return
        self._queue.add_all(self._cluster.observe(kind, document))
        if change is None:
            self._resync.request()  # a list was made anew, so deletions may have been missed before it

    def _on_target(self, resource: ResourceType, change: str | None, document: Mapping[str, Any]) -> None:
        metadata = document["metadata"]
        target = ScaleTarget(metadata["namespace"], resource.group, resource.kind, metadata["name"])
        self._queue.add_all(self._cluster.variants.by("target", target))
        for part in self._parts:
            if part.on_target is not None:
                self._queue.add_all(part.on_target(resource, change, document))

    def _on_appeared(self, kind: Kind) -> None:
        if self._settings.namespaces:
            _log.warning("the cluster serves %ss now; a new start is needed to watch them", kind.value)
            self._appeared.set()

    def _on_failure(self, kind: str, error: Exception) -> None:
        _log.error("an event of a %s could not be taken in; a resync follows", kind, exc_info=error)
        self._metrics.event_failures.labels(kind).inc()
        self._resync.request()

    def _dropped(self) -> None:
        self._metrics.dropped.inc()
        self._resync.request(everything=True)

    def _stalled(self) -> str | None:
        silent_s = self._reconciler.silent_s
        if silent_s <= self._settings.stalled_after_s:
            return None
        return f"nothing was reconciled for {silent_s:.0f} s"

    def _regions(self) -> list[RegionProfile]:
        return self._cluster.regions.values()


def _start(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.create_task(work, name=name)


def _log_failures(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed; a new start is needed", task.get_name(), exc_info=error)
