"""Resync: what watches missed is found, what is gone is dropped, and kinds that do not exist are put up with."""

import asyncio
import random

import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import UNAVAILABLE, MemoryApi, MemoryKube, metrics
from tests.unit.operator.objects import cluster_of, key_of

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.errors import NotFoundError, UnavailableError
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.resources import RESOURCES, Key, Kind
from heliotrope_operator.resync import Resync
from heliotrope_operator.settings import Parts

pytestmark = pytest.mark.looptime


class Bench:
    def __init__(self, cluster: Cluster | None = None, namespaces: tuple[str, ...] = ()) -> None:
        self.api = MemoryApi()
        self.kube = MemoryKube(self.api)
        self.cluster = cluster or Cluster(watched(Parts()))
        self.metrics = metrics()
        self.queued: list[Key] = []
        self.resync = Resync(
            self.kube,  # type: ignore[arg-type]
            self.cluster,
            self.metrics,
            namespaces=namespaces,
            interval_s=600.0,
            enqueue=self.queued.extend,
            rng=random.Random(1),
        )

    def serve(self, *documents: objects.Document) -> None:
        for document in documents:
            key = key_of(document)
            self.api.put(RESOURCES[key.kind].path(key.namespace, key.name), document)

    def runs(self, outcome: str = "success") -> float:
        return self.metrics.registry.get_sample_value("heliotrope_reconcile_resyncs_total", {"outcome": outcome}) or 0.0


async def test_everything_there_is_known_and_reconciled() -> None:
    bench = Bench()
    bench.serve(objects.region(), objects.policy(), objects.variant(), objects.pool())

    await bench.resync.once(everything=True)

    assert set(bench.cluster.keys()) == {
        key_of(each) for each in (objects.region(), objects.policy(), objects.variant(), objects.pool())
    }
    assert set(bench.queued) == set(bench.cluster.keys())


async def test_what_vanished_unseen_is_dropped_and_its_heirs_are_reconciled() -> None:
    ghost, heir = objects.policy("a-ghost"), objects.policy("heir", created="2026-02-01")
    bench = Bench(cluster_of(ghost, heir, objects.pool()))
    bench.serve(heir, objects.pool())
    bench.api.version = 50

    await bench.resync.once(everything=True)

    assert bench.cluster.policies.get(key_of(ghost)) is None
    winner = bench.cluster.winner(key_of(objects.pool()))
    assert winner is not None
    assert winner.metadata.name == "heir"
    assert {key_of(ghost), key_of(heir), key_of(objects.pool())} <= set(bench.queued)


async def test_what_came_after_the_list_was_made_stays() -> None:
    bench = Bench(cluster_of(objects.policy("new", version=99)))
    bench.api.version = 50

    await bench.resync.once(everything=True)

    assert bench.cluster.keys() == [key_of(objects.policy("new"))]


async def test_a_kind_that_is_not_served_is_empty_and_said_to_be_missing() -> None:
    bench = Bench(cluster_of(objects.pool()))
    pools = RESOURCES[Kind.INFERENCE_POOL].path()
    bench.kube.denied[pools] = NotFoundError(pools)

    await bench.resync.once(everything=True)

    assert bench.cluster.served[Kind.INFERENCE_POOL] is False
    assert bench.cluster.keys() == []


async def test_only_the_namespaces_asked_for_are_listed_and_others_are_left_alone() -> None:
    bench = Bench(cluster_of(objects.policy(namespace="elsewhere")), namespaces=("ns", "two"))
    bench.serve(objects.policy(), objects.region())
    bench.api.version = 50

    await bench.resync.once(everything=True)

    paths = [path for _, path in bench.api.requests]
    assert "/apis/heliotrope.io/v1alpha1/namespaces/two/carbonpolicies" in paths
    assert "/apis/heliotrope.io/v1alpha1/carbonpolicies" not in paths
    assert len(bench.cluster.keys(Kind.CARBON_POLICY)) == 2


async def test_a_comparison_that_was_asked_for_reconciles_only_what_changed() -> None:
    bench = Bench()
    bench.serve(objects.region("old"), objects.policy())
    await bench.resync.once(everything=True)
    bench.queued.clear()
    bench.serve(objects.region("new"))

    await bench.resync.once(everything=False)

    assert set(bench.queued) == {key_of(objects.region("new"))}


async def test_it_runs_at_start_at_each_interval_and_once_for_many_requests() -> None:
    bench = Bench()
    bench.serve(objects.region())
    ready: list[float] = []
    clock = asyncio.get_running_loop().time
    task = asyncio.create_task(bench.resync.run(lambda: ready.append(clock())))
    await asyncio.sleep(10)
    assert (bench.runs(), len(bench.queued)) == (1, 2)  # new, and all
    for _ in range(50):
        bench.resync.request()
        await asyncio.sleep(0.05)
    await asyncio.sleep(10)
    assert (bench.runs(), len(bench.queued)) == (2, 2)
    await asyncio.sleep(6_000)
    assert 11 <= bench.runs() <= 13
    assert len(bench.queued) == bench.runs()
    assert ready[0] == 0
    task.cancel()


async def test_a_queue_that_was_full_has_everything_reconciled() -> None:
    bench = Bench()
    bench.serve(objects.region())
    task = asyncio.create_task(bench.resync.run(lambda: None))
    await asyncio.sleep(10)
    bench.queued.clear()
    bench.resync.request(everything=True)
    bench.resync.request()
    await asyncio.sleep(10)

    assert bench.queued == [key_of(objects.region())]
    task.cancel()


async def test_requests_without_end_make_no_storm_and_are_not_put_off_for_ever() -> None:
    bench = Bench()
    task = asyncio.create_task(bench.resync.run(lambda: None))
    for _ in range(300):
        bench.resync.request()
        await asyncio.sleep(0.2)

    assert 4 <= bench.runs() <= 8
    task.cancel()


@pytest.mark.slow
async def test_without_an_api_server_it_tries_again_and_again_and_is_not_ready() -> None:
    bench = Bench()
    bench.serve(objects.region())
    bench.kube.failure = UNAVAILABLE
    ready: list[None] = []
    task = asyncio.create_task(bench.resync.run(lambda: ready.append(None)))
    await asyncio.sleep(300)

    assert ready == []
    assert 10 <= bench.runs("error") <= 25
    bench.kube.failure = None
    await asyncio.sleep(31)
    assert ready == [None]
    assert bench.queued == [key_of(objects.region())] * 2
    task.cancel()


async def test_a_failure_midway_drops_nothing() -> None:
    bench = Bench(cluster_of(objects.policy(), objects.pool()))
    bench.api.version = 50
    bench.kube.denied[RESOURCES[Kind.CARBON_POLICY].path()] = UNAVAILABLE

    with pytest.raises(UnavailableError):
        await bench.resync.once(everything=True)

    assert bench.cluster.version(key_of(objects.policy()))
