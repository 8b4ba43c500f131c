"""A cluster in memory with two engines on a GPU node, and the part of the operator that chooses their clocks."""

from datetime import UTC, datetime
from typing import Any

from tests.unit.core.power.samples import DECODE_POINTS, PREFILL_POINTS
from tests.unit.operator import objects
from tests.unit.operator.memory import Held, MemoryApi, MemoryKube, metrics

from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1.common import POWER_LEASE
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.errors import ConflictError, NotFoundError
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.nodepowers import MANAGED_BY, MANAGER, POWER
from heliotrope_operator.parts import Context
from heliotrope_operator.power.asking import DemandController
from heliotrope_operator.power.controller import PowerController
from heliotrope_operator.power.gather import Gatherer
from heliotrope_operator.power.lease import PowerLease
from heliotrope_operator.power.metrics import PowerMetrics
from heliotrope_operator.power.sources import DemandSources
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import LEASES, RESOURCES, Key, Kind
from heliotrope_operator.settings import OperatorSettings, Parts
from heliotrope_operator.tables import Tables, VariantLoad
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes

Document = dict[str, Any]
START = datetime(2026, 12, 1, 16, tzinfo=UTC).timestamp()
SYSTEM = "heliotrope-system"


class ApplyingKube(MemoryKube):
    """With server-side apply and delete, as far as NodePowers and Leases need them."""

    async def apply(self, path: str, document: Document, *, manager: str, force: bool = False) -> Document:
        await self._enter("APPLY", path)
        before = self.api.objects.get(path, {})
        foreign = before and before["metadata"].get("labels", {}).get(MANAGED_BY) != MANAGER
        if foreign and not force and before.get("spec") != document["spec"]:
            raise ConflictError(path)
        status = {"status": before["status"]} if "status" in before else {}
        uid = before.get("metadata", {}).get("uid", f"uid-{self.api.version}")
        return self.api.put(path, document | status | {"metadata": document["metadata"] | {"uid": uid}})

    async def delete(self, path: str, *, uid: str | None = None) -> None:
        await self._enter("DELETE", path)
        if path not in self.api.objects:
            raise NotFoundError(path)
        del self.api.objects[path]


