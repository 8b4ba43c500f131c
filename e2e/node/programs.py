"""Brings the programs of a Kubernetes node into the cache, once per set of versions; nothing is installed.

    python -m e2e.node.programs     # builds and unpacks if needed and prints the folders

Kubernetes' own programs come from the Go module in `programs/`; containerd, runc and the network plugins from the
packages of the Debian or Ubuntu of this machine, unpacked. A first build takes about six minutes on two cores.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.controlplane import build
from e2e.controlplane.build import Programs, Say, say_on_stderr

KUBERNETES = Programs(
    what="the Kubernetes node",
    prefix="node",
    module=Path(__file__).parent / "programs",
    packages={
        name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kube-controller-manager", "kube-scheduler")
    },
    minutes=6,
)
PACKAGES = ("containerd", "runc", "containernetworking-plugins")
CONTAINER_PROGRAMS = (
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/lib/cni/bridge",
    "usr/lib/cni/host-local",
    "usr/lib/cni/loopback",
    "usr/sbin/runc",
)
SYSTEM_PROGRAMS = ("ip", "mount", "umount", "unshare", "setpriv", "openssl", "gcc")
DOWNLOAD_SECONDS = 300


class NodeUnavailableError(RuntimeError):
    """No node can run on this machine; the message says what is missing."""


@dataclass(frozen=True)
class NodePrograms:
    """Where a node's programs are."""

    control_plane: Path
    """etcd, kube-apiserver, kubectl, helm."""
    kubernetes: Path
    """kubelet, kube-controller-manager, kube-scheduler."""
    containers: Path
    """A tree like `/` with containerd, runc and the network plugins."""

    @property
    def search_path(self) -> str:
        """PATH for the node's processes."""
        own = [self.control_plane, self.kubernetes, self.containers / "usr/bin", self.containers / "usr/sbin"]
        return os.pathsep.join([*map(str, own), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])


def missing() -> str:
    """Why no node can run on this machine; empty: one can, as far as one can tell without trying."""
    if sys.platform != "linux":
        return "a node needs Linux"
    if os.geteuid() != 0:
        return "a node needs root, for namespaces, mounts and cgroups"
    absent = [name for name in SYSTEM_PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"a node needs {', '.join(absent)} on PATH"
    if not _containers_present() and (shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None):
        return "containerd, runc and the network plugins are taken from Debian packages, and apt-get is not here"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up"],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
        check=False,
    )
    if probe.returncode != 0:
        return f"a node needs private network, mount and process namespaces: {probe.stderr.strip()[-300:]}"
    return ""


def needed() -> bool:
    """Whether something would have to be built or fetched first."""
    return not build.CONTROL_PLANE.built() or not KUBERNETES.built() or not _containers_present()


def ensure(say: Say = say_on_stderr) -> NodePrograms:
    """All programs; builds and fetches those that are not there.

    Raises:
        ControlPlaneUnavailableError, NodeUnavailableError: with what is missing.
    """
    return NodePrograms(build.ensure(say), KUBERNETES.ensure(say), _ensure_containers(say))


def _containers() -> Path:
    key = hashlib.sha256(" ".join((*PACKAGES, *CONTAINER_PROGRAMS)).encode()).hexdigest()[:16]
    return build.cache() / f"containers-{key}"


def _containers_present() -> bool:
    return all((_containers() / name).exists() for name in CONTAINER_PROGRAMS)


def _ensure_containers(say: Say) -> Path:
    target = _containers()
    if not _containers_present():
        with build.locked(target.with_suffix(".lock"), "another process that fetches containerd", say):
            if not _containers_present():
                _fetch_containers(target, say)
    return target


def _fetch_containers(target: Path, say: Say) -> None:
    say(f"fetching {', '.join(PACKAGES)} into {target}; half a minute, once")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="containers-unpacking-") as name:
        folder, tree = Path(name), Path(name) / "tree"
        folder.chmod(0o755)  # else apt's own user cannot write there
        tree.mkdir()
        download = ["apt-get", "download", "--quiet", "--option", "APT::Sandbox::User=root", *PACKAGES]
        if (
            _run(download, folder).returncode != 0
        ):  # a fresh machine has no lists of packages, and old lists name what is gone
            _run(["apt-get", "update", "--quiet", "--quiet"], folder)
            _check(_run(download, folder))
        for package in sorted(folder.glob("*.deb")):
            _check(_run(["dpkg-deb", "--extract", str(package), str(tree)], folder))
        _check(_run([str(tree / "usr/sbin/runc"), "--version"], folder))  # its libraries are the system's
        if target.exists():
            shutil.rmtree(target)
        tree.rename(target)


def _run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)


def _check(result: "subprocess.CompletedProcess[str]") -> None:
    if result.returncode != 0:
        raise NodeUnavailableError(
            f"`{' '.join(map(str, result.args))}` failed; a node's containers need it:\n{result.stderr[-2_000:]}"
        )


def main() -> int:
    """Bring what is needed; 0 also where no node can run, because its tests are skipped there with the reason."""
    if reason := missing():
        say_on_stderr(f"no node here: {reason}")
        return 0
    try:
        print(ensure())
    except (build.ControlPlaneUnavailableError, NodeUnavailableError) as error:
        say_on_stderr(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
