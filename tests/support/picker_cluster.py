"""Objects of an inference pool on a real API server, and what a picker's source publishes about them."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.support.controlplane import Cluster

from heliotrope_epp.datalayer.kubernetes import KubernetesSource
from heliotrope_epp.datalayer.kubernetes.connection import Collection, Connection
from heliotrope_epp.datalayer.kubernetes.reflector import Reflector, ReflectorTiming
from heliotrope_epp.datalayer.resources import PoolRef, Resources

Document = dict[str, Any]

FAST = ReflectorTiming(first_pause_s=0.05, longest_pause_s=0.5, not_served_pause_s=0.3, not_served_grace_s=2.0)
PATIENCE_S = 20.0
DOCS = Path(__file__).parents[2] / "docs" / "sources.md"


def pool(namespace: str, name: str = "pool", *, ports: tuple[int, ...] = (8000,), app: str = "llm") -> Document:
    """An InferencePool that selects pods labelled `app`."""
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "targetPorts": [{"number": port} for port in ports],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
        },
    }


def policy(namespace: str, name: str, *, pool_name: str = "pool", ttft: str = "500ms") -> Document:
    """A CarbonPolicy on a pool."""
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"targetRefs": [{"name": pool_name}], "slo": {"ttft": ttft, "tpot": "50ms"}},
    }


def region(name: str, **spec: Any) -> Document:
    """A RegionProfile with a static source unless the spec says otherwise."""
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "RegionProfile",
        "metadata": {"name": name},
        "spec": {"zone": "ES", "source": {"static": {"intensityGramsPerKwh": "120"}}} | spec,
    }


class Pods:
    """Pods of a namespace as a kubelet would report them, written over one fast connection."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._http = httpx.Client(base_url=cluster.proxy(), timeout=30.0)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace

    def create(
        self,
        name: str,
        address: str,
        *,
        app: str = "llm",
        node: str = "",
        ready: bool = True,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """A running pod."""
        spec: Document = {"containers": [{"name": "engine", "image": "engine"}], "terminationGracePeriodSeconds": 30}
        if node:
            spec["nodeName"] = node
        metadata = {"name": name, "labels": {"app": app}, "annotations": dict(annotations or {})}
        self._call("POST", self._path, {"metadata": metadata, "spec": spec})
        self.report(name, address=address, ready=ready)

    def report(self, name: str, *, address: str | None = None, ready: bool) -> None:
        """Set the pod's readiness, and its address if given."""
        status: Document = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        if address is not None:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        self._call("PATCH", f"{self._path}/{name}/status", {"status": status})

    def annotate(self, name: str, **annotations: str | None) -> None:
        """Set annotations; None removes one."""
        self._call("PATCH", f"{self._path}/{name}", {"metadata": {"annotations": annotations}})

    def delete(self, name: str, *, grace_s: int = 0) -> None:
        """Delete at once; with a grace period a pod on a node stays, terminating."""
        self._call("DELETE", f"{self._path}/{name}?gracePeriodSeconds={grace_s}", None)

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def _call(self, method: str, path: str, body: Document | None) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = self._http.request(method, path, json=body, headers={"Content-Type": kind})
        assert answer.is_success, answer.text


@contextlib.contextmanager
def pods_of(cluster: Cluster, namespace: str) -> Iterator[Pods]:
    """The pods of a namespace."""
    pods = Pods(cluster, namespace)
    try:
        yield pods
    finally:
        pods.close()


def rights(namespace: str, pool_name: str, account: str) -> list[Document]:
    """The roles and bindings that docs/sources.md tells the user to apply; cluster-wide names made unique."""
    text = DOCS.read_text(encoding="utf-8").split("### Rights")[1].split("```yaml")[1].split("```")[0]
    for placeholder, value in (
        ("POOL-NAMESPACE", namespace),
        ("POOL-NAME", pool_name),
        ("SERVICE-ACCOUNT", account),
    ):
        text = text.replace(placeholder, value)
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        if document["kind"].startswith("Cluster"):
            document["metadata"]["name"] = f"heliotrope-epp-{namespace}"
            if "roleRef" in document:
                document["roleRef"]["name"] = f"heliotrope-epp-{namespace}"
    return documents


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


class Published:
    """What a source has published so far."""

    def __init__(self, source: KubernetesSource) -> None:
        self.source = source
        self.all: list[Resources] = []

    def take(self, resources: Resources) -> None:
        """The source's `publish`."""
        self.all.append(resources)

    @property
    def latest(self) -> Resources:
        """The newest state."""
        return self.all[-1]

    @property
    def endpoints(self) -> dict[str, str]:
        """Name and `ip:port` of the newest state's endpoints."""
        return {endpoint.name: endpoint.host_port for endpoint in self.latest.endpoints}

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something was published and something holds of the newest state or the source."""
        await eventually(lambda: bool(self.all) and condition())


@contextlib.asynccontextmanager
async def running(
    namespace: str, connection: Connection, *, pool_name: str = "pool", timing: ReflectorTiming = FAST
) -> AsyncIterator[Published]:
    """A source on a pool, until the block ends."""
    source = KubernetesSource(PoolRef(namespace, pool_name), connection, timing=timing, rng=random.Random(1))
    published = Published(source)
    task = asyncio.create_task(source.run(published.take))
    try:
        yield published
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def mirrored(
    connection: Connection, collection: Collection, *, timing: ReflectorTiming = FAST, page_size: int = 500
) -> AsyncIterator[Reflector[str]]:
    """A running reflector that keeps the names of objects, until the block ends."""
    reflector: Reflector[str] = Reflector(
        connection,
        collection,
        lambda item: str(item["metadata"]["name"]),
        lambda: None,
        refusal_ends=True,
        timing=timing,
        rng=random.Random(1),
    )
    reflector.page_size = page_size
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
