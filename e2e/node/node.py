"""A whole Kubernetes node with its own control plane, in namespaces of its own, for tests and for use by hand.

    with Node.start(gpus=["GPU-…"]) as node:
        node.kubectl("get", "nodes")

    python -m e2e.node.node     # keeps one until Ctrl-C and says how to reach it

Nothing of it is seen on the machine but a folder in /dev/shm or /tmp, control groups and a port of the loopback
interface; they go when it ends or when the process that started it does.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from e2e.controlplane.build import Say, say_on_stderr
from e2e.node import images, outer, programs
from tests.support.chart import ROOT
from tests.support.controlplane import Cluster

NAME = "node1"
START_SECONDS = 240.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.05
MEMORY_BYTES = 2 * 1024**3


class NodeFailedError(AssertionError):
    """The node did not come up or has ended; the message has the ends of its logs."""


class Node(Cluster):
    """One node, seen with administrator's rights."""

    name = NAME

    def __init__(self, folder: Path, found: programs.NodePrograms) -> None:
        super().__init__(folder / "kubeconfig", folder, found.control_plane)
        self._outer: subprocess.Popen[str] | None = None
        self._starts = 0

    @classmethod
    def start(cls, gpus: Sequence[str] = (), say: Say = say_on_stderr) -> Self:
        """Start a node that offers GPUs of these ids; returns when it is Ready (about 20 seconds).

        Raises:
            NodeUnavailableError: if none can run on this machine.
            NodeFailedError: if it does not come up.
        """
        if reason := programs.missing():
            raise programs.NodeUnavailableError(reason)
        found = programs.ensure(say)
        folder = Path(tempfile.mkdtemp(prefix="heliotrope-node-", dir=_place()))
        node = cls(folder, found)
        try:
            node.set_gpus(gpus)
            settings = {
                "path": found.search_path,
                "containers": str(found.containers),
                "cgroup": f"heliotrope-node-{secrets.token_hex(4)}",
                "pause": images.STILL,
                "device_plugin": [sys.executable, "-m", "e2e.node.device_plugin"],
            }
            (folder / "settings.json").write_text(json.dumps(settings))
            node._outer = subprocess.Popen(
                [sys.executable, "-m", "e2e.node.outer", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
                text=True,
                start_new_session=True,
            )
            (folder / "images").mkdir()
            images.write(folder / "images", say)
            node.power_on()
        except BaseException:
            node.stop()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return node

    def stop(self) -> None:
        """End the node; nothing of it stays."""
        super().stop()
        if self._outer is not None:
            assert self._outer.stdin is not None
            self._outer.stdin.close()
            self._outer.wait(STOP_SECONDS)
            self._outer = None

    def power_off(self) -> None:
        """Kill every process of the node at once; its disk stays."""
        super().stop()
        self._command("stop")
        self._wait_for_state(f"stopped {self._starts}", STOP_SECONDS)

    def power_on(self) -> None:
        """Start it with the disk that it has; returns when it is Ready."""
        self._command("start")
        self._started()

    def set_gpus(self, ids: Sequence[str]) -> None:
        """Have the device plugin offer these; the kubelet knows within a second."""
        new = self.folder / "gpus.new"
        new.write_text(json.dumps(list(ids)))
        new.rename(self.folder / "gpus.json")

    def wait_for_gpus(self, count: int) -> None:
        """Return when the scheduler can give that many away."""
        self.wait_until(lambda: self._allocatable() == count, 30.0, f"{count} GPUs can be had")

    @property
    def pod_resources_socket(self) -> Path:
        """The kubelet's socket that tells which pod has which device."""
        return self.folder / "kubelet" / "pod-resources" / "kubelet.sock"

    def hold(self, program: str) -> None:
        """Kill one of the node's programs and keep it down."""
        (self.folder / "hold" / program).touch()
        self.kill(program)

    def release(self, program: str) -> None:
        """Let a program that was held run again."""
        (self.folder / "hold" / program).unlink()
        self.wait_until((self.folder / "pids" / program).exists, START_SECONDS, f"{program} runs")

    def kill(self, program: str) -> None:
        """Kill one of the node's programs; it is started again at once."""
        file = self.folder / "pids" / program
        inside = file.read_text().strip()
        os.kill(self.outside(int(inside)), signal.SIGKILL)
        self.wait_until(lambda: _text(file) != inside, 30.0, f"{program} has ended")

    def processes(self, namespace: str, pod: str, container: str) -> list[int]:
        """Ids of a running container's processes as this machine counts them, its first process first."""
        found = self.get("pod", pod, "--namespace", namespace)
        statuses = found["status"].get("containerStatuses", []) + found["status"].get("initContainerStatuses", [])
        (status,) = [each for each in statuses if each["name"] == container]
        identity = status["containerID"].rpartition("/")[2]
        for group in outer.cgroups(self._cgroup):
            for file in group.glob(f"kubepods/**/pod{found['metadata']['uid']}/{identity}/cgroup.procs"):
                return sorted(map(int, file.read_text().split()), key=self.inside)
        return []

    def inside(self, pid: int) -> int:
        """A process's id as the node counts, which is as a driver on it does."""
        ids = re.findall(r"(?m)^NSpid:\s(.*)$", Path(f"/proc/{pid}/status").read_text())[0].split()
        return int(ids[1])

    def outside(self, inside: int) -> int:
        """The id on this machine of a process that the node knows by another one."""
        assert self._outer is not None
        for pid in outer.descendants(self._outer.pid):
            with contextlib.suppress(OSError, IndexError):
                if self.inside(pid) == inside:
                    return pid
        raise ProcessLookupError(f"the node has no process {inside}")

    def wait_until(self, holds: Callable[[], object], seconds: float, what: str) -> None:
        """Return when something holds.

        Raises:
            NodeFailedError: if it does not within the time, with what was waited for.
        """
        deadline = time.monotonic() + seconds
        while not holds():
            if self._outer is not None and self._outer.poll() is not None:
                raise NodeFailedError(f"the node has ended:\n{self.logs()}")
            if time.monotonic() > deadline:
                raise NodeFailedError(f"after {seconds:.0f} s it does not hold that {what}:\n{self.logs()}")
            time.sleep(LOOK_SECONDS)

    def logs(self) -> str:
        """The ends of the logs of the node's programs."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-1_500:]}"
            for path in sorted((self.folder / "log").glob("*.log"))
        )

    @property
    def _cgroup(self) -> str:
        name: str = json.loads((self.folder / "settings.json").read_text())["cgroup"]
        return name

    def _started(self) -> None:
        self._starts += 1
        self._wait_for_state(f"ready {self._starts}", START_SECONDS)
        self._write_kubeconfig()
        self.wait_until(self._ready, START_SECONDS, "the node is Ready and namespaces have their account")

    def _ready(self) -> bool:
        wanted = 'jsonpath={.items[0].status.conditions[?(@.type=="Ready")].status}'
        if self.kubectl("get", "nodes", "-o", wanted, check=False) != "True":
            return False
        return "default" in self.kubectl("get", "serviceaccount", "-n", "default", "-o", "name", check=False)

    def _allocatable(self) -> int:
        found = self.get("node", NAME)["status"].get("allocatable", {})
        return int(found.get("nvidia.com/gpu", "0"))

    def _command(self, word: str) -> None:
        assert self._outer is not None
        assert self._outer.stdin is not None
        self._outer.stdin.write(f"{word}\n")
        self._outer.stdin.flush()

    def _wait_for_state(self, wanted: str, seconds: float) -> None:
        file = self.folder / "state"

        def reached() -> bool:
            state = _text(file)
            if state.startswith("failed"):
                raise NodeFailedError(f"{state}\n{self.logs()}")
            return state == wanted

        self.wait_until(reached, seconds, f"the node is {wanted}")

    def _write_kubeconfig(self) -> None:
        config = json.loads((self.folder / "pki" / "admin.conf").read_text())
        port = _text(self.folder / "port")
        config["clusters"][0]["cluster"] |= {
            "server": f"https://127.0.0.1:{port}",
            "tls-server-name": "kubernetes.default.svc",
        }
        self._write("kubeconfig", json.dumps(config))


def _place() -> str:
    """Where the node's folder goes: into memory if there is room, because images are thousands of small files.

    The path is short, because paths of sockets have at most 107 characters.
    """
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > MEMORY_BYTES else "/tmp"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def main() -> int:
    """Keep a node with two GPUs until Ctrl-C."""
    with Node.start(gpus=["GPU-0", "GPU-1"]) as node:
        say_on_stderr(f"export KUBECONFIG={node.kubeconfig} PATH={node.programs}:$PATH")
        say_on_stderr(f"logs: {node.folder / 'log'}; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
