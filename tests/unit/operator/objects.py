"""Documents of the operator's kinds, as short as a test needs them."""

from datetime import UTC, datetime
from typing import Any

from heliotrope.api import documents
from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.settings import Parts

Document = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW_S = NOW.timestamp()


def metadata(name: str, namespace: str | None = "ns", *, created: str = "2026-01-01", version: int = 1) -> Document:
    found = {
        "name": name,
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": str(version),
        "creationTimestamp": f"{created}T00:00:00Z",
    }
    return found if namespace is None else found | {"namespace": namespace}


def region(name: str = "es", *, version: int = 1, status: Document | None = None, **spec: Any) -> Document:
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "RegionProfile",
        "metadata": metadata(name, None, version=version),
        "spec": {"zone": "ES", "source": {"static": {"intensityGramsPerKwh": "140"}}} | spec,
    } | ({} if status is None else {"status": status})


def policy(
    name: str = "green",
    *pools: str,
    created: str = "2026-01-01",
    version: int = 1,
    namespace: str = "ns",
    status: Document | None = None,
    **spec: Any,
) -> Document:
    targets = [{"name": pool} for pool in pools or ("pool",)]
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": metadata(name, namespace, created=created, version=version),
        "spec": {"targetRefs": targets, "slo": {"ttft": "1s", "tpot": "50ms"}} | spec,
    } | ({} if status is None else {"status": status})


def variant(
    name: str = "v",
    *,
    target: str | None = "engine",
    region: str | None = "es",
    created: str = "2026-01-01",
    version: int = 1,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Document:
    document = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "WorkloadVariant",
        "metadata": metadata(name, created=created, version=version),
        "spec": {
            "model": "m",
            "endpointSelector": {"matchLabels": labels or {"app": "vllm"}},
            "accelerator": {"type": "H100"},
        }
        | spec,
    }
    if target is not None:
        document["spec"]["scaleTargetRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    if region is not None:
        document["spec"]["regionRef"] = {"name": region}
    return document


def pool(
    name: str = "pool",
    *,
    version: int = 1,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Document:
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": metadata(name, version=version) | {"annotations": annotations or {}},
        "spec": {"selector": {"matchLabels": labels or {"app": "vllm"}}},
    }


def read_region(*arguments: Any, **spec: Any) -> RegionProfile:
    found = documents.parse(region(*arguments, **spec))
    assert isinstance(found, RegionProfile)
    return found


def read_policy(*arguments: Any, **spec: Any) -> CarbonPolicy:
    found = documents.parse(policy(*arguments, **spec))
    assert isinstance(found, CarbonPolicy)
    return found


def read_variant(*arguments: Any, **spec: Any) -> WorkloadVariant:
    found = documents.parse(variant(*arguments, **spec))
    assert isinstance(found, WorkloadVariant)
    return found


def read_pod(name: str) -> Pod:
    """One that serves."""
    return Pod(
        uid=f"uid-{name}",
        labels=(("app", "vllm"),),
        node="node",
        ip="10.0.0.1",
        phase="Running",
        ready=True,
        terminating=False,
        created_unix_s=NOW_S,
        ready_since_unix_s=NOW_S,
        owner=None,
        accelerators=1,
    )


def key_of(document: Document) -> Key:
    meta = document["metadata"]
    return Key(Kind(document["kind"]), meta.get("namespace", ""), meta["name"])


def cluster_of(*documents: Document) -> Cluster:
    cluster = Cluster(watched(Parts()))
    for document in documents:
        cluster.observe(Kind(document["kind"]), document)
    return cluster
