"""One InferencePool with its pods, and our resources beside it, as the Kubernetes API has them."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from heliotrope.api.documents import parse
from heliotrope.api.grants import Right, grant
from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import GROUP, VERSION, Resource
from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.kubernetes.connection import Collection, Connection
from heliotrope_epp.datalayer.kubernetes.nodes import NodeRegions
from heliotrope_epp.datalayer.kubernetes.objects import (
    Pod,
    Pool,
    endpoints_of,
    labels_of,
    nodes_in_question,
    pod_of,
    pool_of,
    priority_of,
)
from heliotrope_epp.datalayer.kubernetes.reflector import Reflector, ReflectorTiming
from heliotrope_epp.datalayer.resources import PoolRef, Resources

POOL_GROUP = "inference.networking.k8s.io"
POOL_VERSION = "v1"
OBJECTIVE_GROUP = "llm-d.ai"
OBJECTIVE_VERSION = "v1alpha2"

_QUIET_S = 0.05
"""Changes of one burst (a rollout) are published together."""

_NODES_AGAIN_S = 30.0

R = TypeVar("R", bound=Resource)


@dataclass(slots=True)
class _Pods:
    """The mirror of the pods that one selector selects."""

    selector: str
    reflector: Reflector[Pod]
    task: asyncio.Task[None]


class KubernetesSource:
    """Watches with the least that is needed: see `docs/sources.md` for the exact rights."""

    def __init__(
        self,
        pool: PoolRef,
        connection: Connection,
        *,
        timing: ReflectorTiming | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._timing = timing or ReflectorTiming()
        self._rng = rng or random.Random()
        self._changed = asyncio.Event()
        self._started = False
        self._pools = self._reflector(
            Collection(POOL_GROUP, POOL_VERSION, "inferencepools", pool.namespace),
            pool_of,
            field_selector=f"metadata.name={pool.name}",
        )
        self._policies = self._resources(CarbonPolicy, pool.namespace)
        self._variants = self._resources(WorkloadVariant, pool.namespace)
        self._regions = self._resources(RegionProfile, None)
        self._objectives = self._reflector(
            Collection(OBJECTIVE_GROUP, OBJECTIVE_VERSION, "inferenceobjectives", pool.namespace),
            priority_of,
            required=False,
        )
        self._namespaces = self._reflector(
            Collection("", "v1", "namespaces"),
            labels_of,
            field_selector=f"metadata.name={pool.namespace}",
            required=False,
        )
        self._nodes = NodeRegions(connection)
        self._nodes_missing = False
        self._pods: _Pods | None = None

    @property
    def healthy(self) -> bool:
        """Whether everything could be read at the last try."""
        pods = self._pods is None or self._pods.reflector.healthy
        return pods and all(each.healthy for each in (self._pools, self._policies, self._variants, self._regions))

    async def run(self, publish: Callable[[Resources], None]) -> None:
        """Publish the first complete state, then each change, until cancelled.

        While the API server is away at the start, nothing is published and the tries go on.

        Raises:
            InvalidInputError: if there are no credentials, or a right is missing at the start.
        """
        try:
            async with asyncio.TaskGroup() as group:
                optional = (self._objectives, self._namespaces)
                for reflector in (self._pools, self._policies, self._variants, self._regions, *optional):
                    group.create_task(reflector.run())
                group.create_task(self._assemble(group, publish))
        except ExceptionGroup as errors:
            refused = errors.subgroup(InvalidInputError)
            raise errors if refused is None else _first(refused) from None

    async def _assemble(self, group: asyncio.TaskGroup, publish: Callable[[Resources], None]) -> None:
        published: Resources | None = None
        while True:
            await self._something_new()
            await asyncio.sleep(_QUIET_S)
            self._changed.clear()
            pool = self._pools.objects.get(str(self._pool))
            self._follow_pods(group, pool)
            if not self._complete():
                continue
            resources = await self._gathered(pool)
            if resources != published:
                published = resources
                self._started = True
                publish(resources)

    async def _something_new(self) -> None:
        """Wait for a change, or for the time to ask again for nodes that could not be read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NODES_AGAIN_S if self._nodes_missing else None):
                await self._changed.wait()

    def _follow_pods(self, group: asyncio.TaskGroup, pool: Pool | None) -> None:
        """Mirror the pods that the pool selects now."""
        selector = None if pool is None else pool.label_selector
        if self._pods is not None and self._pods.selector != selector:
            self._pods.task.cancel()
            self._pods = None
        if self._pods is None and selector is not None:
            reflector = self._reflector(
                Collection("", "v1", "pods", self._pool.namespace), pod_of, label_selector=selector
            )
            self._pods = _Pods(selector, reflector, group.create_task(reflector.run()))

    def _complete(self) -> bool:
        """Whether each kind was listed, so that nothing that exists is missing; rights may be unknown, if asked for."""
        mirrors = (self._pools, self._policies, self._variants, self._regions)
        return (
            self._namespaces.tried
            and all(each.synced for each in mirrors)
            and (self._pods is None or self._pods.reflector.synced)
        )

    async def _gathered(self, pool: Pool | None) -> Resources:
        regions = tuple(self._regions.objects[name] for name in sorted(self._regions.objects))
        problems = [
            problem
            for reflector in (self._pools, self._policies, self._variants, self._regions)
            for problem in reflector.problems
        ]
        endpoints: tuple[Endpoint, ...] = ()
        if pool is None:
            problems.insert(0, f"InferencePool {self._pool} does not exist")
        elif self._pods is not None:
            pods = tuple(self._pods.reflector.objects.values())
            claimed = any(region.spec.topology_regions for region in regions)
            nodes = nodes_in_question(pods) if claimed else frozenset()
            node_regions = await self._nodes.of(nodes)
            self._nodes_missing = not nodes <= node_regions.keys()
            endpoints = endpoints_of(pool, pods, node_regions)
        return Resources(
            endpoints=endpoints,
            policies=tuple(self._policies.objects[key] for key in sorted(self._policies.objects)),
            regions=regions,
            variants=tuple(self._variants.objects[key] for key in sorted(self._variants.objects)),
            problems=tuple(problems),
            outdated_policies=self._policies.outdated,
            priorities=dict(self._objectives.objects.values()),
            downgrades_withheld_because=self._downgrades_withheld(),
        )

    def _downgrades_withheld(self) -> str | None:
        namespace = self._pool.namespace
        granted = grant(Right.DOWNGRADES, namespace, self._namespaces.objects.get(namespace))
        return None if granted.allowed else granted.message

    def _resources(self, kind: type[R], namespace: str | None) -> Reflector[R]:
        collection = Collection(GROUP, VERSION, kind.definition.plural, namespace)
        return self._reflector(collection, lambda item: _typed(item, kind))

    def _reflector(
        self,
        collection: Collection,
        convert: Callable[[dict[str, Any]], Any],
        *,
        label_selector: str = "",
        field_selector: str = "",
        required: bool = True,
    ) -> Reflector[Any]:
        """What is not required is not waited for, and may be refused for good."""
        return Reflector(
            self._connection,
            collection,
            convert,
            self._changed.set,
            label_selector=label_selector,
            field_selector=field_selector,
            refusal_ends=required and not self._started,
            timing=self._timing,
            rng=self._rng,
        )


def _typed(item: dict[str, Any], kind: type[R]) -> R:
    """A resource of ours; fields of a newer CRD are passed over, and what the picker never reads is left out."""
    metadata = {
        key: value
        for key, value in (item.get("metadata") or {}).items()
        if key in ("name", "namespace", "creationTimestamp", "generation")
    }
    document = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind.__name__,
        "metadata": metadata,
        "spec": item.get("spec"),
    }
    status = item.get("status") or {}
    if kind is RegionProfile:
        document["status"] = item.get("status")
    elif kind is CarbonPolicy and status.get("demandResponse"):
        document["status"] = {"demandResponse": status["demandResponse"]}  # what is answered; the rest is for people
    elif kind is WorkloadVariant and status.get("chosenPower"):
        document["status"] = {"chosenPower": status["chosenPower"]}  # counts of replicas change too often to follow
    resource = parse(document, unknown_fields="ignore")
    assert isinstance(resource, kind), "the kind was set above"
    return resource


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
