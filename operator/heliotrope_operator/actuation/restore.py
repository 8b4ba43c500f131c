"""Gives back everything that an operator holds, without that operator: on uninstallation, or by hand.

It takes the operator's own Lease first, so the two never write at once.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from heliotrope.api.v1alpha1.common import ORIGINAL_ANNOTATION
from heliotrope.errors import HeliotropeError, InvalidInputError
from heliotrope_operator.actuation.fields import MAX_REPLICA_COUNT, MAX_REPLICAS, REPLICAS, Field, Fields, Found
from heliotrope_operator.errors import ApiError, ConflictError, NotFoundError
from heliotrope_operator.kube import Kube
from heliotrope_operator.leadership import LEASE, Leadership
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import RESOURCES, SCALE_TARGETS, Kind, ResourceType
from heliotrope_operator.settings import LeaseSettings, own_identity
from heliotrope_operator.writes import FIELD_MANAGER, Writes
from heliotrope_operator.writes import Leadership as MayWrite

_log = logging.getLogger(__name__)

ATTEMPTS = 10
AGAIN_S = 0.2
"""Others may be writing the same objects."""

_DEPLOYMENT = SCALE_TARGETS[0]
_CEILINGS = {
    RESOURCES[Kind.HORIZONTAL_POD_AUTOSCALER]: MAX_REPLICAS,
    RESOURCES[Kind.SCALED_OBJECT]: MAX_REPLICA_COUNT,
}


class OperatorRunsError(HeliotropeError):
    """An operator holds the Lease; it would take again what is given back."""


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """What to give back, and how."""

    operator_namespace: str
    """Namespace of the operator that took it; what another took is left alone."""
    kubeconfig: Path | None = None
    namespaces: tuple[str, ...] = ()
    """Where to look; empty: everywhere."""
    resources: tuple[str, ...] = ()
    """Further kinds with `/scale`, as `plural.version.group`."""
    stop: str | None = None
    """Name of the operator's Deployment, to be stopped first."""
    dry_run: bool = False
    identity: str = ""
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    patience_s: float = 25.0
    """How long to wait for the Lease; longer than a crashed operator's runs."""


class Result(StrEnum):
    """What became of a field."""

    RESTORED = "restored"
    """It has the value that it had before Heliotrope."""
    LEFT = "left"
    """Somebody else has set it meanwhile, or it had that value already: it stays, and is no longer ours."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Restored:
    """One field that was held."""

    where: Field
    before: int | None
    after: int | None
    result: Result
    problem: str = ""


class _Alone:
    """Nobody else can be writing: the namespace of the Lease does not exist."""

    held = True


Giver = Callable[[Writes, RestoreSettings], Awaitable[list[Restored]]]
"""Gives back what another part holds."""


async def restore(settings: RestoreSettings, also: Iterable[Giver] = ()) -> list[Restored]:
    """Give back every field that the operator holds.

    Args:
        settings: what to give back, and how.
        also: what other parts hold; given back while the Lease is still held.

    Returns:
        What became of each, failures among them; with `dry_run` what would.

    Raises:
        OperatorRunsError: if an operator holds the Lease and goes on doing so.
        ApiError: if the API server does not answer, or does not allow to look.
        InvalidInputError: if a resource is not one.
    """
    kube = Kube(settings.kubeconfig, Metrics(CollectorRegistry()))
    try:
        await kube.connect()
        if settings.dry_run:
            return await _all(kube, Writes(kube, _Alone()), settings, also)
        if settings.stop is not None:
            await _stop(kube, settings.operator_namespace, settings.stop)
        async with _leading(kube, settings) as leadership:
            return await _all(kube, Writes(kube, leadership), settings, also)
    finally:
        await kube.close()


async def _stop(kube: Kube, namespace: str, name: str) -> None:
    with contextlib.suppress(NotFoundError):
        await kube.merge(_DEPLOYMENT.path(namespace, name, "scale"), {"spec": {"replicas": 0}})
        _log.info("stopped Deployment %s/%s", namespace, name)


@contextlib.asynccontextmanager
async def _leading(kube: Kube, settings: RestoreSettings) -> AsyncIterator[MayWrite]:
    """Hold the operator's Lease."""
    try:
        await kube.get(f"/api/v1/namespaces/{settings.operator_namespace}")
    except NotFoundError:
        yield _Alone()
        return
    leadership = Leadership(
        kube,
        Metrics(CollectorRegistry()),
        namespace=settings.operator_namespace,
        identity=settings.identity or f"restore-{own_identity()}",
        settings=settings.lease,
        unix_clock=time.time,
    )
    taken = asyncio.Event()
    task = asyncio.create_task(leadership.run(taken.set), name="leadership")
    try:
        async with asyncio.timeout(settings.patience_s):
            await taken.wait()
        yield leadership
    except TimeoutError:
        if taken.is_set():
            raise
        raise OperatorRunsError(
            f"an operator holds the Lease {settings.operator_namespace}/{LEASE} and would take again what is given "
            "back: delete the policies or set them to Advise, and it gives everything back itself; or stop it first, "
            "with --stop and the name of its Deployment"
        ) from None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await leadership.release()


