"""A member: ceilings hold until they expire, whatever the hub does; conditions tell of transitions."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.operator import objects
from tests.unit.operator.deferral.documents import cluster_of, region
from tests.unit.operator.memory import metrics
from tests.unit.operator.objects import NOW_S, Document
from tests.unit.operator.virtual import run_virtual

from heliotrope.scale.ceilings import Ceiling
from heliotrope.scale.hub import document_of
from heliotrope_operator.errors import ConflictError
from heliotrope_operator.hub.client import HubError
from heliotrope_operator.hub.member import CEILINGS, CeilingsCollector, CeilingsController, WithoutHub, needs
from heliotrope_operator.hub.settings import MemberSettings
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import Key
from heliotrope_operator.tables import Tables
from heliotrope_operator.times import format_unix

LIMITS = (Ceiling("es", "H100", 16, None), Ceiling("es", None, None, 30_000))


class World:
    """A member with a hub that answers what the test says, and a writer that stores conditions."""

    def __init__(self, *documents: Document) -> None:
        self.now_unix_s = NOW_S
        self.cluster = cluster_of(*documents)
        self.registry = CollectorRegistry()
        self.tables = Tables()
        self.answers: list[object] = []
        self.summaries: list[Document] = []
        self.told: list[tuple[str, bool, str]] = []
        self.writes = 0
        self.conflict = False
        self.forgotten = 0
        shared = metrics()
        self.registry = shared.registry
        context = SimpleNamespace(
            cluster=self.cluster,
            writer=self,
            tables=self.tables,
            unix_clock=lambda: self.now_unix_s,
            metrics=shared,
        )
        self.context = cast("Context", context)
        settings = MemberSettings("https://hub:8443", "a", poll_s=60.0)
        rng = SimpleNamespace(uniform=lambda low, high: high)
        self.controller = CeilingsController(self.context, settings, cast("Any", self), cast("Any", rng))
        shared.registry.register(
            CeilingsCollector(self.tables.ceilings, self.controller.failing, lambda: self.now_unix_s)
        )

    async def exchange(self, summary: Document) -> bytes | None:
        """The hub."""
        self.summaries.append(summary)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("bytes | None", answer)

    def forget(self) -> None:
        """Of the client: pull the whole document next time."""
        self.forgotten += 1

    async def status(self, key: Key, metadata: Any, old: Any, new: Any, changes: Any) -> None:
        """The writer."""
        if self.conflict:
            raise ConflictError("changed meanwhile")
        self.writes += 1
        self.told += [(key.name, each.warning, each.reason) for each in changes]
        profile = self.cluster.regions.get(key)
        assert profile is not None
        self.cluster.regions.put(key, profile.model_copy(update={"status": new}))

    async def look(self, *answers: object, seconds: float = 0.0) -> float:
        """Reconcile after a time, with the hub's next answers."""
        import asyncio

        self.answers += answers
        self.now_unix_s += seconds
        await asyncio.sleep(seconds)
        again = await self.controller.reconcile(CEILINGS)
        assert again is not None
        return again

    def said(self, name: str = "es") -> tuple[str, str] | None:
        profile = self.cluster.regions.get(Key(CEILINGS.kind, "", name)._replace(kind=REGION, namespace=""))
        assert profile is not None
        assert profile.status is not None
        found = [each for each in profile.status.conditions if each.type == "CeilingHolds"]
        return (found[0].status.value, found[0].reason) if found else None

    def metric(self, name: str) -> float:
        lines = generate_latest(self.registry).decode().splitlines()
        return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"{name} ")))

    def document(self, *limits: Ceiling, valid_s: float = 600.0) -> bytes:
        import json

        body = document_of(limits, format_unix(self.now_unix_s), format_unix(self.now_unix_s + valid_s))
        return json.dumps(body).encode()


REGION = next(iter(cluster_of(region("es")).regions)).kind


