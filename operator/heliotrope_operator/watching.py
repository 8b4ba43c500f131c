"""Kopf, embedded: it watches, reconnects and relists, and hands every event to us. It writes nothing.

Only `on.event` handlers are registered, of which Kopf keeps no state: no annotations, no finalizers. See
docs/adr/0001-operator.md.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import kopf

from heliotrope_operator.resources import SCALE_TARGETS, Kind, ResourceType

REQUEST_TIMEOUT_S = 30.0
INACTIVITY_TIMEOUT_S = 70.0
"""A watch without an event or bookmark for this long is dead; the server sends a bookmark every minute."""
ULTIMATE_EXIT_S = 20.0


class NoDiffBase(kopf.DiffBaseStorage):
    """What an object was like when last handled: not kept, as `on.event` handlers do not ask, and not computed.

    Kopf copies every object of every event for it otherwise.
    """

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:  # noqa: ARG002 - Kopf's
        """Nothing of the object."""
        return cast("kopf.BodyEssence", {})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002 - Kopf's
        """Nothing was kept."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Keep nothing."""


Take = Callable[[str | None, Mapping[str, Any]], None]
OnObject = Callable[[Kind, str | None, Mapping[str, Any]], None]
OnTarget = Callable[[ResourceType, str | None, Mapping[str, Any]], None]
OnFailure = Callable[[str, Exception], None]


def kopf_settings(*, clusterwide: bool) -> kopf.OperatorSettings:
    """Settings of this operator alone; Kopf's global ones are not touched.

    Args:
        clusterwide: whether all namespaces are served. If not, Kopf does not look for new kinds, because with that it
            would also list all namespaces.
    """
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = not clusterwide
    settings.process.ultimate_exiting_timeout = ULTIMATE_EXIT_S
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.server_timeout = None
    settings.watching.client_timeout = None
    settings.watching.inactivity_timeout = INACTIVITY_TIMEOUT_S
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    settings.persistence.finalizer = "heliotrope.io/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="heliotrope.io")
    settings.persistence.diffbase_storage = NoDiffBase()
    return settings


def kopf_registry(
    watched: Mapping[Kind, ResourceType],
    *,
    login: Callable[[], Awaitable[kopf.ConnectionInfo]],
    on_object: OnObject,
    on_target: OnTarget,
    on_failure: OnFailure,
    stalled: Callable[[], str | None],
) -> kopf.OperatorRegistry:
    """Handlers for every kind that is watched, for the login and for the liveness probe.

    Args:
        watched: kinds that are remembered.
        login: credentials, read anew at each call.
        on_object: takes an event of a kind that is remembered: kind, type (None when listed), object.
        on_target: takes an event of a kind that variants scale, in the same way.
        on_failure: hears when one of the two fails; Kopf would only log it.
        stalled: why this process should be restarted; None if it should not.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="login")
    async def _login(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.probe(registry=registry, id="reconciling")
    async def _probe(**_: Any) -> str:
        reason = stalled()
        if reason is not None:
            # Any other exception would be retried within the request, which then hangs.
            raise kopf.PermanentError(reason)
        return "ok"

    for kind, resource in watched.items():
        _register(registry, resource, partial(on_object, kind), on_failure)
    for resource in SCALE_TARGETS:
        _register(registry, resource, partial(on_target, resource), on_failure)
    return registry


def _register(registry: kopf.OperatorRegistry, resource: ResourceType, take: Take, on_failure: OnFailure) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry, id=resource.plural)
    async def _event(event: kopf.RawEvent, **_: Any) -> None:
        try:
            take(event["type"], {"apiVersion": resource.api_version, "kind": resource.kind, **event["object"]})
        except Exception as error:  # noqa: BLE001 - Kopf logs it and forgets the event; this way it is made up for
            on_failure(resource.kind, error)
