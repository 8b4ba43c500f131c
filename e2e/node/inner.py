"""First process of a node's own namespaces: mounts, network, keys, then the node's programs, which it starts again when
they end.

Started by `outer.py` with `settings.json` in the node's folder; that file and the folder are all it knows. Only the
standard library is needed. Everything a node writes is in its folder: /var is an overlay, /run a tmpfs, and what the
kubelet would set for the whole machine lands in files.
"""

import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

ADDRESS = "192.168.77.1"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
"""The first of `SERVICES`. The API server listens there itself, so pods find it without kube-proxy."""
PODS = "10.244.0.0/24"
SYSCTLS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
"""Values that the kubelet wants; they hold for the whole machine, so it is shown files instead."""
FOLDERS = ("/var/lib/kubelet", "/var/lib/heliotrope")
"""Not in the overlay of /var: sockets there are reached from outside by their path in the node's folder."""
CONTROLLERS = (
    "daemonset-controller", "deployment-controller", "disruption-controller", "garbage-collector-controller",
    "job-controller", "namespace-controller", "node-lifecycle-controller", "pod-garbage-collector-controller",
    "replicaset-controller", "root-ca-certificate-publisher-controller", "serviceaccount-controller",
    "taint-eviction-controller", "validatingadmissionpolicy-status-controller",
)  # fmt: skip
"""What tests need; each one less leaves the machine more."""
UNUSED_SNAPSHOTTERS = ("aufs", "btrfs", "devmapper", "zfs")
READY_SECONDS = 90.0
LOOK_SECONDS = 0.05
RESTART_SECONDS = 0.3


