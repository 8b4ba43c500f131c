"""Fixtures over a real Kubernetes API that does not know Heliotrope yet."""

from collections.abc import Iterator

import pytest
from e2e import our_crds
from e2e.controlplane import build
from tests.support.chart import ROOT
from tests.support.controlplane import Cluster, open_cluster


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane before the tests' time limits run, with its progress on the terminal."""
    wanted = any(item.get_closest_marker("controlplane") for item in session.items)
    if not wanted or session.config.option.collectonly or not build.needed():
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        build.ensure()


@pytest.fixture(scope="session")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Kubernetes API with the InferencePool and without our CRDs, which the tests install and remove."""
    with open_cluster(tmp_path_factory.mktemp("bare-cluster")) as cluster:
        cluster.apply_crds(ROOT / "tests" / "support" / "crds")
        if ours := our_crds.present(cluster):
            pytest.fail(f"Heliotrope is installed in this cluster ({', '.join(ours)}); these tests would remove it")
        yield cluster
