"""Our CustomResourceDefinitions in a cluster: waiting for them and removing them."""

import contextlib
import threading
from collections.abc import Iterator

from tests.support.controlplane import Cluster, CommandError

KINDS = ("carbonpolicies", "nodepowers", "regionprofiles", "workloadvariants")
NAMES = tuple(f"crd/{kind}.heliotrope.io" for kind in KINDS)
REMOVAL_ATTEMPTS = 6
NUDGE_S = 5.0


def present(cluster: Cluster) -> list[str]:
    """Names of those that the cluster knows."""
    return [name for name in cluster.kubectl("get", "crds", "-o", "name").split() if name.endswith(".heliotrope.io")]


def wait(cluster: Cluster) -> None:
    """Return when the API serves all of them."""
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *NAMES)


def remove(cluster: Cluster) -> None:
    """Remove them with all their objects. kubectl sometimes misses that one is gone, and sees it when asked again."""
    with nudged(cluster):
        for attempt in range(1, REMOVAL_ATTEMPTS + 1):
            try:
                cluster.kubectl("delete", "--ignore-not-found", "--timeout=10s", *NAMES)
            except CommandError:
                if attempt == REMOVAL_ATTEMPTS:
                    raise
            else:
                return


@contextlib.contextmanager
def nudged(cluster: Cluster) -> Iterator[None]:
    """Meanwhile a definition that is stuck while it is deleted is touched now and then.

    The API server's finalizer stops when a definition was changed right before (`storage is (re)initializing`) and its
    own note of that meets its retry; it goes on after five minutes only, or when anything else of it changes.
    """
    ended = threading.Event()

    def run() -> None:
        number = 0
        while not ended.wait(NUDGE_S):
            number += 1
            for name in _stuck(cluster):
                cluster.kubectl("annotate", "crd", name, f"tests/nudged={number}", "--overwrite", check=False)

    thread = threading.Thread(target=run, name="nudge", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stuck(cluster: Cluster) -> list[str]:
    template = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Terminating")].reason}{"\\n"}{end}'
    found = cluster.kubectl("get", "crds", "-o", f"jsonpath={template}", check=False).split()
    return [line.partition("=")[0] for line in found if line.endswith("=InstanceDeletionFailed")]
