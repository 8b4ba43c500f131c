"""The reconcilers around the pure functions: what they ask before they judge, and what they do without an object."""

from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import UNAVAILABLE, Held, MemoryApi, MemoryKube, metrics
from tests.unit.operator.objects import NOW_S, key_of

from heliotrope.api.v1alpha1.common import AFFECTED_MARKER
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.controllers.policies import PolicyController
from heliotrope_operator.controllers.pools import PoolController
from heliotrope_operator.controllers.regions import RegionController
from heliotrope_operator.controllers.variants import VariantController
from heliotrope_operator.errors import NotFoundError, UnavailableError
from heliotrope_operator.forecasts import Forecasts
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.lookup import Lookup
from heliotrope_operator.reconciler import Controller
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import RESOURCES, Key, Kind
from heliotrope_operator.scales import Scales
from heliotrope_operator.settings import Parts
from heliotrope_operator.signals import Signals
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes

Document = dict[str, Any]


class Bench:
    """Every controller over one API server in memory; `seen` is what the watches have delivered."""

    def __init__(self, *served: Document, seen: tuple[Document, ...] = ()) -> None:
        self.api = MemoryApi()
        self.kube: Any = MemoryKube(self.api)
        self.cluster = Cluster(watched(Parts()))
        self.queued: list[Key] = []
        self.now_s = NOW_S
        counted = metrics()
        for document in served:
            self.api.put(self.path(document), document)
        for document in seen:
            self.see(document)
        enqueue = self.queued.extend
        recorder = Recorder(self.kube, counted, instance="i", unix_clock=lambda: self.now_s)
        writes = Writes(self.kube, Held())
        writer = Writer(writes, self.cluster, recorder, counted, refresh_s=60.0, enqueue=enqueue)
        lookup = Lookup(self.kube, self.cluster, enqueue=enqueue)
        signals = Signals(self.kube, counted, namespace="op", folder=None, unix_clock=lambda: self.now_s)
        self.controllers: dict[Kind, Controller] = {
            Kind.REGION_PROFILE: RegionController(
                self.cluster,
                signals,
                Forecasts(counted, signals.history, unix_clock=lambda: self.now_s),
                writer,
                unix_clock=lambda: self.now_s,
            ),
            Kind.CARBON_POLICY: PolicyController(self.cluster, lookup, writer, unix_clock=lambda: self.now_s),
            Kind.WORKLOAD_VARIANT: VariantController(
                self.cluster, lookup, Scales(self.kube), writer, poll_s=60.0, unix_clock=lambda: self.now_s
            ),
            Kind.INFERENCE_POOL: PoolController(self.cluster, writer),
        }

    @staticmethod
    def path(document: Document) -> str:
        key = key_of(document)
        return RESOURCES[key.kind].path(key.namespace, key.name)

    def see(self, document: Document) -> None:
        """A watch delivers what the server has, or what the test made of it."""
        self.cluster.observe(key_of(document).kind, self.api.put(self.path(document), document))

    async def reconcile(self, document: Document) -> float | None:
        key = key_of(document)
        return await self.controllers[key.kind].reconcile(key)

    def conditions(self, document: Document) -> dict[str, tuple[str, str]]:
        status = self.api.objects[self.path(document)].get("status", {})
        return {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())}

    def told(self) -> list[str]:
        return [each["reason"] for path, each in self.api.objects.items() if "/events/" in path]


async def test_a_pool_that_the_watch_has_not_shown_yet_is_not_called_missing() -> None:
    policy = objects.policy()
    bench = Bench(objects.pool(), seen=(policy,))

    await bench.reconcile(policy)

    assert bench.conditions(policy)["Accepted"] == ("True", "Accepted")
    assert bench.told() == []
    assert pool_key("ns", "pool") in bench.queued


async def test_a_region_that_the_watch_has_not_shown_yet_is_not_called_missing() -> None:
    policy, variant = objects.policy(), objects.variant(target=None)
    fresh = {"freshness": "Fresh", "conditions": []}
    bench = Bench(objects.region("es", status=fresh), seen=(objects.pool(), policy, variant))

    await bench.reconcile(policy)
    await bench.reconcile(variant)

    assert bench.conditions(policy)["SignalsFresh"] == ("True", "SignalsFresh")
    assert bench.conditions(variant)["RegionResolved"] == ("True", "RegionResolved")
    assert bench.told() == []


async def test_what_is_missing_is_called_so_after_the_server_was_asked() -> None:
    policy, variant = objects.policy(), objects.variant(target=None)
    bench = Bench(seen=(policy, variant))

    await bench.reconcile(policy)
    await bench.reconcile(variant)

    assert bench.conditions(policy)["Accepted"] == ("False", "TargetNotFound")
    assert bench.conditions(variant)["RegionResolved"] == ("False", "RegionNotFound")
    assert sorted(bench.told()) == ["RegionNotFound", "TargetNotFound"]


