"""The writer: transitions at once, values now and then, nothing for nothing; conflicts, ends and events."""

import asyncio
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import Held, MemoryApi, MemoryKube, metrics
from tests.unit.operator.objects import NOW, key_of

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope.api.v1alpha1.regionprofile import (
    EmissionFactor,
    Freshness,
    IntensityReading,
    RegionProfileStatus,
    SignalType,
)
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType, Finding, Transition, settle
from heliotrope_operator.errors import ConflictError, NotLeaderError
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import Key
from heliotrope_operator.settings import Parts
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes

pytestmark = pytest.mark.looptime

PATH = "/apis/heliotrope.io/v1alpha1/regionprofiles/es"
KEY = key_of(objects.region())
CHANGE = Transition(warning=True, reason="SignalStale", message="old")


def status(value: float, *, freshness: Freshness = Freshness.FRESH, message: str = "") -> RegionProfileStatus:
    finding = Finding(ConditionType.SIGNAL_FRESH, ConditionStatus.TRUE, "SignalFresh", message)
    reading = IntensityReading(
        value=value,
        time=NOW,
        source="file",
        signal_type=SignalType.AVERAGE,
        emission_factor=EmissionFactor.LIFECYCLE,
    )
    return RegionProfileStatus(conditions=settle((), [finding], 1, NOW), freshness=freshness, intensity=reading)


class Bench:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.kube = MemoryKube(self.api)
        self.cluster = Cluster(watched(Parts()))
        self.leadership = Held()
        self.metrics = metrics()
        self.touched: list[set[Key]] = []
        recorder = Recorder(self.kube, self.metrics, instance="i", unix_clock=lambda: objects.NOW_S)  # type: ignore[arg-type]
        self.writer = Writer(
            Writes(self.kube, self.leadership),  # type: ignore[arg-type]
            self.cluster,
            recorder,
            self.metrics,
            refresh_s=60.0,
            enqueue=lambda keys: self.touched.append(set(keys)),
        )
        self.cluster.observe(KEY.kind, self.api.put(PATH, objects.region()))

    @property
    def profile(self) -> RegionProfile:
        found = self.cluster.regions.get(KEY)
        assert found is not None
        return found

    async def write(self, new: RegionProfileStatus, *changes: Transition, **options: Any) -> float | None:
        profile = self.profile
        return await self.writer.status(KEY, profile.metadata, profile.status, new, changes, **options)

    def patches(self) -> int:
        return sum(method == "PATCH" and path.startswith(PATH) for method, path in self.api.requests)

    def events(self) -> list[str]:
        return [each["reason"] for path, each in self.api.objects.items() if "/events/" in path]


async def test_a_status_that_is_so_already_is_not_written() -> None:
    bench = Bench()

    assert await bench.write(status(1)) is None
    assert await bench.write(status(1), CHANGE) is None

    assert bench.patches() == 1
    assert bench.events() == []
    assert bench.profile.status == status(1)


async def test_values_and_wording_are_written_once_a_minute() -> None:
    bench = Bench()
    await bench.write(status(1))

    await asyncio.sleep(20)
    held_back = await bench.write(status(2, message="newer"))
    assert held_back == pytest.approx(40)
    assert bench.patches() == 1

    await asyncio.sleep(40)
    assert await bench.write(status(3)) is None
    assert bench.patches() == 2
    assert bench.api.objects[PATH]["status"]["intensity"]["value"] == "3"


async def test_a_short_life_of_values_shortens_the_pause() -> None:
    bench = Bench()
    await bench.write(status(1))
    await asyncio.sleep(4)

    assert await bench.write(status(2), refresh_s=5) == pytest.approx(1)
    await asyncio.sleep(1)
    assert await bench.write(status(2), refresh_s=5) is None


async def test_a_transition_is_written_at_once_and_told_after_it() -> None:
    bench = Bench()
    await bench.write(status(1))

    await bench.write(status(1, freshness=Freshness.STALE), CHANGE)

    assert bench.patches() == 2
    assert bench.events() == ["SignalStale"]
    assert bench.api.requests[-2:] == [
        ("PATCH", f"{PATH}/status"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events"),
    ]


async def test_a_conflict_writes_and_tells_nothing_and_the_fresh_object_is_known() -> None:
    bench = Bench()
    bench.api.put(PATH, bench.api.objects[PATH] | {"spec": objects.region(pue="1.9")["spec"]})

    with pytest.raises(ConflictError):
        await bench.write(status(1), CHANGE)

    assert "status" not in bench.api.objects[PATH]
    assert bench.events() == []
    assert bench.profile.spec.pue == 1.9
    await bench.write(status(1), CHANGE)
    assert bench.events() == ["SignalStale"]


async def test_an_object_that_is_gone_is_forgotten_without_a_word() -> None:
    bench = Bench()
    del bench.api.objects[PATH]

    assert await bench.write(status(1), CHANGE) is None
    assert bench.cluster.regions.get(KEY) is None
    assert bench.events() == []


async def test_a_replica_that_does_not_lead_writes_nothing() -> None:
    bench = Bench()
    bench.leadership.held = False

    with pytest.raises(NotLeaderError):
        await bench.write(status(1), CHANGE)

    assert bench.api.requests == []


async def test_an_event_that_cannot_be_posted_does_not_fail_the_write() -> None:
    bench = Bench()
    bench.kube.denied["/apis/events.k8s.io"] = ConflictError("no")

    assert await bench.write(status(1), CHANGE) is None

    assert bench.patches() == 1
    assert bench.metrics.registry.get_sample_value("heliotrope_events_total", {"outcome": "failed"}) == 1


async def test_a_write_touches_what_depends_on_it_but_not_itself() -> None:
    bench = Bench()
    policy = objects.policy()
    for document in (policy, objects.pool(), objects.variant(region="es")):
        bench.cluster.observe(key_of(document).kind, document)

    await bench.write(status(1))

    assert bench.touched == [{key_of(policy)}]


async def test_an_annotation_is_set_and_removed_and_others_stay() -> None:
    bench = Bench()
    document = objects.pool(annotations={"theirs": "1"})
    key = key_of(document)
    path = "/apis/inference.networking.k8s.io/v1/namespaces/ns/inferencepools/pool"
    for value, expected in (("ns/p", {"theirs": "1", "a/b": "ns/p"}), (None, {"theirs": "1"})):
        bench.api.objects.setdefault(path, document)
        bench.cluster.observe(key.kind, bench.api.put(path, bench.api.objects[path]))
        pool = bench.cluster.pools.get(key)
        assert pool is not None
        await bench.writer.annotation(key, pool.metadata, "a/b", value)
        assert bench.api.objects[path]["metadata"]["annotations"] == expected
