"""What is remembered of pods, nodes and namespaces, and whom their changes touch."""

from typing import Any

import pytest
from tests.unit.operator import objects

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.namespaces import namespace_key
from heliotrope_operator.kinds.nodes import node_key
from heliotrope_operator.kinds.pods import pod_key
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.settings import Parts

PARTS = Parts(scaling=True, deferral=True)
VARIANT = Key(Kind.WORKLOAD_VARIANT, "ns", "v")


def metadata(name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)} | more


def pod(
    name: str = "p", version: int = 1, *, ready: bool = True, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    since = "2026-01-01T00:01:00Z"
    return {
        "metadata": metadata(
            name,
            version,
            namespace="ns",
            creationTimestamp="2026-01-01T00:00:00Z",
            labels={"app": "v", "pod-template-hash": "x"} if labels is None else labels,
            ownerReferences=[{"kind": "ReplicaSet", "name": "rs", "controller": True}],
        ),
        "spec": {
            "nodeName": "n1",
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "2"}}}, {}],
        },
        "status": {
            "podIP": "10.0.0.1",
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since}],
        },
    }


@pytest.fixture
def cluster() -> Cluster:
    known = Cluster(watched(PARTS))
    variant = objects.variant("v")
    variant["spec"]["endpointSelector"] = {"matchLabels": {"app": "v"}}
    known.observe(Kind.WORKLOAD_VARIANT, variant)
    return known


def test_a_pod_touches_the_variants_that_select_it_and_nothing_else(cluster: Cluster) -> None:
    other = objects.variant("w")
    other["spec"]["endpointSelector"] = {"matchLabels": {"app": "w"}}
    cluster.observe(Kind.WORKLOAD_VARIANT, other)

    assert cluster.observe(Kind.POD, pod()) == {VARIANT}
    assert cluster.observe(Kind.POD, pod("q", labels={"app": "none"})) == set()
    assert [key for key, _ in cluster.pods_of(VARIANT)] == [pod_key("ns", "p")]
    assert cluster.pods.by("node", "n1") == {pod_key("ns", "p"), pod_key("ns", "q")}


def test_what_is_not_remembered_of_a_pod_is_no_news(cluster: Cluster) -> None:
    cluster.observe(Kind.POD, pod())
    again = pod(version=2)
    again["metadata"]["annotations"] = {"a": "b"}

    assert cluster.observe(Kind.POD, again) == set()
    assert cluster.observe(Kind.POD, pod(version=3, ready=False)) == {VARIANT}
    assert cluster.forget(pod_key("ns", "p")) == {VARIANT}
    assert cluster.pods_of(VARIANT) == []


def test_a_pod_that_changes_its_labels_touches_both_variants(cluster: Cluster) -> None:
    other = objects.variant("w")
    other["spec"]["endpointSelector"] = {"matchLabels": {"app": "w"}}
    cluster.observe(Kind.WORKLOAD_VARIANT, other)
    cluster.observe(Kind.POD, pod())

    touched = cluster.observe(Kind.POD, pod(version=2, labels={"app": "w"}))

    assert touched == {VARIANT, VARIANT._replace(name="w")}


def test_a_pod_is_read_whole_and_bare(cluster: Cluster) -> None:
    cluster.observe(Kind.POD, pod())
    cluster.observe(Kind.POD, {"metadata": metadata("bare", 1, namespace="ns")})
    whole, bare = cluster.pods.get(pod_key("ns", "p")), cluster.pods.get(pod_key("ns", "bare"))

    assert whole is not None
    assert bare is not None
    assert (whole.accelerators, whole.serves, whole.starts, whole.owner) == (4, True, False, ("ReplicaSet", "rs"))
    assert whole.ready_since_unix_s == whole.created_unix_s + 60.0
    assert whole.labels == (("app", "v"),)
    assert (bare.serves, bare.starts, bare.node, bare.ip, bare.accelerators) == (False, True, None, None, 0)


def test_a_nodes_heartbeat_is_no_news(cluster: Cluster) -> None:
    def node(version: int, heartbeat: str, *, cordoned: bool = False) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]
        return {
            "metadata": metadata("n1", version, labels={"topology.kubernetes.io/region": "eu-north-1"}),
            "spec": {"unschedulable": True} if cordoned else {},
            "status": {"conditions": conditions},
        }

    cluster.observe(Kind.NODE, node(1, "a"))
    first = cluster.nodes.get(node_key("n1"))
    cluster.observe(Kind.NODE, node(2, "b"))
    assert cluster.nodes.get(node_key("n1")) is first
    cluster.observe(Kind.NODE, node(3, "b", cordoned=True))
    after = cluster.nodes.get(node_key("n1"))
    assert after is not None
    assert (after.unschedulable, after.ready, after.region) == (True, True, "eu-north-1")


def test_a_grant_touches_the_policies_and_variants_of_the_namespace(cluster: Cluster) -> None:
    cluster.observe(Kind.CARBON_POLICY, objects.policy("c"))
    granted = {"metadata": metadata("ns", 1, labels={"heliotrope.io/allow-scaling": "true", "team": "a"})}

    target = Key(Kind.ACTUATION, "ns", "Deployment.apps/engine")
    assert cluster.observe(Kind.NAMESPACE, granted) == {VARIANT, Key(Kind.CARBON_POLICY, "ns", "c"), target}
    found = cluster.namespaces.get(namespace_key("ns"))
    assert found is not None
    assert (found.label("heliotrope.io/allow-scaling"), found.label("team")) == ("true", None)
    granted["metadata"] = metadata("ns", 2, labels={"heliotrope.io/allow-scaling": "true", "team": "b"})
    assert cluster.observe(Kind.NAMESPACE, granted) == set()


def test_kinds_of_parts_that_are_off_are_not_watched() -> None:
    known = Cluster(watched(Parts()))
    known.observe(Kind.WORKLOAD_VARIANT, objects.variant("v"))

    assert Kind.POD not in known.specs
    assert known.pods_of(VARIANT) == []
    assert known.namespaces.get(namespace_key("ns")) is None
