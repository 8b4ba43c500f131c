"""Targets and autoscalers that go, or are made anew, between a look and each write that follows from it.

What was read of one object is never written to another of its name, and nothing is made that somebody has deleted.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.actuating import Actuating
from tests.contract.operator.cluster import Api, Document
from tests.contract.operator.scaled import granted_world, held_moved_and_given_back, hpa, scaled_object, untouched
from tests.support.controlplane import Cluster

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.errors import ConflictError, NotFoundError
from heliotrope_operator.reconciler import Controller
from heliotrope_operator.resources import Key

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

KEDA = Path(__file__).parents[2] / "support" / "keda"
MOST_WRITES = 12
MOST_FAILURES = 10
FIELDS = {"Deployment": "replicas", "HorizontalPodAutoscaler": "maxReplicas", "ScaledObject": "maxReplicaCount"}
NEW = 7
"""What an object that is made anew says."""


@pytest.fixture(scope="session")
def keda(control_plane: Cluster) -> None:
    """KEDA's kinds are served."""
    control_plane.apply_crds(KEDA)


class Again:
    """A controller whose failures are tried again, as the queue does."""

    def __init__(self, inner: Controller, enqueue: Callable[[list[Key]], None]) -> None:
        self._inner, self._enqueue = inner, enqueue
        self.failed: list[Exception] = []

    async def reconcile(self, key: Key) -> float | None:
        try:
            return await self._inner.reconcile(key)
        except (ConflictError, NotFoundError) as error:
            self.failed.append(error)
            assert len(self.failed) < MOST_FAILURES, self.failed
            self._enqueue([key])
            return None


class Meddled(Actuating):
    """Something happens before one of its writes."""

    def __init__(self, account: Path, namespace: str, number: int, happens: Callable[[], None]) -> None:
        super().__init__(account, namespace, crash_before=number)
        self.happened = 0
        self._controllers = {kind: Again(each, self.enqueue) for kind, each in self._controllers.items()}

        def end(_when: str) -> None:
            if not self.happened:
                self.happened = 1
                happens()

        self.kube.end = end  # type: ignore[method-assign]


class Thing:
    """What is scaled, or whose ceiling moves."""

    def __init__(self, api: Api, mode: str) -> None:
        self.api = api
        granted_world(api)
        self.mode = Actuation.SCALE if mode == "scale" else Actuation.CEILING
        self.document: Document = {
            "scale": api.workload,
            "hpa": lambda: hpa(api, minReplicas=2),
            "keda": lambda: scaled_object(api, maxReplicaCount=9),
        }[mode]()
        self.kind, self.name = self.document["kind"], self.document["metadata"]["name"]
        if mode != "scale":
            self.make()

    def make(self, **spec: Any) -> None:
        made = self.document | {"spec": self.document["spec"] | spec}
        self.api.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))

    def goes(self) -> None:
        self.api.delete(self.kind, self.name)

    def made_anew(self) -> None:
        self.goes()
        self.make(**{FIELDS[self.kind]: NEW})

    async def live(self, operator: Actuating) -> None:
        """Held at 5, moved to 2, given back, as far as it is there."""
        await held_moved_and_given_back(self.api, self.mode, operator)


@pytest.mark.parametrize("mode", ["scale", "hpa", "keda"])
async def test_what_goes_before_a_write_is_not_made_again(api: Api, account: Path, keda: None, mode: str) -> None:
    thing, met = Thing(api, mode), 0
    for number in range(1, MOST_WRITES + 1):
        async with Meddled(account, api.namespace, number, thing.goes) as operator:
            await thing.live(operator)
            met += operator.happened
            if not operator.happened:
                break
        assert api.get(thing.kind, thing.name).get("kind") is None, f"made again by write {number}"
        thing.make()
    assert 3 <= met < MOST_WRITES


@pytest.mark.parametrize("mode", ["scale", "hpa", "keda"])
async def test_what_is_made_anew_before_a_write_is_another_and_ends_as_it_was_made(
    api: Api, account: Path, keda: None, mode: str
) -> None:
    thing, met = Thing(api, mode), 0
    for number in range(1, MOST_WRITES + 1):
        async with Meddled(account, api.namespace, number, thing.made_anew) as operator:
            await thing.live(operator)
            met += operator.happened
            if not operator.happened:
                break
        document = api.get(thing.kind, thing.name)
        assert document["spec"][FIELDS[thing.kind]] == NEW, f"at write {number}"
        assert untouched(api, thing.kind, thing.name), f"at write {number}"
        thing.goes()
        thing.make()
    assert 3 <= met < MOST_WRITES
