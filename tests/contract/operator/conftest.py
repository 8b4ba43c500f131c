"""A control plane, a service account with exactly the chart's rights, and an operator that acts as it."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.controlplane import build
from tests.contract.operator.cluster import NAMESPACE, Api, operator_account
from tests.contract.operator.process import OperatorProcess
from tests.support.controlplane import Cluster, ControlPlane, open_cluster

ROOT = Path(__file__).parents[3]
Start = Callable[..., OperatorProcess]
LEFT_BEHIND = "carbonpolicies,workloadvariants,inferencepools,deployments,statefulsets,jobs,pods"


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Kubernetes API of these tests' own: they restart it, and count what it refuses."""
    with open_cluster(tmp_path_factory.mktemp("operator-controlplane")) as cluster:
        cluster.apply_crds(ROOT / "crds", ROOT / "tests" / "support" / "crds")
        yield cluster


@pytest.fixture
def restartable(control_plane: Cluster) -> ControlPlane:
    """The same where a test may stop and start the API server."""
    if not isinstance(control_plane, ControlPlane):
        pytest.skip(f"the cluster of {build.KUBECONFIG_VARIABLE} cannot be restarted by a test")
    return control_plane


@pytest.fixture(scope="session")
def account(control_plane: Cluster) -> Path:
    """A kubeconfig of the operator's service account, with what the chart allows it and nothing else."""
    return operator_account(control_plane, NAMESPACE)


@pytest.fixture
def start(account: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts operators that end with the test."""
    started: list[OperatorProcess] = []

    def start(name: str = "operator", **settings: Any) -> OperatorProcess:
        options = {"kubeconfig": account, "namespace": NAMESPACE} | settings
        operator = OperatorProcess(log=tmp_path / f"{name}.log", **options)
        started.append(operator)
        return operator

    yield start
    for operator in started:
        operator.__exit__(None, None, None)


@pytest.fixture(scope="module")
def operator(account: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """One operator for the tests of a module that do not stop it."""
    log = tmp_path_factory.mktemp("operator") / "shared.log"
    with OperatorProcess(account, log, namespace=NAMESPACE) as operator:
        yield operator.wait_ready()


@pytest.fixture
def api(control_plane: Cluster, namespace: str) -> Api:
    """The administrator's view of the test's namespace."""
    return Api(control_plane, namespace)


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test and no earlier run has used."""
    run, numbers = uuid.uuid4().hex[:6], itertools.count(1)
    return lambda prefix: f"{prefix}-{run}-{next(numbers)}"


@pytest.fixture
def namespace(control_plane: Cluster, unique: Callable[[str], str]) -> Iterator[str]:
    """A namespace of the test's own.

    On a control plane of ours nothing would empty it, and an operator that still tells of what is in a namespace that
    ends is refused: what a later test's operator would see goes, the namespace stays.
    """
    name = control_plane.namespace(unique("test"))
    yield name
    if isinstance(control_plane, ControlPlane):
        control_plane.kubectl("delete", LEFT_BEHIND, "--all", "--namespace", name, "--wait=false", "--grace-period=0")
    else:
        control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def refusals_allowed() -> None:
    """For tests that make the operator ask for too much, or restart the server that counts."""


@pytest.fixture(autouse=True)
def _nothing_refused(control_plane: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """The API server refused no request: the chart's rights are enough.

    Its own counters are asked. They start anew with the server, and in a cluster of the user's count others too.
    """
    if not isinstance(control_plane, ControlPlane) or "refusals_allowed" in request.fixturenames:
        yield
        return
    before = Api(control_plane, "default").refused()
    yield
    after = Api(control_plane, "default").refused()
    assert after - before == 0, "the API server refused requests (403)"
