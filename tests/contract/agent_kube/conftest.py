"""A control plane, two nodes with an agent's pod each, and the chart's rights and admission policy."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from e2e.controlplane import build
from prometheus_client import CollectorRegistry
from tests.support.chart import Chart, of_kind
from tests.support.controlplane import Cluster, ControlPlane, open_cluster

from heliotrope_agent.kube.client import ApiClient
from heliotrope_agent.kube.credentials import from_kubeconfig
from heliotrope_agent.kube.metrics import KubeMetrics

ROOT = Path(__file__).parents[3]
NAMESPACE = "heliotrope-system"
ACCOUNT = "heliotrope-agent"
KINDS = (
    "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)  # fmt: skip


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("agent-controlplane")) as cluster:
        cluster.apply_crds(ROOT / "crds" / "heliotrope.io_nodepowers.yaml")
        cluster.namespace(NAMESPACE)
        rendered = Chart(cluster.programs / "helm").objects({"agent": {"enabled": True}}, namespace=NAMESPACE)
        shipped = [
            each
            for each in of_kind(rendered, *KINDS)
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"
        ]
        assert {each["kind"] for each in shipped} == set(KINDS)
        cluster.apply(*shipped)
        for node in ("n1", "n2"):
            cluster.apply(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}},
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"agent-{node}", "namespace": NAMESPACE},
                    "spec": {
                        "nodeName": node,
                        "serviceAccountName": ACCOUNT,
                        "containers": [{"name": "agent", "image": "x"}],
                    },
                },
            )
        yield cluster


@pytest.fixture
def restartable(control_plane: Cluster) -> ControlPlane:
    if not isinstance(control_plane, ControlPlane):
        pytest.skip(f"the cluster of {build.KUBECONFIG_VARIABLE} cannot be restarted by a test")
    return control_plane


@pytest.fixture(scope="session")
def token(control_plane: Cluster) -> Callable[[str], str]:
    """A token as the kubelet of a node has it made for the agent's pod; of no pod for an empty name."""

    def token(node: str) -> str:
        bound = ("--bound-object-kind", "Pod", "--bound-object-name", f"agent-{node}") if node else ()
        command = ("create", "token", ACCOUNT, "--namespace", NAMESPACE, "--duration", "1h", *bound)
        return control_plane.kubectl(*command).strip()

    return token


@pytest.fixture
def kubeconfig(control_plane: Cluster, token: Callable[[str], str], tmp_path: Path) -> Callable[[str], Path]:
    """A kubeconfig whose token is in a file beside it, NODE.token."""
    numbers = itertools.count()

    def kubeconfig(node: str) -> Path:
        folder = tmp_path / f"account-{next(numbers)}"
        folder.mkdir()
        file = folder / "token"
        file.write_text(token(node))
        config = yaml.safe_load(control_plane.kubectl("config", "view", "--raw", "--minify", "--flatten"))
        config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"tokenFile": "token"}}]
        path = folder / "config"
        path.write_text(yaml.safe_dump(config))
        return path

    return kubeconfig


@pytest.fixture
def client(kubeconfig: Callable[[str], Path]) -> Iterator[Callable[[str], ApiClient]]:
    """The API server as an agent of a node reaches it."""
    made: list[ApiClient] = []

    def client(node: str) -> ApiClient:
        path = kubeconfig(node)
        made.append(ApiClient(lambda: from_kubeconfig(path), KubeMetrics(CollectorRegistry(), unix_clock=lambda: 0.0)))
        return made[-1]

    yield client
    for each in made:
        each.close()
