"""What `heliotrope status` shows, from a cluster or a folder. What cannot be read is a sentence, not an empty list."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from heliotrope.api.documents import AnyResource, parse
from heliotrope.api.scalars import parse_time
from heliotrope.api.v1alpha1 import CarbonPolicy, NodePower, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import Resource
from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.region_profiles import ClusterUnreachableError

if TYPE_CHECKING:
    from heliotrope_operator.kube import Kube
    from heliotrope_operator.resources import ResourceType

R = TypeVar("R", bound=Resource)
Document = Mapping[str, Any]
PAGE = 200
MAX_PICKERS = 50
"""Pools whose pickers are asked for savings; more are for Prometheus."""
METRICS_PORT = "http-metrics"
AGENT = "heliotrope-agent"
"""Field manager of the node agents."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A suspended Job that opted in."""

    namespace: str
    name: str
    planned_start: str | None
    """RFC 3339; None: it is not planned yet."""
    deadline: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class PickerText:
    """One picker's metrics, or why there are none."""

    where: str
    text: str | None
    problem: str | None = None
    others: int = 0
    """Pickers of the same pool that were not asked: a Service answers with one of them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment; None: it could not be read, and `problems` says why."""

    now_unix_s: float
    regions: tuple[RegionProfile, ...] | None
    policies: tuple[CarbonPolicy, ...] | None
    variants: tuple[WorkloadVariant, ...] | None
    node_powers: tuple[NodePower, ...] | None
    jobs: tuple[WaitingJob, ...] | None
    pickers: tuple[PickerText, ...] = ()
    problems: tuple[str, ...] = ()
    reported_unix_s: Mapping[str, float] = field(default_factory=dict)
    """By node, when its agent last wrote the NodePower's status, by the API server's clock: a node's may be wrong."""

    def within(self, namespaces: Iterable[str]) -> "Snapshot":
        """Only what is in these namespaces, beside what belongs to no namespace; all without any."""
        chosen = set(namespaces)
        if not chosen:
            return self

        def kept(found: tuple[R, ...] | None) -> tuple[R, ...] | None:
            return None if found is None else tuple(each for each in found if each.metadata.namespace in chosen)

        jobs = None if self.jobs is None else tuple(each for each in self.jobs if each.namespace in chosen)
        return replace(self, policies=kept(self.policies), variants=kept(self.variants), jobs=jobs)


def of_folder(folder: Path) -> Snapshot:
    """What the files of a folder say; nothing runs there, so statuses are those that the files hold.

    Raises:
        InvalidInputError: if the folder or a file in it cannot be read.
    """
    with needs("epp"):
        from heliotrope_epp.datalayer.documents import read_resources
    if not folder.is_dir():
        raise InvalidInputError(str(folder), "is not a folder")
    found: list[AnyResource] = []
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            found += read_resources(path.read_bytes())
        except OSError as error:
            raise InvalidInputError(str(path), f"cannot be read: {error.strerror or error}") from error
        except InvalidInputError as error:
            raise InvalidInputError(str(path), str(error)) from error
    if not found:
        raise InvalidInputError(str(folder), "holds no resource of heliotrope.io")
    return Snapshot(
        now_unix_s=time.time(),
        regions=_of(RegionProfile, found),
        policies=_of(CarbonPolicy, found),
        variants=_of(WorkloadVariant, found),
        node_powers=_of(NodePower, found),
        jobs=(),
    )


def of_cluster(kubeconfig: Path | None, namespaces: tuple[str, ...], *, ask_pickers: bool) -> Snapshot:
    """What a cluster's API server says.

    Args:
        kubeconfig: None takes the service account in a cluster, else the user's own.
        namespaces: whose objects are read; empty: all.
        ask_pickers: whether the pools' pickers are asked for their metrics, through the API server.

    Raises:
        ClusterUnreachableError: if the API server does not answer, or does not have our kinds.
        InvalidInputError: if there are no credentials.
    """
    with needs("operator"):
        from heliotrope_operator.errors import ApiError
    try:
        return asyncio.run(_cluster(kubeconfig, namespaces, ask_pickers=ask_pickers))
    except ApiError as error:
        raise ClusterUnreachableError(f"the API server cannot be read: {error}") from error


