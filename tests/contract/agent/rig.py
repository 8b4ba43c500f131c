"""A node for the agent: the compiled stand-in for the driver, a kubelet's socket, processes in cgroups, a wish."""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import yaml
from tests.support.nvml.node import FakeNode, GpuState
from tests.support.nvml.products import A100_80GB
from tests.support.podresources import KubeletSocket
from tests.support.zygote import Started, Zygote

from heliotrope_agent.state.records import Ownership
from heliotrope_agent.state.store import Store

PATIENCE_S = 60.0
"""Nothing here takes so long on a machine that has time for it."""
NODE = "gpu-node"

Pod = tuple[str, str]


def until(what: str, holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    ends_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < ends_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)


class Rig:
    """One node, and the processes on it."""

    def __init__(self, folder: Path, zygote: Zygote, gpus: int = 2) -> None:
        self.folder = folder
        self.zygote = zygote
        self.node = FakeNode.create(folder / "gpus", *[A100_80GB] * gpus)
        self.uuids = [self.node.uuid(gpu) for gpu in range(gpus)]
        self.state = folder / "state"
        self.wishes = folder / "wishes"
        self.wishes.mkdir()
        self.proc = folder / "proc"
        self.proc.mkdir()
        self.boot_id = folder / "boot_id"
        self.boots = 0
        self.kubelet = KubeletSocket(folder / "kubelet.sock")
        self.kubelet.start()
        self.originals = self.settings()
        self._pods: dict[Pod, list[int]] = {}
        self._number = 0
        self._pids = 100_000
        self._starts: list[Started] = []
        self._boot()

    def close(self) -> None:
        """End what runs on it."""
        for each in self._starts:
            each.signal(9)  # type: ignore[arg-type]
        self.kubelet.stop()
        self.node.close()

    # The node

    def settings(self) -> list[tuple[object, ...]]:
        """All that the driver holds of what can be set."""
        return [_settings(each) for each in self.node.states()]

    def restored(self) -> bool:
        return self.settings() == self.originals

    def locks(self) -> list[int | None]:
        """SM locks by GPU."""
        return [None if each.sm_lock_mhz is None else each.sm_lock_mhz[1] for each in self.node.states()]

    def reboot(self) -> None:
        """The node has rebooted; processes are the caller's business."""
        self.node.reboot()
        for path in self.proc.iterdir():
            (path / "cgroup").unlink()
            path.rmdir()
        for pod, gpus in self._pods.items():
            self._run(pod, gpus)
        self._boot()

    def _boot(self) -> None:
        self.boots += 1
        self.boot_id.write_text(f"boot-{self.boots}\n")

    def place(self, pods: Mapping[Pod, Sequence[int]]) -> None:
        """Exactly these pods run, on these GPUs."""
        for pod, gpus in list(self._pods.items()):
            if list(pods.get(pod, ())) != gpus:
                del self._pods[pod]
                for gpu in gpus:
                    self.node.processes([], gpu)
        self.kubelet.set({pod: [self.uuids[gpu] for gpu in gpus] for pod, gpus in pods.items()})
        for pod, gpus in pods.items():
            if pod not in self._pods:
                self._pods[pod] = list(gpus)
                self._run(pod, gpus)

    def _run(self, pod: Pod, gpus: Sequence[int]) -> None:
        self._pids += 1
        folder = self.proc / str(self._pids)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/kubepods/pod{uid(pod)}/engine\n")
        for gpu in gpus:
            self.node.processes([self._pids], gpu)

    def kubelet_fails(self, fails: bool = True) -> None:
        self.kubelet.failure = (grpc.StatusCode.UNAVAILABLE, "the kubelet restarts") if fails else None

    # Wishes

    def intent(self, pods: Sequence[Pod], **settings: Any) -> dict[str, Any]:
        namespace = pods[0][0]
        return {
            "namespace": namespace,
            "variant": f"variant-{pods[0][1]}",
            "role": "decode",
            "pods": [{"name": name, "uid": uid((space, name))} for space, name in pods],
        } | settings

    def wish(self, *intents: Mapping[str, Any], enforcement: str = "Enforce") -> None:
        """The NodePower has this spec."""
        document = {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "NodePower",
            "metadata": {"name": NODE},
            "spec": {"enforcement": enforcement, "intents": list(intents)},
        }
        new = self.wishes / "new"
        new.write_text(yaml.safe_dump(document))
        new.rename(self.wishes / "nodepower.yaml")

    def wish_nothing(self) -> None:
        """The NodePower was deleted."""
        (self.wishes / "nodepower.yaml").unlink(missing_ok=True)

    def renew(self) -> None:
        """The lease is renewed."""
        (self.wishes / "lease").write_text(f"{time.monotonic_ns()}\n")

    # Processes

    def run(self, *arguments: str) -> Started:
        """Start `heliotrope agent ARGUMENTS` on this node."""
        self._number += 1
        log = self.folder / f"process-{self._number}.log"
        flags = (f"--state-folder={self.state}", f"--boot-id={self.boot_id}", "--look-seconds=0.1")
        given = dict(
            each.partition("=")[::2] for each in (*flags, *arguments)
        )  # a later flag takes an earlier one's place
        words = [f"{name}={text}" if text else name for name, text in given.items()]
        started = self.zygote.start(["agent", *words], self.environment, log)
        self._starts.append(started)
        return started

    @property
    def environment(self) -> dict[str, str]:
        return {name: text for name, text in self.node.environment.items() if name.startswith("HELIOTROPE")}

    def agent(self, *arguments: str) -> Started:
        """Start the agent, with short waits."""
        return self.run(
            f"--node={NODE}",
            f"--folder={self.wishes}",
            f"--pod-resources={self.kubelet.path}",
            f"--proc={self.proc}",
            "--metrics-port=0",
            "--host=127.0.0.1",
            "--lower-dwell-seconds=0",
            "--raise-dwell-seconds=0",
            "--retry-seconds=0.2",
            *arguments,
        )

    def watchdog(self, *arguments: str) -> Started:
        """Start the watchdog, which loses patience soon."""
        return self.run("--watchdog", "--watchdog-seconds=1.5", *arguments)

    def records(self) -> Mapping[str, Ownership]:
        """What is in the file of originals."""
        return Store(self.state).load()

    # What the agent says

    def status(self) -> dict[str, Any]:
        path = self.wishes / "status" / f"{NODE}.yaml"
        return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}

    def condition(self, kind: str = "Applied") -> tuple[str, str]:
        """Status and reason."""
        for each in self.status().get("conditions", ()):
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""

    def reasons(self, gpu: int = 0) -> list[str]:
        for each in self.status().get("gpus", ()):
            if each["uuid"] == self.uuids[gpu]:
                return list(each.get("reasons", ()))
        return []

    def events(self) -> list[str]:
        """Reasons of all events, oldest first."""
        path = self.wishes / "status" / f"{NODE}.events.jsonl"
        return [json.loads(line)["reason"] for line in path.read_text().splitlines()] if path.exists() else []

    def until_locked(self, *mhz: int | None) -> None:
        """Wait until the SM clocks are locked so, by GPU."""
        until(f"locks {mhz}; are {self.locks()}", lambda: self.locks() == list(mhz))

    def until_restored(self) -> None:
        until("every GPU as it was", self.restored)


def _settings(state: GpuState) -> tuple[object, ...]:
    return state.sm_lock_mhz, state.memory_lock_mhz, state.power_limit_milliwatts


def uid(pod: Pod) -> str:
    """The UID of a pod of tests."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(pod)))
