"""Events: one for one transition, a series for repeats, and a limit for each object."""

import asyncio
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import MemoryApi, MemoryKube, metrics
from tests.unit.operator.objects import key_of

from heliotrope.api.v1alpha1.common import ObjectMeta
from heliotrope_operator.conditions import Transition
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.recorder import BURST, REFILL_S, REMEMBERED, REPEAT_WITHIN_S, Recorder

pytestmark = pytest.mark.looptime


class Bench:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.kube = MemoryKube(self.api)
        self.metrics: Metrics = metrics()
        self.recorder = Recorder(self.kube, self.metrics, instance="op-1", unix_clock=lambda: 1_772_366_400.25)  # type: ignore[arg-type]

    async def record(self, reason: str = "SignalStale", document: dict[str, Any] | None = None) -> None:
        document = document or objects.policy()
        change = Transition(warning=True, reason=reason, message=f"{reason} happened")
        await self.recorder.record(key_of(document), ObjectMeta.model_validate(document["metadata"]), change)

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.api.objects.values())

    def count(self, outcome: str) -> float:
        return self.metrics.registry.get_sample_value("heliotrope_events_total", {"outcome": outcome}) or 0.0


async def test_an_event_says_what_happened_to_which_object() -> None:
    bench = Bench()

    await bench.record()

    (event,) = bench.events
    del event["metadata"]["name"]
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ns", "resourceVersion": "1"},
        "eventTime": "2026-03-01T12:00:00.250000Z",
        "type": "Warning",
        "reason": "SignalStale",
        "action": "Reconcile",
        "note": "SignalStale happened",
        "reportingController": "heliotrope.io/operator",
        "reportingInstance": "op-1",
        "regarding": {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "CarbonPolicy",
            "namespace": "ns",
            "name": "green",
            "uid": "uid-green",
            "resourceVersion": "1",
        },
    }


async def test_events_of_cluster_scoped_objects_are_in_the_default_namespace() -> None:
    bench = Bench()

    await bench.record(document=objects.region())

    (path,) = bench.api.objects
    assert path.startswith("/apis/events.k8s.io/v1/namespaces/default/events/es.")
    assert "namespace" not in bench.events[0]["regarding"]


async def test_a_repeat_counts_up_the_first_event() -> None:
    bench = Bench()
    for _ in range(3):
        await bench.record()
        await asyncio.sleep(REPEAT_WITHIN_S)

    assert [each["series"]["count"] for each in bench.events] == [3]
    await asyncio.sleep(1)
    await bench.record()
    assert [each.get("series", {}).get("count") for each in bench.events] == [3, None]
    assert (bench.count("created"), bench.count("repeated")) == (2, 2)


async def test_a_repeat_of_an_event_that_has_expired_is_a_new_one() -> None:
    bench = Bench()
    await bench.record()
    bench.api.objects.clear()

    await bench.record()

    assert len(bench.events) == 1
    assert "series" not in bench.events[0]


async def test_an_object_that_flaps_is_limited_and_others_are_not() -> None:
    bench = Bench()
    for number in range(BURST + 5):
        await bench.record(f"Reason{number}")
    await bench.record(document=objects.policy("other"))

    assert (bench.count("created"), bench.count("limited")) == (BURST + 1, 5)
    await asyncio.sleep(REFILL_S)
    await bench.record("Later")
    await bench.record("TooSoon")
    assert (bench.count("created"), bench.count("limited")) == (BURST + 2, 6)


async def test_what_is_remembered_is_bounded() -> None:
    bench = Bench()
    for number in range(REMEMBERED + 10):
        await bench.record(document=objects.policy(f"p{number}"))

    assert len(bench.recorder._posted._entries) == REMEMBERED
    assert len(bench.recorder._buckets._entries) == REMEMBERED
