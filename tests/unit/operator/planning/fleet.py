"""A small fleet as the operator knows it: a pool in two regions, its policy, pods, and what pickers say."""

from typing import Any

from prometheus_client import CollectorRegistry
from tests.unit.operator import objects
from tests.unit.operator.memory import MemoryApi, MemoryKube

from heliotrope.engine import profiles
from heliotrope_operator.capacities import Capacities
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.parts import Context
from heliotrope_operator.planning.controller import AllocationController
from heliotrope_operator.planning.gather import Gatherer
from heliotrope_operator.planning.histories import Histories
from heliotrope_operator.planning.metrics import PlanningMetrics
from heliotrope_operator.planning.page import EngineLine, ModelLine, PickerPage
from heliotrope_operator.planning.pickers import Asked, Pickers
from heliotrope_operator.planning.starts import Starts
from heliotrope_operator.planning.watch import DemandWatch, Observed
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.scales import Scale
from heliotrope_operator.settings import OperatorSettings, Parts
from heliotrope_operator.tables import Tables
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes

POOL = pool_key("ns", "pool")
MODEL = "m"
PROFILE = "llama-3.1-8b-h100"
GREEN, BROWN = "no", "pl"


class Held:
    held = True


class Fleet:
    """Time is virtual: `now_s` is both clocks."""

    def __init__(self, *, replicas: int = 2, green_g: float = 30.0, brown_g: float = 700.0, **autoscaling: Any) -> None:
        self.now_s = objects.NOW_S
        self.queued: list[Key] = []
        self.cluster = Cluster(watched(Parts(scaling=True)))
        self.tables = Tables()
        self.api = MemoryApi()
        self.starved = False
        self._requests = 0.0
        self._engines: dict[str, float] = {}
        self.held = 0.0
        self.policy(autoscaling or {"actuation": "Scale"})
        self.observe(
            objects.pool()
            | {"spec": {"selector": {"matchLabels": {"app": "vllm"}}, "endpointPickerRef": {"name": "p"}}}
        )
        self.grant()
        for name, grams in ((GREEN, green_g), (BROWN, brown_g)):
            self.region(name, grams)
            self.variant(name)
            self.scale(name, replicas)
        kube = MemoryKube(self.api)
        metrics = Metrics(CollectorRegistry())
        recorder = Recorder(kube, metrics, instance="i", unix_clock=self.clock)  # type: ignore[arg-type]
        writes = Writes(kube, Held())  # type: ignore[arg-type]
        writer = Writer(writes, self.cluster, recorder, metrics, refresh_s=60.0, enqueue=self.queued.extend)
        self.context = Context(
            settings=OperatorSettings(parts=Parts(scaling=True)),
            kube=kube,  # type: ignore[arg-type]
            writes=writes,
            writer=writer,
            cluster=self.cluster,
            recorder=recorder,
            metrics=metrics,
            unix_clock=self.clock,
            enqueue=self.queued.extend,
            tables=self.tables,
        )
        self.histories = Histories()
        self.woken = 0
        self.watch = DemandWatch(
            self.cluster,
            self.tables,
            self,  # type: ignore[arg-type]
            poll_s=5.0,
            clock=self.clock,
            unix_clock=self.clock,
            on_round=self._on_round,
            wake=self._wake,
        )
        gatherer = Gatherer(self.cluster, self.tables, self.watch, self.histories, Starts(), unix_clock=self.clock)
        self.gatherer = gatherer
        self.controller = AllocationController(
            self.context,
            gatherer,
            self.watch,
            Capacities({PROFILE: profiles.load(PROFILE)}),
            PlanningMetrics(metrics.registry),
        )

    def clock(self) -> float:
        return self.now_s

    def _wake(self) -> None:
        self.woken += 1

    def _on_round(self, pool: Key, observed: Observed) -> None:
        self.histories.add(pool, {MODEL} - observed.gaps.keys(), observed.models, self.now_s)

    def observe(self, document: dict[str, Any]) -> None:
        document["metadata"]["resourceVersion"] = str(self.api.version + 1)
        self.api.version += 1
        self.cluster.observe(Kind(document["kind"]), document)

    def policy(self, autoscaling: dict[str, Any], **spec: Any) -> None:
        self.observe(objects.policy(autoscaling=autoscaling, **({"enforcement": "Enforce"} | spec)))

    def grant(self, value: str = "true") -> None:
        labels = {"heliotrope.io/allow-scaling": value}
        self.observe({"kind": "Namespace", "metadata": {"name": "ns", "uid": "ns", "labels": labels}})

    def region(self, name: str, grams: float, freshness: str = "Fresh") -> None:
        reading = {
            "value": str(grams),
            "time": "2026-03-01T12:00:00Z",
            "source": "static",
            "signalType": "average",
            "emissionFactor": "lifecycle",
        }
        self.observe(objects.region(name, status={"freshness": freshness, "intensity": reading}))

    def variant(self, name: str, **spec: Any) -> None:
        given = {"maxReplicas": 8, "minReplicas": 0, "engine": {"profile": PROFILE}} | spec
        labels = {"app": "vllm", "variant": name}
        self.observe(objects.variant(name, target=name, region=name, labels=labels, **given))

    def key(self, name: str) -> Key:
        return Key(Kind.WORKLOAD_VARIANT, "ns", name)

    def scale(self, name: str, replicas: int, *, ready: bool = True) -> None:
        """The target wants so many, and so many pods are there."""
        self.tables.scales[self.key(name)] = Scale(replicas, replicas)
        present = {key.name for key, _ in self.cluster.pods_of(self.key(name))}
        wanted = {f"{name}-{n}" for n in range(replicas)}
        for gone in present - wanted:
            self.cluster.forget(Key(Kind.POD, "ns", gone))
            self._engines.pop(gone, None)
        for pod in sorted(wanted):
            self._engines.setdefault(pod, 0.0)
            self.observe(
                {
                    "kind": "Pod",
                    "metadata": {
                        "name": pod,
                        "namespace": "ns",
                        "uid": pod,
                        "labels": {"app": "vllm", "variant": name},
                        "creationTimestamp": "2026-03-01T11:00:00Z",
                    },
                    "spec": {"nodeName": f"node-{name}"},
                    "status": {
                        "phase": "Running",
                        "conditions": [
                            {
                                "type": "Ready",
                                "status": "True" if ready else "False",
                                "lastTransitionTime": "2026-03-01T11:01:00Z",
                            }
                        ],
                    },
                }
            )

    async def ask(self, key: Key, _pool: object) -> Asked:
        """Stands in for `Pickers`."""
        if self.starved:
            return Asked({}, frozenset({"a"}), "a: no answer")
        line = ModelLine(self._requests, self._requests * 500, self._requests * 200, self.held)
        engines = {
            pod: EngineLine(
                asleep=False,
                running=1.0,
                waiting=0.0,
                kv_usage=0.1,
                first_tokens_total=total,
                prompt_tokens_total=total * 500,
                generation_tokens_total=total * 200,
            )
            for pod, total in self._engines.items()
        }
        return Asked({"a": PickerPage("a", self.now_s, 0.0, {MODEL: line}, engines)}, frozenset())

    def keep(self, _pools: object) -> None:
        """Stands in for `Pickers`."""

    async def run(self, seconds: float, requests_per_second: float, *, every_s: float = 5.0) -> None:
        """Traffic for a while, followed by rounds of questions."""
        left = seconds
        while left > 0:
            self.now_s += every_s
            left -= every_s
            self._requests += requests_per_second * every_s
            for pod in self._engines:
                self._engines[pod] += requests_per_second * every_s / len(self._engines)
            await self.watch.round()

    def wanted(self, name: str) -> int | None:
        entry = self.tables.wanted.get(self.key(name))
        return None if entry is None else entry.replicas

    def reason(self, name: str) -> str:
        entry = self.tables.wanted.get(self.key(name))
        assert entry is not None
        return entry.reason


__all__ = ["BROWN", "GREEN", "MODEL", "POOL", "Fleet", "Pickers"]