async def test_nothing_is_judged_while_the_server_is_silent() -> None:
    policy = objects.policy()
    bench = Bench(seen=(policy,))
    bench.kube.denied[RESOURCES[Kind.INFERENCE_POOL].path()] = UNAVAILABLE
    bench.kube.denied["/apis/inference.networking.k8s.io"] = UNAVAILABLE

    with pytest.raises(UnavailableError):
        await bench.reconcile(policy)

    assert bench.conditions(policy) == {}


@pytest.mark.parametrize("document", [objects.region(), objects.policy(), objects.variant(), objects.pool()])
async def test_an_object_that_is_gone_is_nothing_to_do(document: Document) -> None:
    bench = Bench()

    assert await bench.reconcile(document) is None
    assert bench.api.requests == []


@pytest.mark.parametrize(
    ("document", "kind", "field"),
    [
        (objects.region(pue="lots"), "Accepted", "spec.pue"),
        (objects.policy(slo={"ttft": "soon", "tpot": "1s"}), "Accepted", "spec.slo.ttft"),
        (objects.variant(minReplicas=-1), "TargetResolved", "spec.minReplicas"),
    ],
)
async def test_an_object_that_cannot_be_read_is_told_once(document: Document, kind: str, field: str) -> None:
    bench = Bench(seen=(document,))
    for _ in range(3):
        await bench.reconcile(document)
        bench.now_s += 3_600
        stored = bench.api.objects[bench.path(document)]
        bench.see(stored)

    assert bench.conditions(document)[kind] == ("False", "Invalid")
    (condition,) = stored["status"]["conditions"]
    assert field in condition["message"]
    assert bench.told() == ["Invalid"]
    assert sum(method == "PATCH" for method, _ in bench.api.requests) == 1


async def test_a_region_is_looked_at_again_when_its_value_turns_stale() -> None:
    profile = objects.region(
        source={"configMap": {"name": "c", "key": "k", "valueColumn": "g"}}, pollInterval="2h", staleAfter="2h"
    )
    bench = Bench(seen=(profile,))
    table = "datetime_utc,g\n2026-03-01T11:00:00Z,100\n"
    bench.api.put("/api/v1/namespaces/op/configmaps/c", {"data": {"k": table}})
    bench.now_s = NOW_S - 60

    again = await bench.reconcile(profile)

    assert bench.conditions(profile)["SignalFresh"] == ("True", "SignalFresh")
    assert again == pytest.approx(3_660.01)


async def test_a_target_is_polled_only_where_no_watch_tells() -> None:
    bench = Bench(seen=(objects.region(),))
    bench.api.objects["/apis/apps/v1"] = {
        "resources": [
            {"name": name, "kind": kind, "namespaced": True}
            for kind, plural in (("Deployment", "deployments"), ("ReplicaSet", "replicasets"))
            for name in (plural, f"{plural}/scale")
        ]
    }
    for plural in ("deployments", "replicasets"):
        bench.api.objects[f"/apis/apps/v1/namespaces/ns/{plural}/engine/scale"] = {"status": {"replicas": 1}}
    watched, polled, missing = objects.variant("watched"), objects.variant("polled"), objects.variant("missing")
    polled["spec"]["scaleTargetRef"]["kind"] = "ReplicaSet"
    missing["spec"]["scaleTargetRef"]["name"] = "gone"
    for each in (watched, polled, missing):
        bench.see(each)

    assert await bench.reconcile(watched) is None
    assert await bench.reconcile(polled) == 60.0
    assert await bench.reconcile(missing) is None


async def test_the_marker_follows_the_winner_and_is_written_once() -> None:
    pool, policy = objects.pool(annotations={"theirs": "1"}), objects.policy(enforcement="Enforce")
    bench = Bench(seen=(pool, policy))

    await bench.reconcile(pool)
    await bench.reconcile(pool)
    assert bench.api.objects[bench.path(pool)]["metadata"]["annotations"] == {
        "theirs": "1",
        AFFECTED_MARKER: "ns/green (Enforce)",
    }
    bench.cluster.forget(key_of(policy))
    await bench.reconcile(pool)
    assert bench.api.objects[bench.path(pool)]["metadata"]["annotations"] == {"theirs": "1"}
    assert sum(method == "PATCH" for method, _ in bench.api.requests) == 2


async def test_a_lookup_asks_only_for_what_is_not_known() -> None:
    bench = Bench(seen=(objects.region("es"),))
    lookup = Lookup(bench.kube, bench.cluster, enqueue=bench.queued.extend)
    bench.kube.denied[RESOURCES[Kind.REGION_PROFILE].path(name="fr")] = NotFoundError("fr")

    await lookup.confirm([region_key("es"), region_key("fr")])

    assert bench.api.requests == [("GET", "/apis/heliotrope.io/v1alpha1/regionprofiles/fr")]
