"""What the agent knows of the cluster and tells it, on the real API server."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.contract.agent_kube.conftest import NAMESPACE
from tests.support.controlplane import Cluster, ControlPlane

from heliotrope.api.v1alpha1.common import Condition, ConditionStatus
from heliotrope.api.v1alpha1.nodepower import GpuSettings, GpuStatus, NodePowerStatus
from heliotrope_agent.clock import boottime_s
from heliotrope_agent.kube.cluster import KubeCluster
from heliotrope_agent.kube.follow import FollowTiming

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

PATIENCE_S = 30.0
QUICK = FollowTiming(first_pause_s=0.05, longest_pause_s=0.5)
UUID = "GPU-5f1c2d3e-0000-1111-2222-333344445555"

Document = dict[str, Any]


def eventually(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, "it did not come to hold"
        time.sleep(0.02)


class Agent:
    """A KubeCluster and its metrics."""

    def __init__(self, kubeconfig: Path, node: str = "n1") -> None:
        self.kubeconfig = kubeconfig
        self.registry = CollectorRegistry()
        self.woken = threading.Event()
        self.cluster = KubeCluster(
            node,
            namespace=NAMESPACE,
            registry=self.registry,
            kubeconfig=kubeconfig,
            changed=self.woken.set,
            instance="agent-n1",
            timing=QUICK,
        )

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"heliotrope_agent_{name}", labels)

    def clock(self) -> int | None:
        node_power = self.cluster.wishes().node_power
        return None if node_power is None else node_power.spec.intents[0].sm_clock_mhz

    def holds(self) -> bool:
        return self.cluster.wishes().lease_until_s > boottime_s()


@pytest.fixture
def agent(kubeconfig: Callable[[str], Path]) -> Iterator[Agent]:
    made = Agent(kubeconfig("n1"))
    made.cluster.start()
    yield made
    began = time.monotonic()
    made.cluster.stop(20.0)
    assert time.monotonic() - began < 10.0, "a watch was waited for"


@pytest.fixture(autouse=True)
def _clean(control_plane: Cluster) -> Iterator[None]:
    yield
    control_plane.kubectl("delete", "nodepowers", "--all", "--ignore-not-found")
    control_plane.kubectl("delete", "events.events.k8s.io", "--all", "--namespace", "default")
    control_plane.kubectl("delete", "lease", "heliotrope-power", "--namespace", NAMESPACE, "--ignore-not-found")


def node_power(clock: int, name: str = "n1") -> Document:
    intent = {"namespace": "llm", "variant": "llama", "role": "decode", "smClockMhz": clock}
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "NodePower",
        "metadata": {"name": name},
        "spec": {"enforcement": "Enforce", "intents": [intent]},
    }


def renew(cluster: Cluster, *, duration_s: int = 60) -> None:
    """As the operator does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    cluster.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "heliotrope-power", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "operator", "leaseDurationSeconds": duration_s, "renewTime": now},
        }
    )


def status(reason: str, *, applied: bool = True, effective: int = 810, generation: int = 1) -> NodePowerStatus:
    return NodePowerStatus(
        observed_generation=generation,
        conditions=(
            Condition(
                type="Applied",
                status=ConditionStatus.TRUE if applied else ConditionStatus.FALSE,
                reason=reason,
                message="as asked",
                last_transition_time=datetime.now(UTC),
            ),
        ),
        managed_gpus=1,
        gpus=(
            GpuStatus(
                uuid=UUID,
                requested=GpuSettings(sm_clock_mhz=810),
                effective=GpuSettings(sm_clock_mhz=effective),
                original=GpuSettings(watts=400),
            ),
        ),
    )


def told(cluster: Cluster) -> list[tuple[str, str, int]]:
    """Reason, kind and count of the agent's events."""
    found = cluster.get("events.events.k8s.io", "--namespace", "default")["items"]
    ours = [each for each in found if each.get("reportingController") == "heliotrope.io/agent"]
    return sorted((e["reason"], e["regarding"]["kind"], (e.get("series") or {}).get("count", 1)) for e in ours)


def test_the_nodepower_is_followed_from_its_making_to_its_end(control_plane: Cluster, agent: Agent) -> None:
    assert not agent.cluster.wishes().known or agent.cluster.wishes().node_power is None
    eventually(lambda: agent.cluster.wishes().known)
    assert agent.cluster.wishes().node_power is None  # there is none, which is not the same as not known
    agent.woken.clear()
    control_plane.apply(node_power(810), node_power(1_200, "n2"))
    assert agent.woken.wait(PATIENCE_S)
    eventually(lambda: agent.clock() == 810)
    control_plane.apply(node_power(900))
    eventually(lambda: agent.clock() == 900)
    control_plane.kubectl("delete", "nodepower", "n1")
    eventually(lambda: agent.cluster.wishes().node_power is None)
    assert agent.sample("api_up") == 1.0


def test_wishes_hold_from_a_renewal_that_was_seen_until_its_end(control_plane: Cluster, agent: Agent) -> None:
    renew(control_plane)
    eventually(
        lambda: agent.sample("watch_restarts_total", object="leases") is not None or agent.cluster.wishes().known
    )
    time.sleep(1.0)
    assert not agent.holds()  # it may be of yesterday
    assert agent.sample("lease_remaining_seconds") is None
    renew(control_plane, duration_s=2)
    eventually(agent.holds)
    assert 0.0 < (agent.sample("lease_remaining_seconds") or 0.0) <= 2.0
    control_plane.kubectl("annotate", "lease", "heliotrope-power", "a=b", "--namespace", NAMESPACE)
    eventually(lambda: not agent.holds())  # a change that is no renewal extends nothing
    renew(control_plane)
    eventually(agent.holds)
    control_plane.kubectl("delete", "lease", "heliotrope-power", "--namespace", NAMESPACE)
    time.sleep(0.5)
    assert agent.holds()


