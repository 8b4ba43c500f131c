"""What the tests ask of the API server as administrators."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.contract.operator.process import eventually
from tests.support.chart import Chart, of_kind
from tests.support.controlplane import Cluster

Document = dict[str, Any]
RBAC = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
ACCOUNT = "heliotrope-operator"
NAMESPACE = "heliotrope-system"
"""Where the operator runs."""


def operator_account(cluster: Cluster, namespace: str, values: Mapping[str, Any] | None = None) -> Path:
    """Create the operator's service account with the rights of the chart; returns a kubeconfig that acts as it."""
    cluster.namespace(namespace)
    chart = Chart(cluster.programs / "helm")
    objects = of_kind(chart.objects(values, namespace=namespace), *RBAC)
    assert {each["kind"] for each in objects} == set(RBAC)
    cluster.apply(*aggregated(objects))
    return cluster.service_account_kubeconfig(namespace, ACCOUNT)


def aggregated(objects: list[Document]) -> list[Document]:
    """What the controller manager, which does not run here, makes of aggregated ClusterRoles."""
    filled = []
    for each in objects:
        rules: list[Document] = []
        for selector in each.get("aggregationRule", {}).get("clusterRoleSelectors", ()):
            for other in objects:
                if selector["matchLabels"].items() <= other["metadata"].get("labels", {}).items():
                    rules += other["rules"]
        filled.append(each | {"rules": rules, "aggregationRule": None} if rules else each)
    return [{name: value for name, value in each.items() if value is not None} for each in filled]


def conditions(document: Document) -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    return {each["type"]: (each["status"], each["reason"]) for each in document.get("status", {}).get("conditions", ())}


