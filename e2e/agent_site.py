"""The chart's node agent on a real node with a stand-in for its driver, engines' pods, and the operator's part."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import yaml
from e2e import our_crds
from e2e.node import images
from e2e.node.node import Node
from tests.support.chart import CHART
from tests.support.controlplane import CommandError
from tests.support.nvml import build as nvml
from tests.support.nvml.node import FakeNode, GpuState, Privilege
from tests.support.nvml.products import A100_80GB

from heliotrope_agent.pods.kubelet import PodResources

SYSTEM = "heliotrope-system"
MODELS = "models"
LEASE = "heliotrope-power"
LEASE_SECONDS = 8
RENEW_SECONDS = 1.0
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 40.0
DRIVER_STATE = "stand-in/driver"
"""Of the driver, in the agent's state folder: the one place of the node that the agent's containers may write to."""
TIMES = ("--look-seconds=0.2", "--watchdog-seconds=5", "--lower-dwell-seconds=0", "--raise-dwell-seconds=0")


@dataclass
class Engine:
    """A pod of a variant, and the GPUs that the kubelet gave to it."""

    name: str
    uid: str
    gpus: tuple[str, ...]
    processes: dict[int, int] = field(default_factory=dict)
    """Its processes on the GPUs: their ids on this machine, and as the node's driver knows them."""