async def _all(kube: Kube, writes: Writes, settings: RestoreSettings, also: Iterable[Giver]) -> list[Restored]:
    fields = Fields(writes, operator=settings.operator_namespace, unix_clock=time.time)
    kinds = [*SCALE_TARGETS, *_CEILINGS, *[await _discovered(kube, text) for text in settings.resources]]
    done = []
    for resource in kinds:
        for namespace in settings.namespaces or ("",):
            for held in await _held(kube, resource, namespace):
                restored = await _one(fields, held, settings)
                done += [] if restored is None else [restored]
    for give_back in also:
        done += await give_back(writes, settings)
    return done


async def _discovered(kube: Kube, text: str) -> ResourceType:
    plural, _, rest = text.partition(".")
    version, _, group = rest.partition(".")
    where = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        served = await kube.get(where) if version else {}
    except NotFoundError:
        served = {}
    for about in served.get("resources", ()):
        if about["name"] == plural and about["namespaced"]:
            return ResourceType(about["kind"], group, version, plural)
    raise InvalidInputError("--resource", f"{text!r} is not served; write it as plural.version.group")


async def _held(kube: Kube, resource: ResourceType, namespace: str) -> list[Field]:
    found = []
    try:
        async for page in kube.pages(resource, namespace):
            found += [
                Field(
                    resource, each["metadata"]["namespace"], each["metadata"]["name"], _CEILINGS.get(resource, REPLICAS)
                )
                for each in page.items
                if _ours(each["metadata"])
            ]
    except NotFoundError:
        return []
    return found


def _ours(metadata: Mapping[str, Any]) -> bool:
    return ORIGINAL_ANNOTATION in (metadata.get("annotations") or {}) or any(
        entry.get("manager") == FIELD_MANAGER for entry in metadata.get("managedFields") or ()
    )


async def _one(fields: Fields, held: Field, settings: RestoreSettings) -> Restored | None:
    """Give one field back; None if it is gone, or another operator's."""
    problem = ""
    for _ in range(ATTEMPTS):
        found: Found | None = None
        try:
            found = await fields.find(held)
            if found is None or (found.original is not None and found.original.operator != settings.operator_namespace):
                return None
            expected = found.restorable
            if not settings.dry_run:
                await fields.give_back(held, found)
        except ConflictError as error:
            problem = str(error)
            await asyncio.sleep(AGAIN_S)
        except ApiError as error:
            value = None if found is None else found.value
            return Restored(held, value, value, Result.FAILED, str(error))
        else:
            result = Result.LEFT if expected == found.value else Result.RESTORED
            return Restored(held, found.value, expected, result)
    return Restored(held, None, None, Result.FAILED, problem)
