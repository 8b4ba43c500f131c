"""A real Kubernetes API for tests: etcd and kube-apiserver as local processes, or the user's own cluster.

    with ControlPlane.start(folder) as cluster:
        cluster.kubectl("apply", "-f", "crds")

There is no controller manager, scheduler or kubelet: pods are objects that the test itself makes ready, and a deleted
namespace stays `Terminating`, so tests use names of their own.
"""

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from e2e.controlplane import build

READY_SECONDS = 60.0
STOP_SECONDS = 10.0
COMMAND_SECONDS = 180.0
"""The API server looks only every five seconds, for a minute at a time, whether objects of a deleted kind are gone."""
PORT_ATTEMPTS = 3

# The small program in between asks the kernel for it. Between fork and exec no Python may run: where gRPC has been
# used, its fork handlers then close what the child still needs, and the child aborts.
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):  # else it has died before the kernel was asked
    os.execvp(sys.argv[2], sys.argv[2:])
"""


class CommandError(AssertionError):
    """A command against the cluster failed; the message is what it printed."""


class Cluster:
    """A Kubernetes API that a kubeconfig reaches, with administrator's rights."""

    def __init__(self, kubeconfig: Path, folder: Path, programs: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        """For files of this cluster; removed by whoever made it."""
        self.programs = programs
        self._proxy: Process | None = None
        self._proxy_url = ""

    def command(self, program: str, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl or helm as administrator and return what it printed, errors included.

        Raises:
            CommandError: if `check` and the command fails.
        """
        result = subprocess.run(
            [str(self.programs / program), *arguments],
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if check and result.returncode != 0:
            raise CommandError(f"{program} {' '.join(arguments)}:\n{result.stdout}")
        return result.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as administrator; see `command`."""
        return self.command("kubectl", *arguments, stdin=stdin, check=check)

    def helm(self, *arguments: str, check: bool = True) -> str:
        """Run helm as administrator; see `command`."""
        return self.command("helm", *arguments, check=check)

    def get(self, *arguments: str) -> dict[str, Any]:
        """The object (or list) that `kubectl get` finds."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply documents server-side, as the field manager of the tests."""
        text = yaml.safe_dump_all(documents)
        self.kubectl("apply", "--server-side", "--field-manager=tests", "--force-conflicts", "-f", "-", stdin=text)

    def apply_crds(self, *paths: Path) -> None:
        """Apply CustomResourceDefinitions and wait until the API serves them."""
        files = [flag for path in paths for flag in ("-f", str(path))]
        self.kubectl("apply", "--server-side", "--force-conflicts", *files)
        self.kubectl("wait", "--for=condition=Established", f"--timeout={READY_SECONDS:.0f}s", *files)

    def namespace(self, name: str, **labels: str) -> str:
        """Create a namespace and return its name."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        return name

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig that acts as a ServiceAccount with exactly the rights bound to it; the account must exist."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration=24h").strip()
        config = yaml.safe_load(self.kubectl("config", "view", "--raw", "--minify", "--flatten"))
        config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
        config["contexts"][0]["context"]["namespace"] = namespace
        return self._write(f"kubeconfig-{namespace}-{name}", yaml.safe_dump(config))

    def proxy(self) -> str:
        """The base URL of a `kubectl proxy`: plain HTTP with administrator's rights, for many fast requests."""
        if self._proxy is None:
            log = self.folder / "proxy.log"
            log.unlink(missing_ok=True)  # an earlier proxy's tells its port
            self._proxy = Process(
                [str(self.programs / "kubectl"), "proxy", "--port=0"], log, kubeconfig=self.kubeconfig
            )
            self._proxy.wait_until(lambda: "Starting to serve on" in log.read_text(), READY_SECONDS)
            self._proxy_url = f"http://{log.read_text().split('Starting to serve on ')[1].split()[0]}"
        return self._proxy_url

    def stop(self) -> None:
        """End what was started; the user's own cluster keeps running."""
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ExternalCluster(Cluster):
    """The cluster of HELIOTROPE_TEST_KUBECONFIG."""

    @classmethod
    def connect(cls, kubeconfig: Path, folder: Path) -> Self:
        """Use a running cluster. kubectl and helm come from PATH, or are built."""
        clients = build.clients_on_path()
        if len(clients) == 2:
            programs = folder / "bin"
            programs.mkdir()
            for name, path in clients.items():
                (programs / name).symlink_to(path)
        else:
            programs = build.ensure()
        cluster = cls(kubeconfig, folder, programs)
        cluster.kubectl("version")
        return cluster


class ControlPlane(Cluster):
    """etcd and kube-apiserver as child processes that end with this one.

    Start and restart it from the main thread: on Linux the children end when the thread that started them does.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder / "kubeconfig", folder, programs)
        self._etcd: Process | None = None
        self._apiserver: Process | None = None
        self._etcd_url = ""
        self._port = 0

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Start a control plane that keeps its data in a folder; returns when it is ready (about five seconds)."""
        cluster = cls(folder, build.ensure())
        _write_service_account_key(folder / "sa.key")
        (folder / "tokens.csv").write_text("administrator,admin,admin,system:masters\n")
        try:
            for attempt in range(PORT_ATTEMPTS):
                try:
                    cluster._start_all(folder / f"etcd-{attempt}")
                    break
                except ProcessEndedError:  # another process may have taken a port that was free
                    cluster.stop()
                    if attempt == PORT_ATTEMPTS - 1:
                        raise
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def stop_apiserver(self) -> None:
        """End the API server, so that clients lose their connections."""
        if self._apiserver is not None:
            self._apiserver.stop()
            self._apiserver = None

    def start_apiserver(self) -> None:
        """Start the API server again at the same address with the same data."""
        if self._apiserver is not None:
            raise RuntimeError("the API server is running")
        folder = self.folder
        arguments = [
            str(self.programs / "kube-apiserver"),
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={folder / 'certs'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            # No controller manager creates the default service accounts that this plugin would want for every pod.
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
        ]
        self._apiserver = Process(arguments, folder / "apiserver.log")
        self._apiserver.wait_until(self._ready, READY_SECONDS)

    def restart_apiserver(self) -> None:
        """Cut every connection and come back at the same address with the same data."""
        self.stop_apiserver()
        self.start_apiserver()

    def compact(self) -> None:
        """Forget old revisions: after the next restart, a watch from one of them is answered with 410 Gone."""
        revision = self._etcd_call("kv/range", {"key": "AA=="})["header"]["revision"]
        self._etcd_call("kv/compaction", {"revision": revision, "physical": True})

    def stop(self) -> None:
        """End all processes."""
        super().stop()
        self.stop_apiserver()
        if self._etcd is not None:
            self._etcd.stop()
            self._etcd = None

    def _start_all(self, data: Path) -> None:
        client, peer, self._port = free_ports(3)
        self._etcd_url = f"http://127.0.0.1:{client}"
        arguments = [
            str(self.programs / "etcd"),
            f"--data-dir={data}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        self._etcd = Process(arguments, self.folder / "etcd.log")
        self._etcd.wait_until(self._etcd_ready, READY_SECONDS)
        user = {"name": "admin", "user": {"token": "administrator"}}
        endpoint = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(self.folder / "certs" / "apiserver.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": endpoint}],
            "users": [user],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }
        self._write("kubeconfig", yaml.safe_dump(config))
        self.start_apiserver()

    def _etcd_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(_fetch(f"{self._etcd_url}/health"))
        return False

    def _ready(self) -> bool:
        certificate = self.folder / "certs" / "apiserver.crt"
        with contextlib.suppress(OSError):
            if certificate.exists():
                context = ssl.create_default_context(cafile=str(certificate))
                url = f"https://127.0.0.1:{self._port}/readyz"
                return _fetch(url, context=context, token="administrator") == b"ok"
        return False

    def _etcd_call(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(_fetch(f"{self._etcd_url}/v3/{method}", body=json.dumps(body).encode()))
        return answer


class ProcessEndedError(RuntimeError):
    """A program ended by itself; the message holds the end of its log."""


class Process:
    """A child process that ends with this one and logs to a file."""

    def __init__(self, arguments: list[str], log: Path, *, kubeconfig: Path | None = None) -> None:
        self._name = Path(arguments[0]).name
        self._log = log
        environment = os.environ | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
        with log.open("ab") as file:
            self._child = subprocess.Popen(
                [*_ending_with_this_process(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                process_group=0,  # Ctrl-C reaches the test run alone, which then stops its children in order
            )

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return when `ready()`.

        Raises:
            ProcessEndedError, TimeoutError: with the end of the log.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if self._child.poll() is not None:
                raise ProcessEndedError(f"{self._name} ended with {self._child.returncode}:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._name} is not ready after {seconds:.0f} s:\n{self._tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask the process to end, then make it."""
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]


def _ending_with_this_process() -> list[str]:
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def open_cluster(folder: Path | None = None) -> Cluster:
    """The cluster that HELIOTROPE_TEST_KUBECONFIG names, else a fresh control plane."""
    folder = folder or Path(tempfile.mkdtemp(prefix="heliotrope-controlplane-"))
    given = os.environ.get(build.KUBECONFIG_VARIABLE)
    return ExternalCluster.connect(Path(given), folder) if given else ControlPlane.start(folder)


def _write_service_account_key(path: Path) -> None:
    """Any RSA key signs service account tokens; Go's module cache has none, so openssl or ssh-keygen makes one."""
    if shutil.which("openssl"):
        command = ["openssl", "genrsa", "-out", str(path), "2048"]
    else:
        command = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_SECONDS)


def _fetch(
    url: str, *, body: bytes | None = None, context: ssl.SSLContext | None = None, token: str | None = None
) -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=5, context=context) as answer:
        content: bytes = answer.read()
        return content
