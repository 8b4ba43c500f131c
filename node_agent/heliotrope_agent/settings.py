"""What the agent's processes are told at start."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from heliotrope.errors import InvalidInputError

STATE_FOLDER = Path("/var/lib/heliotrope")
POD_RESOURCES = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
PORT = 9410


def own_node() -> str:
    """The node that this process runs on: NODE_NAME (downward API), else none."""
    return os.environ.get("NODE_NAME", "")


def own_namespace() -> str:
    """The namespace that this process runs in, the operator's: POD_NAMESPACE (downward API)."""
    return os.environ.get("POD_NAMESPACE") or "heliotrope-system"


def own_instance() -> str:
    """The name of this pod: POD_NAME (downward API), else none."""
    return os.environ.get("POD_NAME", "")


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the node keeps what the agent reads."""

    state: Path = STATE_FOLDER
    """Own folder, shared by agent and watchdog; on the node's disk, so that it outlives pods and reboots."""
    pod_resources: Path = POD_RESOURCES
    """The kubelet's socket."""
    proc: Path = Path("/proc")
    """The node's own /proc, in which process ids are the driver's."""
    boot_id: Path = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds."""

    look_s: float = 1.0
    """Between two looks of the control loop; a new wish is seen at once."""
    watchdog_s: float = 15.0
    """Without a sign of life for so long a process counts as dead or hung."""
    restore_s: float = 10.0
    """How long the driver may take to put everything back; within the pod's grace period."""
    defaults_s: float = 60.0
    """How long to find out whose GPUs are when originals are lost."""

    def __post_init__(self) -> None:
        """Refuse times that cannot work.

        Raises:
            InvalidInputError: naming the flag.
        """
        for name in ("look_s", "watchdog_s", "restore_s", "defaults_s"):
            if not 0 < getattr(self, name) <= 3600:
                raise InvalidInputError(f"--{name.removesuffix('_s')}-seconds", "must be above 0 s and at most 1 h")
        if self.watchdog_s < 3 * self.look_s:
            raise InvalidInputError("--watchdog-seconds", "must be at least three times --look-seconds")


@dataclass(frozen=True, slots=True)
class Server:
    """Where metrics are served."""

    host: str = "0.0.0.0"
    port: int = PORT
    """0: the system chooses, the log says."""
    dcgm_names: bool = True
    """Whether /metrics has DCGM's names beside our own."""
    sample_s: float = 1.0
    """Between two samples of energy."""
    max_watts: float = 2_000.0
    """A counter of energy that rises faster is not believed."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            InvalidInputError: naming the flag.
        """
        if not 0 <= self.port <= 65_535:
            raise InvalidInputError("--metrics-port", "must be between 0 (the system chooses) and 65535")
        if not 0.1 <= self.sample_s <= 1.0:
            raise InvalidInputError("--sample-seconds", "must be between 0.1 and 1")
        if not 0 < self.max_watts < float("inf"):
            raise InvalidInputError("--max-watts", "must be above 0 W")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's own."""

    node: str = field(default_factory=own_node)
    """Name of the node, and of its NodePower."""
    namespace: str = field(default_factory=own_namespace)
    """The operator's, where its Lease is."""
    instance: str = field(default_factory=own_instance)
    kubeconfig: Path | None = None
    """None: the service account in a cluster, else the user's own."""
    folder: Path | None = None
    """A folder with the NodePower in place of an API server; None: the API server."""
    folder_lease_s: float = 0.0
    """With `folder`: how long a change of its file `lease` keeps wishes alive; 0: they need no lease."""
    paths: Paths = field(default_factory=Paths)
    timing: Timing = field(default_factory=Timing)
    server: Server = field(default_factory=Server)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            InvalidInputError: naming the flag.
        """
        if not self.node:
            raise InvalidInputError("--node", "give the name of this node, or set NODE_NAME")
        if self.folder is not None and not self.folder.is_dir():
            raise InvalidInputError("--folder", f"{self.folder} is not a folder")
        if not 0 <= self.folder_lease_s <= 3600:
            raise InvalidInputError("--folder-lease-seconds", "must be between 0 (no lease) and 3600")
        if self.folder_lease_s and self.folder is None:
            raise InvalidInputError(
                "--folder-lease-seconds", "is for --folder; in a cluster the operator renews a Lease"
            )