class World:
    """Objects, time and one pass at a time."""

    def __init__(self, *, granted: bool = True) -> None:
        self.now = START
        self.api = MemoryApi()
        self.kube = ApplyingKube(self.api)
        self.leader = Held()
        self.cluster = Cluster(watched(Parts(power=True)))
        self.tables = Tables()
        self.asked: list[Key] = []
        self.beats = 0
        label = {"heliotrope.io/allow-power": "true"} if granted else {}
        self.put({"kind": "Namespace", "metadata": objects.metadata("ns", None) | {"labels": label}})
        self.put({"kind": "Node", "metadata": objects.metadata("n1", None)})
        self.put(objects.pool())
        for role, points in (("prefill", PREFILL_POINTS), ("decode", DECODE_POINTS)):
            self.put(self.variant(role, points))
            self.put(self.pod(f"{role}-0", role))
        self.start()

    def start(self) -> None:
        """Begin as a new process does: with what the cluster holds, and nothing else."""
        counted = metrics()
        self.metrics = PowerMetrics(counted.registry)
        writes = Writes(self.kube, self.leader)  # type: ignore[arg-type]
        recorder = Recorder(self.kube, counted, instance="test", unix_clock=self.clock)  # type: ignore[arg-type]
        writer = Writer(writes, self.cluster, recorder, counted, refresh_s=0.0, enqueue=lambda _: None)
        context = Context(
            settings=OperatorSettings(namespace=SYSTEM, identity="test"),
            kube=self.kube,  # type: ignore[arg-type]
            writes=writes,
            writer=writer,
            cluster=self.cluster,
            recorder=recorder,
            metrics=counted,
            unix_clock=self.clock,
            enqueue=self.asked.extend,
            tables=self.tables,
        )
        self.sources = DemandSources(self.kube, namespace=SYSTEM, unix_clock=self.clock)  # type: ignore[arg-type]
        gatherer = Gatherer(self.cluster, self.tables, {}, unix_clock=self.clock)
        lease = PowerLease(writes, namespace=SYSTEM, identity="test", unix_clock=self.clock)
        self.controller = PowerController(context, gatherer, self.sources, lease, self.metrics)
        self.demand = DemandController(context, self.sources, self.metrics)

    def clock(self) -> float:
        return self.now

    async def step(self, seconds: float = 0.0) -> float | None:
        """One pass, after a while."""
        self.now += seconds
        return await self.controller.reconcile(POWER)

    def put(self, document: Document) -> None:
        """As a watch would tell of it."""
        kind = Kind(document["kind"])
        metadata = document["metadata"]
        path = RESOURCES[kind].path(metadata.get("namespace", ""), metadata["name"])
        self.cluster.observe(kind, self.api.put(path, document))

    def drop(self, kind: Kind, name: str, namespace: str = "ns") -> None:
        self.cluster.forget(Key(kind, namespace, name))
        self.api.objects.pop(RESOURCES[kind].path(namespace, name), None)

    def policy(self, name: str = "green", **spec: Any) -> None:
        self.put(objects.policy(name, **{"enforcement": "Enforce"} | spec))

    def variant(self, role: str, points: tuple[tuple[int, float, int], ...], **spec: Any) -> Document:
        profile = [
            {
                "phase": role,
                "smClockMhz": mhz,
                "tokensPerSecond": str(rate),
                "joulesPerToken": f"{watts / rate:.6f}",
                "watts": watts,
            }
            for mhz, rate, watts in points
        ]
        return objects.variant(
            role,
            target=None,
            labels={"app": "vllm", "role": role},
            **{"role": role, "energyProfile": profile, "clockRange": {"minMhz": 900, "maxMhz": 1980}} | spec,
        )

    def pod(self, name: str, role: str, *, node: str = "n1", ready: bool = True, version: int = 1) -> Document:
        since = datetime.fromtimestamp(START - 3_600, UTC).isoformat().replace("+00:00", "Z")
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since}
        labels = {"app": "vllm", "role": role}
        return {
            "kind": "Pod",
            "metadata": objects.metadata(name, version=version) | {"labels": labels},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [condition]},
        }

    def load(self, role: str, requests_per_second: float, **changes: Any) -> None:
        values = {"prompt_tokens": 2_000.0, "output_tokens": 250.0, "ttft_seconds": 0.1, "tpot_seconds": 0.012}
        self.tables.loads[Key(Kind.WORKLOAD_VARIANT, "ns", role)] = VariantLoad(
            self.now, requests_per_second, **{**values, **changes}
        )

    def agent_answers(self, node: str = "n1") -> None:
        path = RESOURCES[Kind.NODE_POWER].path(name=node)
        document = self.api.objects[path]
        self.put({**document, "status": {"managedGpus": 1}})

    def agent_says(self, status: str, reason: str, node: str = "n1") -> None:
        """The condition `Applied`."""
        path = RESOURCES[Kind.NODE_POWER].path(name=node)
        condition = {"type": "Applied", "status": status, "reason": reason, "message": "", "observedGeneration": 1}
        applied = condition | {"lastTransitionTime": "2026-12-01T16:00:00Z"}
        self.put({**self.api.objects[path], "status": {"conditions": [applied]}})

    def agent_beats(self, node: str = "n1", *, seen: bool = True, reason: str = "Applied") -> None:
        """A new sign of life, by a clock of the node's own; `seen`: whether the watch tells of it."""
        self.beats += 1
        path = RESOURCES[Kind.NODE_POWER].path(name=node)
        status = "True" if reason == "Applied" else "False"
        condition = {"type": "Applied", "status": status, "reason": reason, "message": "", "observedGeneration": 1}
        applied = condition | {"lastTransitionTime": "2026-12-01T16:00:00Z"}
        beat = datetime.fromtimestamp(60.0 * self.beats, UTC).isoformat().replace("+00:00", "Z")
        document = {**self.api.objects[path], "status": {"conditions": [applied], "heartbeatTime": beat}}
        if seen:
            self.put(document)
        else:
            self.api.put(path, document)

    def node_power(self, node: str = "n1") -> Document | None:
        return self.api.objects.get(RESOURCES[Kind.NODE_POWER].path(name=node))

    def clocks(self, node: str = "n1") -> dict[str, int | None]:
        found = self.node_power(node)
        intents = [] if found is None else found["spec"].get("intents", [])
        return {each["variant"]: each.get("smClockMhz") for each in intents}

    def lease(self) -> Document:
        found: Document = self.api.objects.get(LEASES.path(SYSTEM, POWER_LEASE), {}).get("spec", {})
        return found

    def status(self, name: str = "green") -> Document:
        policy = self.cluster.policies.get(Key(Kind.CARBON_POLICY, "ns", name))
        assert isinstance(policy, CarbonPolicy)
        return {} if policy.status is None else policy.status.model_dump(by_alias=True, exclude_none=True, mode="json")

    def said(self, condition: str, name: str = "green") -> tuple[str, str] | None:
        found = {each["type"]: (each["status"], each["reason"]) for each in self.status(name).get("conditions", ())}
        return found.get(condition)

    def chosen(self, role: str) -> Document | None:
        variant = self.cluster.variants.get(Key(Kind.WORKLOAD_VARIANT, "ns", role))
        assert isinstance(variant, WorkloadVariant)
        chosen = () if variant.status is None else variant.status.chosen_power
        return chosen[0].model_dump(by_alias=True, exclude_none=True, mode="json") if chosen else None

    def told(self) -> list[str]:
        return [each["reason"] for each in self.api.objects.values() if each.get("kind") == "Event"]
