"""How Kopf is embedded: it keeps nothing, writes nothing, and loses no event of ours."""

from collections.abc import Mapping
from typing import Any

import kopf
import pytest

from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.resources import SCALE_TARGETS, Kind, ResourceType
from heliotrope_operator.settings import Parts
from heliotrope_operator.watching import kopf_registry, kopf_settings

ALL = Parts(scaling=True, activation=True, power=True, deferral=True)


class Seen:
    def __init__(self) -> None:
        self.objects: list[tuple[Kind, str | None, str]] = []
        self.targets: list[tuple[str, str | None, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.stalled: str | None = None
        self.broken = False

    def registry(self) -> kopf.OperatorRegistry:
        return kopf_registry(
            {spec.kind: spec.resource for spec in watched(ALL)},
            login=self._login,
            on_object=self._object,
            on_target=self._target,
            on_failure=lambda kind, error: self.failures.append((kind, str(error))),
            stalled=lambda: self.stalled,
        )

    async def _login(self) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server="https://example.com")

    def _object(self, kind: Kind, change: str | None, document: Mapping[str, Any]) -> None:
        if self.broken:
            raise KeyError("a defect")
        self.objects.append((kind, change, f"{document['apiVersion']} {document['kind']}"))

    def _target(self, resource: ResourceType, change: str | None, document: Mapping[str, Any]) -> None:
        self.targets.append((resource.kind, change, document["kind"]))


def handlers(registry: kopf.OperatorRegistry) -> dict[str, Any]:
    return {handler.id: handler.fn for handler in registry._watching.get_all_handlers()}


def test_only_event_handlers_are_registered_one_for_each_kind() -> None:
    registry = Seen().registry()

    assert set(handlers(registry)) == {
        each.plural for each in (*(spec.resource for spec in watched(ALL)), *SCALE_TARGETS)
    }
    assert registry._changing.get_all_handlers() == []
    assert registry._spawning.get_all_handlers() == []
    assert registry._indexing.get_all_handlers() == []
    assert registry._webhooks.get_all_handlers() == []
    assert kopf.get_default_registry()._watching.get_all_handlers() == []


async def test_events_come_with_their_kind_which_lists_leave_out() -> None:
    seen = Seen()
    found = handlers(seen.registry())

    await found["carbonpolicies"](event={"type": None, "object": {"metadata": {}}}, patch=None)
    await found["statefulsets"](event={"type": "DELETED", "object": {"metadata": {}}})

    assert seen.objects == [(Kind.CARBON_POLICY, None, "heliotrope.io/v1alpha1 CarbonPolicy")]
    assert seen.targets == [("StatefulSet", "DELETED", "StatefulSet")]


async def test_an_event_that_cannot_be_taken_in_is_not_lost() -> None:
    seen = Seen()
    seen.broken = True

    await handlers(seen.registry())["regionprofiles"](event={"type": "ADDED", "object": {}})

    assert seen.failures == [("RegionProfile", "'a defect'")]


async def test_the_probe_fails_for_good_when_nothing_is_reconciled() -> None:
    seen = Seen()
    (probe,) = (each.fn for each in seen.registry()._activities.get_all_handlers() if each.id == "reconciling")

    assert await probe() == "ok"
    seen.stalled = "nothing was reconciled for 99 s"
    with pytest.raises(kopf.PermanentError, match="99 s"):
        await probe()


@pytest.mark.parametrize("clusterwide", [True, False])
def test_settings(clusterwide: bool) -> None:
    settings = kopf_settings(clusterwide=clusterwide)

    assert settings.watching.server_timeout is None
    assert settings.watching.client_timeout is None
    assert settings.watching.inactivity_timeout == 70
    assert settings.networking.request_timeout == 30
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert settings.queueing.worker_limit is None  # a low limit deadlocks
    assert settings.scanning.disabled is not clusterwide
    assert kopf.OperatorSettings().networking.request_timeout != 30


def test_nothing_of_an_object_is_kept_or_copied() -> None:
    storage = kopf_settings(clusterwide=True).persistence.diffbase_storage
    body = kopf.Body({"metadata": {"annotations": {"a": "b"}}, "spec": {"x": 1}})
    patch = kopf.Patch()

    essence = storage.build(body=body)
    storage.store(body=body, patch=patch, essence=essence)

    assert dict(essence) == {}
    assert storage.fetch(body=body) is None
    assert dict(patch) == {}