async def _cluster(kubeconfig: Path | None, namespaces: tuple[str, ...], *, ask_pickers: bool) -> Snapshot:
    from heliotrope_operator.reading import opened

    async with opened(kubeconfig) as kube:
        reader = _Reader(kube, namespaces)
        policies = await reader.own(CarbonPolicy)
        snapshot = Snapshot(
            now_unix_s=time.time(),
            regions=await reader.own(RegionProfile),
            policies=policies,
            variants=await reader.own(WorkloadVariant),
            node_powers=await reader.own(NodePower),
            reported_unix_s=reader.reported_unix_s,
            jobs=await reader.jobs(),
            pickers=await reader.pickers(policies or ()) if ask_pickers else (),
        )
        return replace(snapshot, problems=tuple(reader.problems))


class _Reader:
    """Reads one kind after another and keeps what went wrong."""

    def __init__(self, kube: "Kube", namespaces: tuple[str, ...]) -> None:
        self._kube = kube
        self._namespaces = namespaces
        self.problems: list[str] = []
        self.reported_unix_s: dict[str, float] = {}
        """See `Snapshot`; once NodePowers were read."""

    async def own(self, kind: type[R]) -> tuple[R, ...] | None:
        """All objects of one of our kinds, by name; None: they may not be read."""
        from heliotrope_operator.resources import RESOURCES, Kind

        resource = RESOURCES[Kind(kind.__name__)]
        documents = await self._listed(resource)
        if documents is None:
            return None
        found: list[R] = []
        for document in documents:
            try:
                about = {"apiVersion": resource.api_version, "kind": resource.kind}
                each = parse(about | dict(document), unknown_fields="ignore")
            except InvalidInputError as error:
                self.problems.append(f"{resource.kind} {_name(document)} cannot be read: {error}")
                continue
            if isinstance(each, kind):
                found.append(each)
            if isinstance(each, NodePower) and (at := _reported(document)) is not None:
                self.reported_unix_s[each.metadata.name] = at
        return tuple(sorted(found, key=lambda each: (each.metadata.namespace or "", each.metadata.name)))

    async def jobs(self) -> tuple[WaitingJob, ...] | None:
        """Suspended Jobs that opted in, by their planned start."""
        from heliotrope_operator.deferral.annotations import DEADLINE, PLANNED_START, REASON
        from heliotrope_operator.kinds.deferrable import OPT_IN
        from heliotrope_operator.resources import RESOURCES, Kind

        documents = await self._listed(RESOURCES[Kind.JOB], f"{OPT_IN}=true")
        if documents is None:
            return None
        found = []
        for document in documents:
            if not document.get("spec", {}).get("suspend"):
                continue
            metadata = document["metadata"]
            said = metadata.get("annotations") or {}
            planned, deadline, reason = said.get(PLANNED_START), said.get(DEADLINE), said.get(REASON)
            found.append(WaitingJob(metadata["namespace"], metadata["name"], planned, deadline, reason))
        return tuple(sorted(found, key=lambda job: (job.planned_start or "~", job.namespace, job.name)))

    async def pickers(self, policies: Iterable[CarbonPolicy]) -> tuple[PickerText, ...]:
        """Metrics of a picker of each pool that a policy is about."""
        pools = sorted(
            {(each.metadata.namespace or "", ref.name) for each in policies for ref in each.spec.target_refs}
        )
        if len(pools) > MAX_PICKERS:
            self.problems.append(f"savings: the first {MAX_PICKERS} of {len(pools)} pools are shown")
        return tuple([await self._picker(namespace, name) for namespace, name in pools[:MAX_PICKERS]])

    async def _picker(self, namespace: str, name: str) -> PickerText:
        from heliotrope_operator.errors import ApiError, ForbiddenError, NotFoundError
        from heliotrope_operator.resources import RESOURCES, Kind

        where = f"pool {namespace}/{name}"
        try:
            pool = await self._kube.get(RESOURCES[Kind.INFERENCE_POOL].path(namespace, name))
        except NotFoundError:
            return PickerText(where, None, "there is no such InferencePool")
        except ApiError as error:
            return PickerText(where, None, f"the InferencePool cannot be read: {error}")
        reference = pool.get("spec", {}).get("endpointPickerRef") or {}
        service = reference.get("name")
        if service is None or reference.get("kind", "Service") != "Service":
            return PickerText(where, None, "the InferencePool names no Service as its endpoint picker")
        where = f"{where}, Service {service}"
        path = f"/api/v1/namespaces/{namespace}/services/{service}:{METRICS_PORT}/proxy/metrics"
        try:
            text = await self._kube.text(path)
        except NotFoundError:
            return PickerText(where, None, f"there is no such Service, or it has no port named {METRICS_PORT}")
        except ForbiddenError:
            return PickerText(
                where, None, f"you need `get` on services/proxy in {namespace}; or give --picker or --ledger"
            )
        except ApiError as error:
            return PickerText(where, None, f"no picker answers: {error}")
        return PickerText(where, text, others=max(await self._count(namespace, service) - 1, 0))

    async def _count(self, namespace: str, service: str) -> int:
        """Ready pickers behind a Service; 1 where that cannot be told."""
        from heliotrope_operator.errors import ApiError
        from heliotrope_operator.planning.pickers import addresses_of
        from heliotrope_operator.resources import ENDPOINT_SLICES

        label = f"kubernetes.io/service-name={service}"
        try:
            slices = await self._kube.get(ENDPOINT_SLICES.path(namespace), {"labelSelector": label})
        except ApiError:
            return 1
        return len({address for each in slices.get("items", ()) for address in addresses_of(each)}) or 1

    async def _listed(self, resource: "ResourceType", labels: str | None = None) -> list[Document] | None:
        from heliotrope_operator.errors import ForbiddenError, NotFoundError

        scopes = self._namespaces if resource.namespaced and self._namespaces else ("",)
        try:
            return [document for scope in scopes async for document in self._scope(resource, scope, labels)]
        except NotFoundError as error:
            raise ClusterUnreachableError(
                f"the cluster has no {resource.plural}: apply the CRDs (`heliotrope crds`), or name a folder ({error})"
            ) from error
        except ForbiddenError as error:
            group = f" of {resource.group}" if resource.group else ""
            self.problems.append(f"{resource.kind}s are unknown: you need `list` on {resource.plural}{group} ({error})")
            return None

    async def _scope(self, resource: "ResourceType", namespace: str, labels: str | None) -> AsyncIterator[Document]:
        parameters = {"limit": str(PAGE)} | ({} if labels is None else {"labelSelector": labels})
        while True:
            page = await self._kube.get(resource.path(namespace), parameters)
            for item in page.get("items", ()):
                yield item
            following = page["metadata"].get("continue")
            if not following:
                return
            parameters["continue"] = following


def _of(kind: type[R], resources: Iterable[AnyResource]) -> tuple[R, ...]:
    found = [each for each in resources if isinstance(each, kind)]
    return tuple(sorted(found, key=lambda each: (each.metadata.namespace or "", each.metadata.name)))


def _reported(document: Document) -> float | None:
    """When the node's agent last wrote the status of a NodePower, as the API server keeps it of each manager."""
    for entry in document.get("metadata", {}).get("managedFields") or ():
        if entry.get("manager") == AGENT and entry.get("subresource") == "status":
            with contextlib.suppress(ValueError, KeyError):
                return parse_time(entry["time"]).timestamp()
    return None


def _name(document: Document) -> str:
    metadata = document.get("metadata", {})
    return "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
