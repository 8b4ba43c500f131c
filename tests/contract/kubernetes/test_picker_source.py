"""The picker's Kubernetes source against a real API server: what it publishes as objects come, change and go."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.controlplane import Cluster
from tests.support.picker_cluster import FAST, Pods, Published, pods_of, policy, pool, region, rights, running

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.kubernetes import KubernetesSource
from heliotrope_epp.datalayer.kubernetes.connection import Connection
from heliotrope_epp.datalayer.resources import PoolRef

pytestmark = pytest.mark.controlplane


@pytest.fixture
def pods(control_plane: Cluster, namespace: str) -> Iterator[Pods]:
    with pods_of(control_plane, namespace) as pods:
        yield pods


def connection(cluster: Cluster) -> Connection:
    return Connection(kubeconfig=cluster.kubeconfig)


async def test_the_first_state_is_complete(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    control_plane.apply(pool(namespace), policy(namespace, "green"), region(f"first-{namespace}"))
    pods.create("a", "10.1.0.1")
    pods.create("b", "10.1.0.2")

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: True)

        first = published.all[0]
        assert [endpoint.host_port for endpoint in first.endpoints] == ["10.1.0.1:8000", "10.1.0.2:8000"]
        assert [each.metadata.name for each in first.policies] == ["green"]
        assert first.policies[0].metadata.creation_timestamp is not None
        assert f"first-{namespace}" in {each.metadata.name for each in first.regions}
        assert first.problems == ()
        assert published.source.healthy


async def test_endpoints_follow_their_pods(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    control_plane.apply(pool(namespace))

    async with running(namespace, connection(control_plane)) as published:
        pods.create("a", "10.1.0.1", ready=False)
        pods.create("b", "10.1.0.2")
        pods.create("other", "10.1.0.3", app="something-else")
        await published.until(lambda: published.endpoints == {"b": "10.1.0.2:8000"})

        pods.report("a", ready=True)
        await published.until(lambda: published.endpoints == {"a": "10.1.0.1:8000", "b": "10.1.0.2:8000"})

        pods.report("b", ready=False)
        await published.until(lambda: published.endpoints == {"a": "10.1.0.1:8000"})

        pods.delete("a")
        await published.until(lambda: published.endpoints == {})

        pods.create("a", "10.1.0.9")
        await published.until(lambda: published.endpoints == {"a": "10.1.0.9:8000"})


async def test_a_terminating_pod_gets_no_more_requests(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    control_plane.apply(pool(namespace))
    pods.create("a", "10.1.0.1", node="some-node")

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: published.endpoints == {"a": "10.1.0.1:8000"})

        pods.delete("a", grace_s=30)

        await published.until(lambda: published.endpoints == {})
        assert control_plane.get("pod", "a", "-n", namespace)["status"]["phase"] == "Running"


async def test_every_active_target_port_is_an_endpoint(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    control_plane.apply(pool(namespace, ports=(8000, 8001, 8002)))
    pods.create("a", "10.1.0.1", annotations={"llm-d.ai/active-ports": "8002, 8000,9999,x"})

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: published.endpoints == {"a-rank-0": "10.1.0.1:8000", "a-rank-2": "10.1.0.1:8002"})

        pods.annotate("a", **{"llm-d.ai/active-ports": None})
        await published.until(lambda: len(published.endpoints) == 3)

        control_plane.apply(pool(namespace, ports=(8001,)))
        await published.until(lambda: published.endpoints == {"a": "10.1.0.1:8001"})


async def test_a_changed_selector_swaps_the_pods_in_one_step(
    control_plane: Cluster, namespace: str, pods: Pods
) -> None:
    control_plane.apply(pool(namespace))
    pods.create("old", "10.1.0.1")
    pods.create("new", "10.1.0.2", app="new")

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: published.endpoints == {"old": "10.1.0.1:8000"})

        control_plane.apply(pool(namespace, app="new"))

        await published.until(lambda: "new" in published.endpoints)
        assert [[e.name for e in each.endpoints] for each in published.all] == [["old"], ["new"]]


async def test_a_deleted_pool_has_no_endpoints_until_it_is_back(
    control_plane: Cluster, namespace: str, pods: Pods
) -> None:
    control_plane.apply(pool(namespace))
    pods.create("a", "10.1.0.1")

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: len(published.endpoints) == 1)

        control_plane.kubectl("delete", "inferencepool", "pool", "-n", namespace)
        await published.until(lambda: published.endpoints == {})
        assert published.latest.problems == (f"InferencePool {namespace}/pool does not exist",)
        assert published.source.healthy

        control_plane.apply(pool(namespace))
        await published.until(lambda: len(published.endpoints) == 1)


async def test_an_administrator_grants_downgrades_by_a_label_of_the_namespace(
    control_plane: Cluster, namespace: str, pods: Pods
) -> None:
    control_plane.apply(pool(namespace))
    label = "heliotrope.io/allow-downgrades"

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: published.latest is not None)
        assert label in (published.all[0].downgrades_withheld_because or "")
        assert len(published.all) == 1, "the first state has the label already, or knows that there is none"

        control_plane.kubectl("label", "namespace", namespace, f"{label}=true")
        await published.until(lambda: published.latest.downgrades_withheld_because is None)

        control_plane.kubectl("label", "namespace", namespace, f"{label}=yes", "--overwrite")
        await published.until(lambda: "'yes'" in (published.latest.downgrades_withheld_because or ""))


async def test_only_the_named_pool_counts(control_plane: Cluster, namespace: str, pods: Pods) -> None:
    control_plane.apply(pool(namespace, "another", app="new"))
    pods.create("a", "10.1.0.1", app="new")

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: True)

        assert published.endpoints == {}

        control_plane.apply(pool(namespace, app="new"))
        await published.until(lambda: published.endpoints == {"a": "10.1.0.1:8000"})


async def test_policies_and_regions_follow_their_objects(control_plane: Cluster, namespace: str) -> None:
    name = f"follow-{namespace}"
    control_plane.apply(pool(namespace), policy(namespace, "green"), region(name))

    def ttft(published: Published) -> list[float]:
        return [each.spec.slo.ttft.total_seconds() for each in published.latest.policies]

    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: ttft(published) == [0.5])

        control_plane.apply(policy(namespace, "green", ttft="2s"))
        await published.until(lambda: ttft(published) == [2.0])

        reading = {
            "value": "211.5",
            "time": "2026-01-01T00:00:00Z",
            "source": "file",
            "signalType": "average",
            "emissionFactor": "lifecycle",
        }
        control_plane.kubectl(
            "patch", "regionprofile", name, "--subresource=status", "--type=merge",
            "-p", f'{{"status": {{"intensity": {reading}}}}}'.replace("'", '"'),
        )  # fmt: skip
        await published.until(
            lambda: (
                [
                    each.status.intensity.value
                    for each in published.latest.regions
                    if each.metadata.name == name and each.status is not None and each.status.intensity is not None
                ]
                == [211.5]
            )
        )

        control_plane.kubectl("delete", "carbonpolicy", "green", "-n", namespace)
        control_plane.kubectl("delete", "regionprofile", name)
        await published.until(
            lambda: (
                not published.latest.policies and name not in {each.metadata.name for each in published.latest.regions}
            )
        )


async def test_the_documented_rights_are_enough_and_nodes_give_regions(
    control_plane: Cluster, namespace: str, pods: Pods
) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{namespace}", "labels": {"topology.kubernetes.io/region": f"geo-{namespace}"}},
    }
    control_plane.apply(
        pool(namespace), node, region(f"node-{namespace}", topologyRegions=[f"geo-{namespace}"]),
        *rights(namespace, "pool", "picker"),
    )  # fmt: skip
    control_plane.kubectl("create", "serviceaccount", "picker", "-n", namespace)
    pods.create("a", "10.1.0.1", node=f"node-{namespace}")
    account = Connection(kubeconfig=control_plane.service_account_kubeconfig(namespace, "picker"))

    async with running(namespace, account) as published:
        await published.until(lambda: len(published.endpoints) == 1)

        assert published.latest.endpoints[0].node_region == f"geo-{namespace}"
        assert published.source.healthy
    control_plane.kubectl("delete", "regionprofile", f"node-{namespace}")
    control_plane.kubectl("delete", "node", f"node-{namespace}")


async def test_without_the_right_to_read_nodes_regions_by_node_are_unknown(
    control_plane: Cluster, namespace: str, pods: Pods
) -> None:
    documents = rights(namespace, "pool", "picker")
    for document in documents:
        if document["kind"] == "ClusterRole":
            document["rules"] = [rule for rule in document["rules"] if rule["resources"] != ["nodes"]]
    control_plane.apply(pool(namespace), region(f"node-{namespace}", topologyRegions=[namespace[:63]]), *documents)
    control_plane.kubectl("create", "serviceaccount", "picker", "-n", namespace)
    pods.create("a", "10.1.0.1", node="any-node")
    account = Connection(kubeconfig=control_plane.service_account_kubeconfig(namespace, "picker"))

    async with running(namespace, account) as published:
        await published.until(lambda: len(published.endpoints) == 1)

        assert published.latest.endpoints[0].node_region is None
        assert published.source.healthy
        pods.create("b", "10.1.0.2")
        await published.until(lambda: len(published.endpoints) == 2)  # the watches survive the refusal
    control_plane.kubectl("delete", "regionprofile", f"node-{namespace}")


async def test_a_right_missing_at_the_start_is_named(control_plane: Cluster, namespace: str) -> None:
    documents = rights(namespace, "pool", "picker")
    for document in documents:
        if document["kind"] == "Role":
            document["rules"] = [rule for rule in document["rules"] if rule["resources"] != ["pods"]]
    control_plane.apply(pool(namespace), *documents)
    control_plane.kubectl("create", "serviceaccount", "picker", "-n", namespace)
    account = Connection(kubeconfig=control_plane.service_account_kubeconfig(namespace, "picker"))

    source = KubernetesSource(PoolRef(namespace, "pool"), account, timing=FAST)

    with pytest.raises(InvalidInputError, match=f"reading pods in {namespace} is refused.*cannot list"):
        await asyncio.wait_for(source.run(lambda _: None), 20)


OBJECTIVES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "inferenceobjectives.llm-d.ai"},
    "spec": {
        "group": "llm-d.ai",
        "names": {"kind": "InferenceObjective", "plural": "inferenceobjectives"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"priority": {"type": "integer", "format": "int32"}},
                            }
                        },
                    }
                },
            }
        ],
    },
}
"""Of llm-d's kind, what the picker reads of it."""


async def test_priorities_follow_inference_objectives_once_their_kind_is_there(
    control_plane: Cluster, namespace: str
) -> None:
    def objective(priority: int) -> dict[str, object]:
        return {
            "apiVersion": "llm-d.ai/v1alpha2",
            "kind": "InferenceObjective",
            "metadata": {"name": "nightly", "namespace": namespace},
            "spec": {"priority": priority},
        }

    control_plane.apply(pool(namespace))
    async with running(namespace, connection(control_plane)) as published:
        await published.until(lambda: True)
        assert published.latest.priorities == {}
        assert published.source.healthy

        control_plane.apply(OBJECTIVES)
        control_plane.kubectl("wait", "--for=condition=Established", "crd/inferenceobjectives.llm-d.ai")
        control_plane.apply(objective(-5))
        await published.until(lambda: published.latest.priorities == {"nightly": -5})

        control_plane.apply(objective(3))
        await published.until(lambda: published.latest.priorities == {"nightly": 3})

        control_plane.kubectl("delete", "inferenceobjective.llm-d.ai", "nightly", "-n", namespace)
        await published.until(lambda: published.latest.priorities == {})
    control_plane.kubectl("delete", "crd", "inferenceobjectives.llm-d.ai")
