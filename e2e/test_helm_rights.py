"""What the API server lets the chart's three service accounts do, and what it does not."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from e2e import our_crds
from tests.support.chart import CHART
from tests.support.controlplane import Cluster

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

RUN = uuid.uuid4().hex[:8]
SYSTEM, MODELS, OTHER = f"heliotrope-{RUN}", f"models-{RUN}", f"other-{RUN}"
RELEASE = "heliotrope"
OPERATOR = f"system:serviceaccount:{SYSTEM}:heliotrope-operator"
AGENT = f"system:serviceaccount:{SYSTEM}:heliotrope-agent"
PICKER = f"system:serviceaccount:{MODELS}:heliotrope-picker"

POOLS = "inferencepools.inference.networking.k8s.io"
REGIONS = "regionprofiles.heliotrope.io"
POLICIES = "carbonpolicies.heliotrope.io"
VARIANTS = "workloadvariants.heliotrope.io"
NODE_POWERS = "nodepowers.heliotrope.io"
SLICES = "endpointslices.discovery.k8s.io"
JOBS = "jobs.batch"
AUTOSCALERS = "horizontalpodautoscalers.autoscaling"
EVENTS = "events.events.k8s.io"
LEASES = "leases.coordination.k8s.io"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"

Right = tuple[str, str, str, str]
"""Verb, resource[/subresource], namespace, name; empty where there is none."""

OPERATOR_MAY: list[Right] = [
    *((verb, REGIONS, "", "") for verb in ("get", "list", "watch")),
    ("patch", f"{REGIONS}/status", "", "spain"),
    *((verb, POLICIES, OTHER, "") for verb in ("get", "list", "watch")),
    ("patch", f"{POLICIES}/status", MODELS, "llama"),
    ("list", VARIANTS, "", ""),
    ("patch", f"{VARIANTS}/status", MODELS, "llama"),
    ("patch", POOLS, MODELS, "llama"),
    ("watch", "deployments.apps", "", ""),
    ("get", "deployments.apps/scale", MODELS, "llama"),
    ("get", "statefulsets.apps/scale", MODELS, "llama"),
    ("get", "leaderworkersets.leaderworkerset.x-k8s.io/scale", MODELS, "llama"),
    ("list", CRDS, "", ""),
    ("create", EVENTS, "default", ""),
    ("patch", EVENTS, MODELS, "x"),
    ("create", LEASES, SYSTEM, ""),
    ("update", LEASES, SYSTEM, "heliotrope-operator"),
    ("get", "configmaps", SYSTEM, "series"),
    ("get", "secrets", SYSTEM, "key"),
    ("list", "pods", MODELS, ""),
    ("patch", "pods", MODELS, "llama-0"),
    ("watch", "nodes", "", ""),
    ("watch", "namespaces", "", ""),
    ("list", SLICES, MODELS, ""),
    *((verb, NODE_POWERS, "", "node") for verb in ("get", "create", "patch", "delete")),
    ("patch", LEASES, SYSTEM, "heliotrope-power"),
    ("patch", JOBS, MODELS, "nightly"),
    ("patch", AUTOSCALERS, MODELS, "llama"),
]
OPERATOR_MAY_NOT: list[Right] = [
    ("create", REGIONS, "", ""),
    ("patch", REGIONS, "", "spain"),
    ("delete", REGIONS, "", "spain"),
    ("patch", POLICIES, MODELS, "llama"),
    ("update", f"{POLICIES}/status", MODELS, "llama"),
    ("patch", f"{NODE_POWERS}/status", "", "node"),
    ("create", POOLS, MODELS, ""),
    ("delete", POOLS, MODELS, "llama"),
    ("patch", f"{POOLS}/status", MODELS, "llama"),
    ("delete", "deployments.apps", MODELS, "llama"),
    ("patch", CRDS, "", REGIONS),
    ("delete", EVENTS, MODELS, "x"),
    ("update", LEASES, SYSTEM, "another"),
    ("create", LEASES, MODELS, ""),
    ("get", LEASES, MODELS, "heliotrope-operator"),
    ("get", "configmaps", MODELS, "series"),
    ("list", "configmaps", SYSTEM, ""),
    ("get", "secrets", MODELS, "key"),
    ("list", "secrets", SYSTEM, ""),
    ("delete", "pods", MODELS, "llama-0"),
    ("create", "pods/eviction", MODELS, "llama-0"),
    ("create", JOBS, MODELS, ""),
    ("delete", AUTOSCALERS, MODELS, "llama"),
    ("create", "pods/exec", MODELS, "llama-0"),
    ("patch", "nodes", "", "node"),
    ("patch", "namespaces", "", MODELS),
    ("create", "serviceaccounts/token", SYSTEM, "default"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io", "", ""),
    ("impersonate", "users", "", "admin"),
]
PICKER_MAY: list[Right] = [
    ("list", POOLS, MODELS, "llama"),
    ("watch", POOLS, MODELS, "llama"),
    ("list", "pods", MODELS, ""),
    ("watch", "pods", MODELS, ""),
    ("watch", POLICIES, MODELS, ""),
    ("watch", VARIANTS, MODELS, ""),
    ("watch", REGIONS, "", ""),
    ("get", "nodes", "", "node"),
]
PICKER_MAY_NOT: list[Right] = [
    ("list", POOLS, MODELS, ""),
    ("watch", POOLS, MODELS, "mistral"),
    ("patch", POOLS, MODELS, "llama"),
    ("list", "pods", SYSTEM, ""),
    ("list", "pods", "", ""),
    ("delete", "pods", MODELS, "llama-0"),
    ("create", "pods/exec", MODELS, "llama-0"),
    ("list", POLICIES, OTHER, ""),
    ("list", VARIANTS, "", ""),
    ("patch", f"{POLICIES}/status", MODELS, "llama"),
    ("patch", f"{REGIONS}/status", "", "spain"),
    ("list", "nodes", "", ""),
    ("watch", "nodes", "", ""),
    ("get", "secrets", MODELS, "picker-tls"),
    ("get", "configmaps", MODELS, "heliotrope-picker"),
    ("create", EVENTS, MODELS, ""),
    ("create", LEASES, MODELS, ""),
    ("get", NODE_POWERS, "", "node"),
]

AGENT_MAY: list[Right] = [
    *((verb, NODE_POWERS, "", "") for verb in ("get", "list", "watch")),
    ("patch", f"{NODE_POWERS}/status", "", "node"),
    *((verb, LEASES, SYSTEM, "heliotrope-power") for verb in ("get", "list", "watch")),
    ("create", EVENTS, "default", ""),
    ("patch", EVENTS, "default", "x"),
]
AGENT_MAY_NOT: list[Right] = [
    *((verb, NODE_POWERS, "", "node") for verb in ("create", "update", "patch", "delete")),
    ("update", f"{NODE_POWERS}/status", "", "node"),
    ("get", LEASES, SYSTEM, "heliotrope-operator"),
    ("list", LEASES, SYSTEM, ""),
    ("patch", LEASES, SYSTEM, "heliotrope-power"),
    ("create", EVENTS, MODELS, ""),
    ("list", EVENTS, "default", ""),
    ("delete", EVENTS, "default", "x"),
    ("list", "pods", MODELS, ""),
    ("get", "nodes", "", "node"),
    ("patch", "nodes", "", "node"),
    ("get", "secrets", SYSTEM, "key"),
    ("get", "configmaps", SYSTEM, "series"),
    ("get", VARIANTS, MODELS, "llama"),
    ("get", POLICIES, MODELS, "llama"),
]


@pytest.fixture(scope="module")
def installed(bare_cluster: Cluster) -> Iterator[Cluster]:
    for name in (SYSTEM, MODELS, OTHER):
        bare_cluster.namespace(name)
    values = f"pool.name=llama,pool.namespace={MODELS},agent.enabled=true"
    try:
        bare_cluster.helm("install", RELEASE, str(CHART), "--namespace", SYSTEM, "--set", values)
        yield bare_cluster
    finally:
        bare_cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found")
        our_crds.remove(bare_cluster)
        bare_cluster.kubectl("delete", "namespace", SYSTEM, MODELS, OTHER, "--wait=false")


def review(user: str, right: Right) -> dict[str, Any]:
    """The question that `kubectl auth can-i --as` asks, for many rights at once."""
    verb, resource, namespace, name = right
    resource, _, subresource = resource.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"],
            "resourceAttributes": attributes | {"namespace": namespace, "name": name},
        },
    }


def answers(cluster: Cluster, user: str, rights: list[Right]) -> dict[Right, bool]:
    asked = yaml.safe_dump_all(review(user, right) for right in rights)
    said = cluster.kubectl("create", "-f", "-", "-o", 'jsonpath={.status.allowed}{" "}', stdin=asked).split()
    return {right: answer == "true" for right, answer in zip(rights, said, strict=True)}


@pytest.mark.parametrize(
    ("user", "may", "may_not"),
    [
        (OPERATOR, OPERATOR_MAY, OPERATOR_MAY_NOT),
        (PICKER, PICKER_MAY, PICKER_MAY_NOT),
        (AGENT, AGENT_MAY, AGENT_MAY_NOT),
    ],
    ids=["operator", "picker", "agent"],
)
def test_accounts_may_what_they_need_and_no_more(
    installed: Cluster, user: str, may: list[Right], may_not: list[Right]
) -> None:
    said = answers(installed, user, [*may, *may_not])
    assert [right for right in may if not said[right]] == []
    assert [right for right in may_not if said[right]] == []


def test_can_i_says_the_same(installed: Cluster) -> None:
    def can_i(*arguments: str) -> str:
        return installed.kubectl("auth", "can-i", *arguments, check=False).split()[-1]

    assert can_i("list", "pods", f"--as={PICKER}", f"--namespace={MODELS}") == "yes"
    assert can_i("list", "pods", f"--as={PICKER}", f"--namespace={SYSTEM}") == "no"
    assert can_i("patch", f"{REGIONS}/spain", "--subresource=status", f"--as={OPERATOR}") == "yes"
    assert can_i("get", "secrets", f"--as={OPERATOR}", f"--namespace={SYSTEM}") == "yes"
    assert can_i("get", "secrets", f"--as={OPERATOR}", f"--namespace={MODELS}") == "no"


def test_listed_namespaces_are_all_that_the_operator_reaches(installed: Cluster) -> None:
    inside: list[Right] = [
        ("watch", REGIONS, "", ""),
        ("patch", f"{REGIONS}/status", "", "spain"),
        ("list", CRDS, "", ""),
        ("create", EVENTS, "default", ""),
        ("update", LEASES, SYSTEM, "heliotrope-operator"),
        ("list", POLICIES, MODELS, ""),
        ("patch", f"{VARIANTS}/status", MODELS, "llama"),
        ("patch", POOLS, MODELS, "llama"),
        ("get", "deployments.apps/scale", MODELS, "llama"),
        ("create", EVENTS, MODELS, ""),
    ]
    outside: list[Right] = [
        ("list", POLICIES, OTHER, ""),
        ("list", POLICIES, "", ""),
        ("patch", POOLS, OTHER, "llama"),
        ("get", "deployments.apps/scale", OTHER, "llama"),
        ("create", EVENTS, OTHER, ""),
    ]
    assert all(answers(installed, OPERATOR, outside).values())
    upgrade = ("upgrade", RELEASE, str(CHART), "--namespace", SYSTEM)
    try:
        installed.helm(*upgrade, "--reuse-values", "--set", f"operator.namespaces={{{MODELS}}}")
        said = answers(installed, OPERATOR, [*inside, *outside])
    finally:
        installed.helm("rollback", RELEASE, "1", "--namespace", SYSTEM)
    assert [right for right in inside if not said[right]] == []
    assert [right for right in outside if said[right]] == []
