"""Fixtures over a real Kubernetes API: one control plane for the session."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from e2e.controlplane import build
from tests.support.controlplane import Cluster, ControlPlane, open_cluster

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Kubernetes API with our CRDs and that of the InferencePool."""
    with open_cluster(tmp_path_factory.mktemp("controlplane")) as cluster:
        cluster.apply_crds(ROOT / "crds", ROOT / "tests" / "support" / "crds")
        yield cluster


@pytest.fixture
def restartable_control_plane(control_plane: Cluster) -> ControlPlane:
    """The same API where a test may stop and start the API server."""
    if not isinstance(control_plane, ControlPlane):
        pytest.skip(f"the cluster of {build.KUBECONFIG_VARIABLE} cannot be restarted by a test")
    return control_plane


@pytest.fixture(scope="session")
def api(control_plane: Cluster) -> Iterator[httpx.Client]:
    """Plain HTTP to the API with administrator's rights."""
    with httpx.Client(base_url=control_plane.proxy(), timeout=30) as client:
        yield client


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Names that no other test and no earlier run has used."""
    run, numbers = uuid.uuid4().hex[:8], itertools.count(1)
    return lambda prefix: f"{prefix}-{run}-{next(numbers)}"


@pytest.fixture
def namespace(control_plane: Cluster, unique_name: Callable[[str], str]) -> Iterator[str]:
    """A namespace of the test's own."""
    name = control_plane.namespace(unique_name("test"))
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