def run(*command: str, stdin: bytes | None = None) -> None:
    """Run a command of the set-up.

    Raises:
        RuntimeError: with what it printed, if it fails.
    """
    result = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}`: {result.stdout.decode(errors='replace')[-2_000:]}")


def mounts(folder: Path) -> None:
    """Give the node a /sys, /run and /var of its own."""
    cgroups = folder / "mount-cgroup"
    cgroups.mkdir(exist_ok=True)
    run("mount", "--rbind", "/sys/fs/cgroup", str(cgroups))
    run("umount", "--lazy", "/sys")
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("mount", "--rbind", str(cgroups), "/sys/fs/cgroup")
    run("umount", "--lazy", str(cgroups))
    run("mount", "--make-rshared", "/")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    upper, work = folder / "var", folder / "var-work"
    shutil.rmtree(work, ignore_errors=True)  # a kept folder's was of another mount
    for path in (upper, work):
        path.mkdir(exist_ok=True)
    run("mount", "-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "overlay", "/var")
    for name in FOLDERS:
        own = folder / Path(name).name
        own.mkdir(exist_ok=True)
        Path(name).mkdir(exist_ok=True)
        run("mount", "--bind", str(own), name)
    for name, value in SYSCTLS.items():
        file = folder / f"sysctl-{name.replace('/', '-')}"
        file.write_text(f"{value}\n")
        run("mount", "--bind", str(file), f"/proc/sys/{name}")


def network() -> None:
    """Two ends of a cable, because a dummy link is not to be had everywhere."""
    run("ip", "link", "add", "node0", "type", "veth", "peer", "node1")
    for link in ("lo", "node0", "node1"):
        run("ip", "link", "set", link, "up")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "node0")
    run("ip", "address", "add", f"{API_SERVICE}/32", "dev", "lo")
    run("ip", "route", "add", "default", "via", "192.168.77.254")


def keys(folder: Path) -> None:
    """Write keys, tokens and kubeconfigs; a kept folder's stay."""
    pki = folder / "pki"
    if pki.exists():
        return
    pki.mkdir(mode=0o700)
    run("openssl", "genrsa", "-out", str(pki / "sa.key"), "2048")
    subject = ["-subj", "/O=system:masters/CN=apiserver", "-keyout", str(pki / "kubelet-client.key")]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "99"]
    run(*request, *subject, "-out", str(pki / "kubelet-client.crt"))
    users = {"admin": ("admin", "system:masters"), "node": ("system:node:node1", "system:nodes")}
    lines = []
    for file, (user, group) in users.items():
        token = secrets.token_hex(16)
        lines.append(f"{token},{user},{file},{group}")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "node",
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": file}}],
            "users": [{"name": file, "user": {"token": token}}],
            "clusters": [
                {
                    "name": "node",
                    "cluster": {"server": f"https://{ADDRESS}", "certificate-authority": str(pki / "apiserver.crt")},
                }
            ],
        }
        _json(pki / f"{file}.conf", config)
    (pki / "tokens.csv").write_text("\n".join(lines) + "\n")


def configurations(folder: Path, programs: str, cgroup: str, pause: str) -> None:
    """Write what containerd, the network plugin and the kubelet read."""
    cni = folder / "cni"
    cni.mkdir(exist_ok=True)
    bridge = {
        "type": "bridge",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "subnet": PODS, "dataDir": "/run/cni"},
    }
    _json(cni / "node.conflist", {"cniVersion": "1.0.0", "name": "node", "plugins": [bridge]})
    (folder / "containerd.toml").write_text(
        f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = {json.dumps([f"io.containerd.snapshotter.v1.{name}" for name in UNUSED_SNAPSHOTTERS])}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
cni = {{bin_dir = "{programs}/usr/lib/cni", conf_dir = "{cni}"}}
"""
    )
    (folder / "resolv.conf").touch()
    _json(
        folder / "kubelet.yaml",
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroup,
            "failSwapOn": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "authentication": {"x509": {"clientCAFile": str(folder / "pki" / "kubelet-client.crt")}},
            "clusterDNS": [ADDRESS],  # nobody answers there
            "resolvConf": str(folder / "resolv.conf"),
            "volumePluginDir": str(folder / "volume-plugins"),
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "nodeStatusUpdateFrequency": "1s",  # else devices are known to the scheduler after up to ten
            # A container that ends again and again would otherwise be started ever later, up to five minutes.
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        },
    )


def cgroups(name: str) -> None:
    """Make the node's control groups, in each hierarchy of version 1 or in the one of version 2."""
    root = Path("/sys/fs/cgroup")
    unified = (root / "cgroup.controllers").exists()
    for hierarchy in (
        [root] if unified else [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    ):
        own = hierarchy / name
        own.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not unified and (hierarchy / file).exists():
                (own / file).write_text((hierarchy / file).read_text())


class Programs:
    """The node's programs: started in order, and started again whenever they end, as systemd would."""

    def __init__(self, folder: Path, commands: dict[str, list[str]]) -> None:
        self._folder = folder
        self._commands = commands
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended_at: dict[str, float] = {}

    def start(self, name: str) -> None:
        """Start one; its log is appended to."""
        with (self._folder / "log" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        pid = self._folder / "pids" / name
        pid.with_suffix(".new").write_text(f"{self._running[name].pid}\n")
        pid.with_suffix(".new").rename(pid)

    def supervise(self) -> None:
        """Bury what ends, and start programs again that are not held back by a file of their name."""
        while True:
            self._bury()
            for name in list(self._commands):
                held = (self._folder / "hold" / name).exists()
                ended = self._ended_at.get(name)
                if ended is not None and not held and time.monotonic() - ended > RESTART_SECONDS:
                    del self._ended_at[name]
                    self.start(name)
            time.sleep(LOOK_SECONDS)

    def _bury(self) -> None:
        """Containers' shims and orphans of theirs end up here, too."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, program in list(self._running.items()):
                if program.pid == pid:
                    program.returncode = 0  # else it would want to be waited for
                    del self._running[name]
                    (self._folder / "pids" / name).unlink(missing_ok=True)
                    self._ended_at[name] = time.monotonic()


def commands(folder: Path, settings: dict[str, Any]) -> dict[str, list[str]]:
    """The programs, in the order of their start."""
    pki = folder / "pki"
    admin = f"--kubeconfig={pki / 'admin.conf'}"
    return {
        "etcd": ["etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"],
        "containerd": ["containerd", "--config", str(folder / "containerd.toml")],
        "kube-apiserver": [
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=443",
            f"--advertise-address={ADDRESS}",
            f"--cert-dir={pki}",
            "--allow-privileged",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'sa.key'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICES}",
            "--profiling=false",
        ],
        "kube-controller-manager": [
            "kube-controller-manager",
            admin,
            "--leader-elect=false",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--root-ca-file={pki / 'apiserver.crt'}",
            f"--service-account-private-key-file={pki / 'sa.key'}",
        ],
        "kube-scheduler": ["kube-scheduler", admin, "--leader-elect=false"],
        "device-plugin": [*settings["device_plugin"], str(folder / "gpus.json")],
        "kubelet": [
            "kubelet",
            f"--kubeconfig={pki / 'node.conf'}",
            f"--config={folder / 'kubelet.yaml'}",
            "--hostname-override=node1",
            f"--node-ip={ADDRESS}",
        ],
    }


def import_images(folder: Path) -> None:
    """Give containerd the images that lie in the folder; a kept folder's are there already."""
    deadline = time.monotonic() + READY_SECONDS
    while not Path("/run/containerd/containerd.sock").exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"containerd does not start; see {folder / 'log' / 'containerd.log'}")
        time.sleep(LOOK_SECONDS)
    for archive in sorted((folder / "images").glob("*.tar")):
        run("ctr", "--namespace", "k8s.io", "images", "import", str(archive))
        archive.unlink()


def wait_for_api(folder: Path) -> None:
    """Return when the API server is ready."""
    certificate = folder / "pki" / "apiserver.crt"
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            context = ssl.create_default_context(cafile=str(certificate))
            with urllib.request.urlopen(f"https://{ADDRESS}/readyz", context=context, timeout=5):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the API server is not ready ({error}); see {folder / 'log'}") from error
            time.sleep(2 * LOOK_SECONDS)


def start(folder: Path) -> Programs:
    """Bring the node up as far as its kubelet runs."""
    settings = json.loads((folder / "settings.json").read_text())
    for name in ("log", "pids", "hold", "images"):
        (folder / name).mkdir(exist_ok=True)
    for stale in (folder / "pids").iterdir():
        stale.unlink()
    os.environ["PATH"] = settings["path"]
    mounts(folder)
    network()
    cgroups(settings["cgroup"])
    keys(folder)
    configurations(folder, settings["containers"], f"/{settings['cgroup']}", settings["pause"])

    programs = Programs(folder, commands(folder, settings))
    for name in ("etcd", "containerd", "kube-apiserver"):
        programs.start(name)
    failures: list[Exception] = []

    def images() -> None:
        try:
            import_images(folder)
        except Exception as error:  # noqa: BLE001 (raised again below, in the main thread)
            failures.append(error)

    importing = threading.Thread(target=images)
    importing.start()
    wait_for_api(folder)
    for name in ("kube-controller-manager", "kube-scheduler"):
        programs.start(name)
    importing.join()
    if failures:
        raise failures[0]
    for name in ("device-plugin", "kubelet"):
        programs.start(name)
    return programs


def _json(path: Path, content: Any) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))


def main() -> int:
    """Run until killed; `ready` or `failed` in the folder tells what became of the start."""
    folder = Path(sys.argv[1])
    try:
        programs = start(folder)
    except Exception as error:  # noqa: BLE001 (told to whoever waits for the node)
        (folder / "failed").write_text(f"{type(error).__name__}: {error}\n")
        return 1
    (folder / "ready").touch()
    programs.supervise()
    return 0


if __name__ == "__main__":
    sys.exit(main())