class AgentSite:
    """One node, three GPUs, an installed chart and a Lease that is renewed."""

    def __init__(self, node: Node) -> None:
        self.node = node
        state = node.folder / "heliotrope" / DRIVER_STATE
        state.parent.mkdir(parents=True)
        self.driver = FakeNode.create(state, A100_80GB, A100_80GB, A100_80GB)
        self.driver.privilege(Privilege.CAP_SYS_ADMIN)
        self.kubelet = PodResources(node.pod_resources_socket)
        self._engines: list[Engine] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._renewing = threading.Event()
        self._url = ""
        self._threads = [
            threading.Thread(target=self._renew, daemon=True, name="renew"),
            threading.Thread(target=self._bury, daemon=True, name="bury"),
        ]

    def start(self) -> None:
        """Install the chart and play the operator."""
        self.node.set_gpus([gpu.uuid for gpu in self.gpus()])
        self.node.wait_for_gpus(len(self.driver))
        self.node.kubectl("label", "node", self.node.name, "nvidia.com/gpu.present=true", "--overwrite")
        self.node.namespace(SYSTEM)
        self.node.namespace(MODELS)
        self.node.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASE, "namespace": SYSTEM},
                "spec": {"holderIdentity": "operator", "leaseDurationSeconds": LEASE_SECONDS, "leaseTransitions": 0},
            }
        )
        self.reach()
        self._renewing.set()
        for thread in self._threads:
            thread.start()
        self.helm("install")

    def stop(self) -> None:
        """Uninstall the chart, and play no longer."""
        try:
            self.clear()
            self.uninstall()
            our_crds.remove(self.node)
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()
            self.driver.close()

    def reach(self) -> None:
        """Reach the API server anew, after the node was away; from the main thread."""
        self._url = self.node.proxy()

    # The chart

    def helm(self, command: str, tag: str = images.AGENT_TAG, **agent: Any) -> None:
        """Install or upgrade, and wait until the agent is ready."""
        values = {
            "image": {"registry": images.REGISTRY, "tag": tag, "pullPolicy": "Never"},
            "operator": {"enabled": False},
            "agent": {
                "enabled": True,
                "image": {"repository": images.AGENT_REPOSITORY},
                "driver": {"hostPath": str(nvml.ensure())},
                "extraEnv": [{"name": "HELIOTROPE_FAKE_NVML", "value": f"/var/lib/heliotrope/{DRIVER_STATE}"}],
                "extraArgs": list(TIMES),
            }
            | agent,
        }
        file = self.node.folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        self.node.helm(command, "heliotrope", str(CHART), "--namespace", SYSTEM, "--values", str(file))
        self.rolled_out()

    def uninstall(self) -> None:
        """Take the chart away, if it is there."""
        self.node.helm("uninstall", "heliotrope", "--namespace", SYSTEM, "--ignore-not-found", "--wait")

    def rolled_out(self) -> None:
        """Return when the agent of the newest template is ready."""
        try:
            self.node.kubectl(
                "rollout", "status", "daemonset/heliotrope-agent", "--namespace", SYSTEM, "--timeout=120s"
            )
        except CommandError as error:
            raise CommandError(f"{error}\n{self.story()}") from error

    def agent_pods(self) -> dict[str, dict[str, Any]]:
        """The agent's pods that nobody has deleted, by name."""
        pods = self.node.get("pods", "--namespace", SYSTEM, "--selector=app.kubernetes.io/component=agent")["items"]
        return {each["metadata"]["name"]: each for each in pods if "deletionTimestamp" not in each["metadata"]}

    def agent_pod(self) -> dict[str, Any]:
        """The one that there is."""
        (pod,) = self.agent_pods().values()
        return pod

    def agent_process(self, container: str = "agent") -> int:
        """First process of one of the agent's containers, as this machine counts them."""
        return self.node.processes(SYSTEM, self.agent_pod()["metadata"]["name"], container)[0]

    def restarts(self, container: str = "agent") -> int:
        """How often a container was started again."""
        (status,) = [each for each in self.agent_pod()["status"]["containerStatuses"] if each["name"] == container]
        count: int = status["restartCount"]
        return count

    # Engines

    def engine(self, name: str, *, command: str = "", gpus: int = 1) -> Engine:
        """Run a pod with GPUs whose process has a context on each of them."""
        container = {
            "name": "engine",
            "image": images.STILL,
            "imagePullPolicy": "Never",
            "args": [command] if command else [],
            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        }
        spec = {"containers": [container], "terminationGracePeriodSeconds": 3}
        metadata = {"name": name, "namespace": MODELS}
        self.node.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self.node.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--namespace", MODELS, "--timeout=60s")
        uid = self.node.get("pod", name, "--namespace", MODELS)["metadata"]["uid"]
        given = [each.device_id for each in self.kubelet.claims() if each.pod.name == name]
        made = Engine(name, uid, tuple(given))
        with self._lock:
            self._engines.append(made)
        self.attach(made)
        return made

    def attach(self, engine: Engine) -> None:
        """The engine's process opens its GPUs."""
        processes = self.node.processes(MODELS, engine.name, "engine")
        with self._lock:
            engine.processes = {pid: self.node.inside(pid) for pid in processes}
        self._tell_driver()

    def delete(self, engine: Engine, *, force: bool = False) -> None:
        """Delete an engine's pod."""
        flags = ["--grace-period=0", "--force"] if force else []
        self.node.kubectl("delete", "pod", engine.name, "--namespace", MODELS, *flags)

    # What the operator does

    def want(self, *engines: Engine, mhz: int) -> None:
        """Wish a clock for the GPUs of engines, in the NodePower."""
        intent = {
            "namespace": MODELS,
            "variant": "llama",
            "role": "decode",
            "pods": [{"name": each.name, "uid": each.uid} for each in engines],
            "smClockMhz": mhz,
        }
        self.node.apply(
            {
                "apiVersion": "heliotrope.io/v1alpha1",
                "kind": "NodePower",
                "metadata": {"name": self.node.name},
                "spec": {"enforcement": "Enforce", "intents": [intent]},
            }
        )

    def renew(self, on: bool) -> None:
        """Renew the Lease, or no longer."""
        (self._renewing.set if on else self._renewing.clear)()

    def clear(self) -> None:
        """Wish nothing, and run no engines."""
        self.node.kubectl("delete", "nodepowers", "--all")
        self.node.kubectl("delete", "pods", "--all", "--namespace", MODELS, "--grace-period=0", "--force")
        with self._lock:
            self._engines.clear()
        self._tell_driver()

    # What the driver holds

    def gpus(self) -> tuple[GpuState, ...]:
        """The GPUs, by index."""
        return self.driver.states()

    def locks(self) -> dict[str, int]:
        """SM clocks that are locked, by GPU."""
        return {gpu.uuid: gpu.sm_lock_mhz[1] for gpu in self.gpus() if gpu.sm_lock_mhz is not None}

    def at_rest(self) -> bool:
        """Whether every GPU is as it was found."""
        default = A100_80GB.limit_default_milliwatts
        return not self.locks() and all(gpu.power_limit_milliwatts == default for gpu in self.gpus())

    def locked(self, *engines: Engine, mhz: int) -> Callable[[], bool]:
        """Whether exactly the GPUs of these engines have this clock."""
        return lambda: self.locks() == {gpu: mhz for engine in engines for gpu in engine.gpus}

    def until(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until something holds, and return the seconds that it took.

        Raises:
            AssertionError: if it does not, with what the agent says.
        """
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > seconds:
                raise AssertionError(f"after {seconds:.0f} s it does not hold that {what}\n{self.story()}")
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - began

    def story(self) -> str:
        """What is known, for whoever has to find out why."""
        of_agent = ["--namespace", SYSTEM, "--selector=app.kubernetes.io/component=agent"]
        parts = [
            f"locks: {self.locks()}",
            "\n".join(map(str, self.driver.writes(max(0, self.driver.write_count - 10)))),
            self.node.kubectl("get", "nodepowers", "-o", "yaml", check=False),
            self.node.kubectl("get", "leases", "--namespace", SYSTEM, "-o", "yaml", check=False),
            self.node.kubectl("get", "pods", "-A", "-o", "wide", check=False),
            self.node.kubectl("logs", *of_agent, "--all-containers", "--prefix", "--tail=40", check=False),
            self.node.kubectl(
                "logs", *of_agent, "--all-containers", "--prefix", "--tail=15", "--previous", check=False
            ),
            self.node.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", check=False)[-3_000:],
        ]
        return "\n--\n".join(parts)

    # In the background

    def _renew(self) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEASE}"
        headers = {"Content-Type": "application/merge-patch+json"}
        with httpx.Client(timeout=5.0) as http:
            while not self._ended.wait(RENEW_SECONDS):
                if self._renewing.is_set():
                    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                    with contextlib.suppress(httpx.HTTPError):
                        http.patch(f"{self._url}{path}", json={"spec": {"renewTime": now}}, headers=headers)

    def _bury(self) -> None:
        """A process that has ended has no context on a GPU any longer."""
        while not self._ended.wait(LOOK_SECONDS):
            with self._lock:
                ended = [
                    (engine, pid)
                    for engine in self._engines
                    for pid in engine.processes
                    if not Path(f"/proc/{pid}").exists()
                ]
                for engine, pid in ended:
                    del engine.processes[pid]
            if ended:
                self._tell_driver()

    def _tell_driver(self) -> None:
        with self._lock:
            for index, gpu in enumerate(self.gpus()):
                inside = [
                    pid for engine in self._engines if gpu.uuid in engine.gpus for pid in engine.processes.values()
                ]
                self.driver.processes(inside, index)
