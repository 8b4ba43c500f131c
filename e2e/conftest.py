"""Fixtures over a real Kubernetes API that does not know Heliotrope yet."""

from collections.abc import Iterator

import pytest
from e2e import our_crds
from tests.support.chart import ROOT
from tests.support.controlplane import Cluster, open_cluster


@pytest.fixture(scope="session")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Kubernetes API with the InferencePool and without our CRDs, which the tests install and remove."""
    with open_cluster(tmp_path_factory.mktemp("bare-cluster")) as cluster:
        cluster.apply_crds(ROOT / "tests" / "support" / "crds")
        if ours := our_crds.present(cluster):
            pytest.fail(f"Heliotrope is installed in this cluster ({', '.join(ours)}); these tests would remove it")
        yield cluster
