"""Our CustomResourceDefinitions in a cluster: waiting for them and removing them."""

from tests.support.controlplane import Cluster, CommandError

KINDS = ("carbonpolicies", "nodepowers", "regionprofiles", "workloadvariants")
NAMES = tuple(f"crd/{kind}.heliotrope.io" for kind in KINDS)
REMOVAL_ATTEMPTS = 6


def present(cluster: Cluster) -> list[str]:
    """Names of those that the cluster knows."""
    return [name for name in cluster.kubectl("get", "crds", "-o", "name").split() if name.endswith(".heliotrope.io")]


def wait(cluster: Cluster) -> None:
    """Return when the API serves all of them."""
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *NAMES)


def remove(cluster: Cluster) -> None:
    """Remove them with all their objects. kubectl sometimes misses that one is gone, and sees it when asked again."""
    for attempt in range(1, REMOVAL_ATTEMPTS + 1):
        try:
            cluster.kubectl("delete", "--ignore-not-found", "--timeout=10s", *NAMES)
        except CommandError:
            if attempt == REMOVAL_ATTEMPTS:
                raise
        else:
            return
