"""The agent with a real API server that goes away: wishes hold until the Lease ends, and restoring never waits."""

import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from e2e.controlplane import build
from tests.contract.agent.rig import NODE, Rig, until
from tests.support.controlplane import ControlPlane, open_cluster
from tests.support.zygote import Started

from heliotrope.api.v1alpha1.common import POWER_LEASE

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.xdist_group("outages")]

ROOT = Path(__file__).parents[3]
NAMESPACE = "heliotrope-system"
POD = ("serving", "decode-0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with open_cluster(tmp_path_factory.mktemp("outages")) as found:
        if not isinstance(found, ControlPlane):
            pytest.skip(f"the cluster of {build.KUBECONFIG_VARIABLE} cannot be stopped by a test")
        found.apply_crds(ROOT / "crds" / "heliotrope.io_nodepowers.yaml")
        found.namespace(NAMESPACE)
        yield found


class Operator:
    """Renews the Lease as the operator does, and wishes."""

    def __init__(self, cluster: ControlPlane, rig: Rig, lease_s: int) -> None:
        self.cluster = cluster
        self.rig = rig
        self.lease_s = lease_s
        self.renewing = True
        self.renewed_s = 0.0
        """When it was renewed last."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew)

    def __enter__(self) -> "Operator":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._over.wait(0.3):
            if self.renewing:
                self.renewed_s = time.monotonic()
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                self.cluster.apply(
                    {
                        "apiVersion": "coordination.k8s.io/v1",
                        "kind": "Lease",
                        "metadata": {"name": POWER_LEASE, "namespace": NAMESPACE},
                        "spec": {"holderIdentity": "op", "leaseDurationSeconds": self.lease_s, "renewTime": now},
                    }
                )

    def wish(self, mhz: int) -> None:
        self.cluster.apply(
            {
                "apiVersion": "heliotrope.io/v1alpha1",
                "kind": "NodePower",
                "metadata": {"name": NODE},
                "spec": {"enforcement": "Enforce", "intents": [self.rig.intent([POD], smClockMhz=mhz, watts=300)]},
            }
        )

    def condition(self, kind: str = "Applied") -> tuple[str, str]:
        status: dict[str, Any] = self.cluster.get("nodepower", NODE).get("status", {})
        for each in status.get("conditions", ()):
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""


def agent(rig: Rig, cluster: ControlPlane) -> Started:
    return rig.run(
        f"--node={NODE}",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--namespace={NAMESPACE}",
        f"--pod-resources={rig.kubelet.path}",
        f"--proc={rig.proc}",
        "--metrics-port=0",
        "--host=127.0.0.1",
        "--lower-dwell-seconds=0",
        "--raise-dwell-seconds=0",
    )


def test_an_api_outage_changes_nothing_until_the_lease_ends(rig: Rig, cluster: ControlPlane) -> None:
    rig.place({POD: [0, 1]})
    with Operator(cluster, rig, lease_s=12) as operator:
        operator.wish(810)
        first = agent(rig, cluster)
        rig.until_locked(810, 810)
        until("told", lambda: operator.condition() == ("True", "Applied"))
        header, row = (line.split() for line in cluster.kubectl("get", "nodepowers").splitlines())
        shown = dict(zip(header, row, strict=True))
        assert shown.pop("SEEN").endswith("s")
        del shown["AGE"]
        assert shown == {
            "NAME": NODE,
            "ENFORCEMENT": "Enforce",
            "GPUS": "2",
            "MANAGED": "2",
            "APPLIED": "True",
            "REASON": "Applied",
            "LEASE": "True",
        }

        operator.renewing = False
        time.sleep(0.5)
        cluster.stop_apiserver()
        until("the lease ends", rig.restored, 30.0)
        assert time.monotonic() - operator.renewed_s >= 12.0, "what is set stays until then"
        cluster.start_apiserver()
        operator.renewing = True
        rig.until_locked(810, 810)

        # With the API server away a signal is obeyed as promptly, whatever is left to say.
        operator.renewing = False
        time.sleep(0.5)
        cluster.stop_apiserver()
        first.signal(signal.SIGTERM)
        assert first.wait(15.0) == 0
        assert rig.restored()
        cluster.start_apiserver()


def test_the_end_is_told_and_a_nodepower_that_goes_releases(rig: Rig, cluster: ControlPlane) -> None:
    rig.place({POD: [0, 1]})
    with Operator(cluster, rig, lease_s=60) as operator:
        operator.wish(600)
        first = agent(rig, cluster)
        rig.until_locked(600, 600)
        cluster.kubectl("delete", "nodepower", NODE)
        rig.until_restored()
        operator.wish(705)
        rig.until_locked(705, 705)
        first.signal(signal.SIGTERM)
        assert first.wait(30.0) == 0
        assert rig.restored()
        assert operator.condition() == ("False", "AgentStopped")
