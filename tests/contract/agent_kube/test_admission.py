"""An agent may write its own node's NodePower status and its own events, and nothing else."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.contract.agent_kube.conftest import ACCOUNT, NAMESPACE
from tests.support.controlplane import Cluster

from heliotrope_agent.kube.client import ApiClient
from heliotrope_agent.kube.errors import ApiError, ForbiddenError

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

Document = dict[str, Any]
NODE_POWERS = "/apis/heliotrope.io/v1alpha1/nodepowers"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
STATUS: Document = {"status": {"managedGpus": 1}}


@pytest.fixture(scope="module", autouse=True)
def _node_powers(control_plane: Cluster) -> Iterator[None]:
    for node in ("n1", "n2"):
        control_plane.apply(
            {"apiVersion": "heliotrope.io/v1alpha1", "kind": "NodePower", "metadata": {"name": node}, "spec": {}}
        )
    yield
    control_plane.kubectl("delete", "nodepowers", "n1", "n2")


def event(node: str, kind: str = "NodePower", controller: str = "heliotrope.io/agent") -> Document:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "default", "name": f"{node}.{uuid.uuid4().hex}"},
        "eventTime": "2026-12-01T12:00:00.000000Z",
        "type": "Normal",
        "reason": "Test",
        "action": "Apply",
        "note": "a test",
        "reportingController": controller,
        "reportingInstance": "test",
        "regarding": {"apiVersion": "heliotrope.io/v1alpha1", "kind": kind, "name": node},
    }


def test_its_own_node_and_no_other(client: Callable[[str], ApiClient]) -> None:
    agent = client("n1")
    assert agent.merge(f"{NODE_POWERS}/n1/status", STATUS)["status"]["managedGpus"] == 1
    with pytest.raises(ForbiddenError, match="the agent of node n1 may not write the NodePower of n2"):
        agent.merge(f"{NODE_POWERS}/n2/status", STATUS)
    assert client("n2").merge(f"{NODE_POWERS}/n2/status", STATUS)["status"]["managedGpus"] == 1


def test_a_token_that_is_bound_to_no_pod_writes_nothing(client: Callable[[str], ApiClient]) -> None:
    agent = client("")
    with pytest.raises(ForbiddenError, match="this token is bound to no pod on a node"):
        agent.merge(f"{NODE_POWERS}/n1/status", STATUS)
    with pytest.raises(ForbiddenError, match="this token is bound to no pod on a node"):
        agent.create(EVENTS, event("n1"))


def test_a_spec_is_the_operators_whatever_rights_the_account_was_given(
    control_plane: Cluster, client: Callable[[str], ApiClient]
) -> None:
    agent, spec = client("n1"), {"spec": {"enforcement": "Enforce"}}
    with pytest.raises(ForbiddenError, match='cannot patch resource "nodepowers"'):
        agent.merge(f"{NODE_POWERS}/n1", spec)
    names = {"name": "too-much"}
    control_plane.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": names,
            "rules": [{"apiGroups": ["heliotrope.io"], "resources": ["nodepowers"], "verbs": ["create", "patch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": names,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "too-much"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
    )
    try:
        refused = "may write the status of a NodePower and nothing else of it"
        with pytest.raises(ForbiddenError, match=refused):
            agent.merge(f"{NODE_POWERS}/n1", spec)
        names = {"name": "n3"}
        another = {"apiVersion": "heliotrope.io/v1alpha1", "kind": "NodePower", "metadata": names, "spec": {}}
        with pytest.raises(ForbiddenError, match=refused):
            agent.create(NODE_POWERS, another)
    finally:
        control_plane.kubectl("delete", "clusterrole,clusterrolebinding", "too-much")


def test_events_about_its_own_node_alone(control_plane: Cluster, client: Callable[[str], ApiClient]) -> None:
    agent = client("n1")
    mine = agent.create(EVENTS, event("n1"))["metadata"]["name"]
    agent.create(EVENTS, event("n1", "Node"))
    series = {"series": {"count": 2, "lastObservedTime": "2026-12-01T12:01:00.000000Z"}}
    assert agent.merge(f"{EVENTS}/{mine}", series)["series"]["count"] == 2

    for about in (event("n2"), event("n1", "Pod"), event("n1", controller="heliotrope.io/operator")):
        with pytest.raises(ForbiddenError, match="may tell of its own NodePower and Node"):
            agent.create(EVENTS, about)
    about_n1 = {"apiVersion": "heliotrope.io/v1alpha1", "kind": "NodePower", "name": "n1"}
    names = {"name": "others", "namespace": "default"}
    legacy = {"apiVersion": "v1", "kind": "Event", "metadata": names, "involvedObject": about_n1, "reason": "Test"}
    control_plane.apply(legacy)
    for name in ("others", client("n2").create(EVENTS, event("n2"))["metadata"]["name"]):
        with pytest.raises(ForbiddenError, match="may tell of its own NodePower and Node"):
            agent.merge(f"{EVENTS}/{name}", series)
    with pytest.raises(ApiError, match="immutable"):
        agent.merge(f"{EVENTS}/others", {"reportingController": "heliotrope.io/agent"})


def test_it_reads_what_it_needs_and_nothing_else(client: Callable[[str], ApiClient]) -> None:
    agent = client("n1")
    assert {each["metadata"]["name"] for each in agent.get(NODE_POWERS)["items"]} == {"n1", "n2"}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    assert agent.get(leases, {"fieldSelector": "metadata.name=heliotrope-power"})["items"] == []
    for path in (leases, "/api/v1/pods", "/api/v1/nodes/n1", f"/api/v1/namespaces/{NAMESPACE}/secrets", EVENTS):
        with pytest.raises(ForbiddenError):
            agent.get(path)
