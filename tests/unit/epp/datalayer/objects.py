"""Short ways to the resources and endpoints that tests of the data layer need."""

from typing import Any

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope_epp.datalayer.endpoint import Endpoint

STATIC = {"static": {"intensityGramsPerKwh": "120"}}


def endpoint(name: str, labels: dict[str, str] | None = None, *, node_region: str | None = None) -> Endpoint:
    """An endpoint of the namespace `llm`."""
    return Endpoint(name, "llm", f"10.0.0.{len(name)}", 8000, labels or {}, node_region)


def region(name: str, *, source: dict[str, Any] | None = None, status: Any = None, **spec: Any) -> RegionProfile:
    """A RegionProfile."""
    document = _document("RegionProfile", name, None, {"zone": "Z", "source": source or STATIC} | spec)
    if status is not None:
        document["status"] = status
    resource = parse(document)
    assert isinstance(resource, RegionProfile)
    return resource


def policy(
    name: str, *, namespace: str | None = "llm", pool: str = "pool", created: str = "", **spec: Any
) -> CarbonPolicy:
    """A CarbonPolicy."""
    document = _document(
        "CarbonPolicy",
        name,
        namespace,
        {"targetRefs": [{"name": pool}], "slo": {"ttft": "500ms", "tpot": "50ms"}} | spec,
    )
    if created:
        document["metadata"]["creationTimestamp"] = created
    resource = parse(document)
    assert isinstance(resource, CarbonPolicy)
    return resource


def variant(
    name: str, *, namespace: str | None = "llm", select: dict[str, str] | None = None, **spec: Any
) -> WorkloadVariant:
    """A WorkloadVariant that selects the label `v` of its own name."""
    selector = {"matchLabels": select or {"v": name}}
    required = {"model": "m", "accelerator": {"type": "H100"}, "endpointSelector": selector}
    resource = parse(_document("WorkloadVariant", name, namespace, required | spec))
    assert isinstance(resource, WorkloadVariant)
    return resource


def _document(kind: str, name: str, namespace: str | None, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {"apiVersion": "heliotrope.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