PATHS = {
    "RegionProfile": ("/apis/heliotrope.io/v1alpha1", "regionprofiles", False),
    "CarbonPolicy": ("/apis/heliotrope.io/v1alpha1", "carbonpolicies", True),
    "WorkloadVariant": ("/apis/heliotrope.io/v1alpha1", "workloadvariants", True),
    "InferencePool": ("/apis/inference.networking.k8s.io/v1", "inferencepools", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "ReplicaSet": ("/apis/apps/v1", "replicasets", True),
    "HorizontalPodAutoscaler": ("/apis/autoscaling/v2", "horizontalpodautoscalers", True),
    "ScaledObject": ("/apis/keda.sh/v1alpha1", "scaledobjects", True),
    "LeaderWorkerSet": ("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets", True),
    "Namespace": ("/api/v1", "namespaces", False),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Secret": ("/api/v1", "secrets", True),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "Workload": ("/apis/kueue.x-k8s.io/v1beta2", "workloads", True),
    "AdmissionCheck": ("/apis/kueue.x-k8s.io/v1beta2", "admissionchecks", False),
}
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


class Api:
    """A namespace, and the cluster-scoped objects of a test."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def apply(self, *documents: Document) -> None:
        """Create or change objects, server-side."""
        for document in documents:
            metadata = document["metadata"]
            path = self._path(document["kind"], metadata["name"], metadata.get("namespace"))
            self._call("PATCH", f"{path}?fieldManager=tests&force=true", document, APPLY)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Document:
        """An object; empty if it does not exist."""
        return self._call("GET", self._path(kind, name, namespace))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object at once."""
        self._call("DELETE", self._path(kind, name), {"propagationPolicy": "Background"})

    def merge(self, kind: str, name: str, patch: Document, subresource: str = "") -> None:
        """Change some fields."""
        path = self._path(kind, name) + (f"/{subresource}" if subresource else "")
        self._call("PATCH", path, patch, MERGE)

    def events(self, name: str) -> list[Document]:
        """Events about an object of the namespace or of none, oldest first."""
        found = self._call("GET", "/apis/events.k8s.io/v1/events")["items"]
        scopes = (self.namespace, None)
        about = [
            each for each in found if each["regarding"]["name"] == name and each["regarding"].get("namespace") in scopes
        ]
        return sorted(about, key=lambda each: each["eventTime"] or "")

    def told(self, name: str) -> list[tuple[str, str]]:
        """Type and reason of the events about an object."""
        return [(each["type"], each["reason"]) for each in self.events(name)]

    def requests(self, **labels: str) -> int:
        """How many requests with these labels the API server has answered."""
        total = 0
        for line in self._text("/metrics").splitlines():
            if line.startswith("apiserver_request_total{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += int(float(line.rsplit(" ", 1)[1]))
        return total

    def refused(self) -> int:
        """How many requests the API server has refused."""
        return self.requests(code="403")

    def _path(self, kind: str, name: str, namespace: str | None = None) -> str:
        base, plural, namespaced = PATHS[kind]
        return (
            f"{base}/namespaces/{namespace or self.namespace}/{plural}/{name}"
            if namespaced
            else f"{base}/{plural}/{name}"
        )

    def _call(
        self, method: str, path: str, body: Document | None = None, headers: Mapping[str, str] | None = None
    ) -> Document:
        answer = httpx.request(method, self.cluster.proxy() + path, json=body, headers=headers, timeout=30.0)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return {}
        assert answer.is_success, f"{method} {path}: {answer.text}"
        found: Document = answer.json()
        return found

    def _text(self, path: str) -> str:
        return httpx.get(self.cluster.proxy() + path, timeout=30.0).text

    # Documents

    def region(self, name: str, **spec: Any) -> Document:
        """A RegionProfile with a static source unless the spec says otherwise."""
        source = {"static": {"intensityGramsPerKwh": "140"}}
        return {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "RegionProfile",
            "metadata": {"name": name},
            "spec": {"zone": "ES", "source": source} | spec,
        }

    def pool(self, name: str = "pool") -> Document:
        """An InferencePool."""
        return {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "selector": {"matchLabels": {"app": "vllm"}},
                "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
            },
        }

    def policy(self, name: str, *pools: str, **spec: Any) -> Document:
        """A CarbonPolicy."""
        return {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "CarbonPolicy",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "targetRefs": [{"name": pool} for pool in pools or ("pool",)],
                "slo": {"ttft": "1s", "tpot": "50ms"},
                "enforcement": "Enforce",
            }
            | spec,
        }

    def variant(self, name: str, *, target: str | None = "engine", kind: str = "Deployment", **spec: Any) -> Document:
        """A WorkloadVariant."""
        ref = {} if target is None else {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}}
        return {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "WorkloadVariant",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "model": "llama",
                "endpointSelector": {"matchLabels": {"app": "vllm"}},
                "accelerator": {"type": "H100"},
            }
            | ref
            | spec,
        }

    def workload(self, name: str = "engine", kind: str = "Deployment") -> Document:
        """A Deployment, StatefulSet or ReplicaSet."""
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "engine", "image": "engine"}]},
        }
        spec: Document = {"selector": {"matchLabels": {"app": name}}, "template": template}
        if kind == "StatefulSet":
            spec["serviceName"] = name
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }

    def config_map(self, name: str, text: str, namespace: str) -> Document:
        """A ConfigMap with a carbon series."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"carbon.csv": text},
        }

    def secret(self, name: str, namespace: str, **values: str) -> Document:
        """A Secret."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": values,
        }

    def wait_until_older(self, kind: str, name: str) -> None:
        """Return when what is created next is younger: objects of one second tie."""
        created = self.get(kind, name)["metadata"]["creationTimestamp"]
        numbers = itertools.count()

        def later() -> bool:
            clock = f"clock-{name}-{next(numbers)}"
            self.apply(self.config_map(clock, "", self.namespace))
            now: str = self.get("ConfigMap", clock)["metadata"]["creationTimestamp"]
            return now > created

        eventually(later)

    def set_replicas(self, kind: str, name: str, replicas: int) -> None:
        """What a controller would report; none runs here."""
        self.merge(kind, name, {"status": {"replicas": replicas}}, "status")