def test_ceilings_are_taken_over_and_told_on_the_region() -> None:
    async def story() -> None:
        world = World(region("es"), region("fr"))
        again = await world.look(world.document(*LIMITS))
        assert again == pytest.approx(66.0)
        holding = world.tables.ceilings.holding(world.now_unix_s)
        assert holding is not None
        assert holding.replicas("es", "H100", 8) == 2
        assert (world.said("es"), world.said("fr")) == (("True", "CeilingHolds"), None)
        assert world.told == []
        assert world.metric("heliotrope_hub_ceilings_hold") == 1
        assert world.metric('heliotrope_hub_ceiling_accelerators{accelerator="H100",region="es"}') == 16
        for _ in range(3):
            await world.look(None, seconds=66)
        assert (world.writes, len(world.summaries)) == (1, 4)

    run_virtual(story())


@pytest.mark.parametrize("failure", [HubError("no answer within 10 s"), b"<html>", b'{"schema": 9}'])
def test_the_last_ceilings_hold_until_they_expire_and_then_there_are_none(failure: object) -> None:
    async def story() -> None:
        world = World(region("es"))
        await world.look(world.document(*LIMITS))
        again = await world.look(failure, seconds=66)
        assert again < 10
        assert world.tables.ceilings.holding(world.now_unix_s) is not None
        assert world.said() == ("True", "HubFailing")
        assert world.told == [("es", True, "HubFailing")]
        for _ in range(6):
            await world.look(failure, seconds=100)
        assert world.tables.ceilings.holding(world.now_unix_s) is None
        assert world.said() == ("False", "CeilingExpired")
        assert world.metric("heliotrope_hub_ceilings_hold") == 0
        assert world.told == [("es", True, "HubFailing"), ("es", True, "CeilingExpired")]
        await world.look(world.document(*LIMITS), seconds=100)
        assert world.said() == ("True", "CeilingHolds")
        assert world.told[-1] == ("es", False, "CeilingHolds")
        assert world.forgotten == (0 if isinstance(failure, HubError) else 7)

    run_virtual(story())


def test_an_old_document_is_no_ceiling() -> None:
    async def story() -> None:
        world = World(region("es"))
        stale = world.document(*LIMITS)
        world.now_unix_s += 700
        await world.look(stale)
        assert world.tables.ceilings.last is None
        assert world.said() is None

    run_virtual(story())


def test_after_a_start_without_a_hub_the_region_says_that_its_ceiling_is_unknown() -> None:
    async def story() -> None:
        before = World(region("es"))
        await before.look(before.document(*LIMITS))
        after = World(region("es"))
        for key, profile in before.cluster.regions.items():
            after.cluster.regions.put(key, profile)
        await after.look(HubError("gone"))
        assert after.said() == ("False", "CeilingUnknown")
        assert after.tables.ceilings.holding(after.now_unix_s) is None

        assert await WithoutHub(after.context).reconcile(CEILINGS) is None
        assert after.said() is None

    run_virtual(story())


def test_a_region_that_changes_meanwhile_is_written_again_without_asking_the_hub_again() -> None:
    async def story() -> None:
        world = World(region("es"))
        world.conflict = True
        assert await world.look(world.document(*LIMITS)) == 1.0
        world.conflict = False
        await world.look(seconds=1)
        assert world.said() == ("True", "CeilingHolds")

    run_virtual(story())


def test_needs_are_what_is_wanted_else_what_there_is_else_unknown() -> None:
    accelerator = {"accelerator": {"type": "H100", "count": 4}}
    running = objects.variant("v", **accelerator) | {"status": {"currentReplicas": 2}}
    cluster = cluster_of(
        running,
        objects.variant("w", **accelerator),
        objects.variant("x", region="fr", **accelerator),
        objects.variant("y", region=None, **accelerator),
    )
    wanted = {"w": 3}

    assert needs(cluster, lambda key: wanted.get(key.name))["needs"] == [
        {"region": "es", "accelerator": "H100", "accelerators": 20},
        {"region": "fr", "accelerator": "H100"},
    ]
