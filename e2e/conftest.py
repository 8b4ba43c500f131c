"""Fixtures over a real Kubernetes API that does not know Heliotrope yet."""

import contextlib
from collections.abc import Iterator

import pytest
from e2e import our_crds
from e2e.node import programs
from e2e.node.node import Node
from tests.support.chart import ROOT
from tests.support.controlplane import Cluster, ControlPlane, open_cluster
from tests.support.jobs import hooks_complete


@pytest.fixture(scope="session")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Kubernetes API with the InferencePool and without our CRDs, which the tests install and remove."""
    with open_cluster(tmp_path_factory.mktemp("bare-cluster")) as cluster:
        cluster.apply_crds(ROOT / "tests" / "support" / "crds")
        if ours := our_crds.present(cluster):
            pytest.fail(f"Heliotrope is installed in this cluster ({', '.join(ours)}); these tests would remove it")
        # No Job controller runs here, and `helm uninstall` waits for the Job that puts originals back.
        with hooks_complete(cluster) if isinstance(cluster, ControlPlane) else contextlib.nullcontext():
            yield cluster


@pytest.fixture(scope="session")
def real_node() -> Iterator[Node]:
    """A whole node with a kubelet, shared by the modules that need one; it offers no GPUs at first."""
    if reason := programs.missing():
        pytest.skip(reason)
    with Node.start(say=lambda line: None) as node:
        yield node