def test_a_status_is_written_when_something_happened_and_only_then(control_plane: Cluster, agent: Agent) -> None:
    agent.cluster.report(status("Applied"))  # kept until there is a NodePower
    control_plane.apply(node_power(810))

    def written() -> Document:
        found: Document = control_plane.get("nodepower", "n1").get("status", {})
        return found

    eventually(lambda: written().get("managedGpus") == 1)
    first = control_plane.get("nodepower", "n1")
    (condition,) = first["status"]["conditions"]
    assert first["status"]["gpus"][0]["effective"] == {"smClockMhz": 810}
    manager = {each["manager"] for each in first["metadata"].get("managedFields", ())}
    assert not manager or "heliotrope-agent" in manager

    agent.cluster.report(status("Applied"))  # a later time of the same transition
    agent.cluster.report(status("Applied", effective=795))  # it throttles a little
    time.sleep(1.5)
    assert control_plane.get("nodepower", "n1")["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert agent.sample("status_writes_total", outcome="written") == 1.0

    agent.cluster.report(status("Denied", applied=False))
    eventually(lambda: written()["conditions"][0]["reason"] == "Denied")
    agent.cluster.report(NodePowerStatus(managed_gpus=0))
    eventually(lambda: written().get("managedGpus") == 0)
    assert written() == {"conditions": [], "gpus": [], "managedGpus": 0}  # what is told no more is gone

    agent.cluster.report(status("Applied"))
    eventually(lambda: written().get("managedGpus") == 1)
    control_plane.kubectl("delete", "nodepower", "n1")
    control_plane.apply(node_power(810))  # another one of its name knows nothing yet
    eventually(lambda: written().get("conditions", [{}])[0].get("reason") == "Applied")
    assert condition["lastTransitionTime"]


def test_events_are_told_once_and_counted(control_plane: Cluster, agent: Agent) -> None:
    agent.cluster.event("Restored", "one GPU was left over", warning=False)
    eventually(lambda: told(control_plane) == [("Restored", "Node", 1)])
    control_plane.apply(node_power(810))
    eventually(lambda: agent.clock() == 810)
    for _ in range(3):
        agent.cluster.event("Denied", "no privilege", warning=True)
    eventually(lambda: told(control_plane) == [("Denied", "NodePower", 3), ("Restored", "Node", 1)])
    assert agent.sample("events_total", outcome="repeated") == 2.0
    assert "no privilege" in control_plane.kubectl("describe", "nodepower", "n1")


def test_an_outage_changes_nothing_and_is_made_up_for(
    restartable: ControlPlane, agent: Agent, kubeconfig: Callable[[str], Path]
) -> None:
    ending = Agent(kubeconfig("n1"))
    ending.cluster.start()
    restartable.apply(node_power(810))
    eventually(lambda: agent.clock() == ending.clock() == 810)
    restartable.stop_apiserver()
    eventually(lambda: agent.sample("api_up") == 0.0)
    before = agent.cluster.wishes()
    for number in range(100):
        agent.cluster.event("Flapping", f"number {number}", warning=True)
    agent.cluster.report(status("Applied"))
    assert agent.sample("events_total", outcome="dropped") == 36.0
    ending.cluster.report(status("AgentStopped", applied=False))  # nobody waits for last words that cannot be written
    began = time.monotonic()
    ending.cluster.stop(2.0)
    assert time.monotonic() - began < 5.0
    assert agent.cluster.wishes() == before

    restartable.start_apiserver()
    eventually(lambda: restartable.get("nodepower", "n1").get("status", {}).get("managedGpus") == 1)
    restartable.apply(node_power(900))
    eventually(lambda: agent.clock() == 900)
    renew(restartable)
    time.sleep(0.2)
    renew(restartable)
    eventually(agent.holds)
    eventually(lambda: (agent.sample("events_total", outcome="limited") or 0.0) >= 40.0)
    assert agent.sample("events_total", outcome="created") == 20.0
    assert agent.sample("api_up") == 1.0


def test_the_last_words_are_written_before_the_end(control_plane: Cluster, kubeconfig: Callable[[str], Path]) -> None:
    control_plane.apply(node_power(810))
    agent = Agent(kubeconfig("n1"))
    agent.cluster.start()
    eventually(lambda: agent.clock() == 810)
    agent.cluster.report(status("Applied"))
    agent.cluster.report(status("Applied", effective=795))
    agent.cluster.report(status("AgentStopped", applied=False))
    agent.cluster.event("Stopped", "all GPUs are at their originals", warning=False)
    agent.cluster.stop(5.0)
    assert control_plane.get("nodepower", "n1")["status"]["conditions"][0]["reason"] == "AgentStopped"
    assert ("Stopped", "NodePower", 1) in told(control_plane)


def test_a_rotated_token_is_read_again(
    control_plane: Cluster, kubeconfig: Callable[[str], Path], token: Callable[[str], str]
) -> None:
    path = kubeconfig("n1")
    file = path.parent / "token"
    good = file.read_text()
    file.write_text("expired")
    agent = Agent(path)
    agent.cluster.start()
    eventually(lambda: (agent.sample("api_requests_total", method="GET", code="401") or 0.0) >= 2.0)
    assert not agent.cluster.wishes().known
    assert agent.sample("api_up") == 0.0
    file.write_text(good)
    eventually(lambda: agent.cluster.wishes().known)
    file.write_text(token("n1"))
    control_plane.apply(node_power(810))
    agent.cluster.report(status("Applied"))
    eventually(lambda: agent.sample("status_writes_total", outcome="written") == 1.0)
    agent.cluster.stop()
