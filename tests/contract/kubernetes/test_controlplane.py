"""The harness itself: what other contract tests rely on holds."""

import json
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.controlplane import Cluster, CommandError, ControlPlane

pytestmark = pytest.mark.controlplane


def test_the_server_reports_a_version_that_clients_can_parse(control_plane: Cluster) -> None:
    version = json.loads(control_plane.kubectl("version", "-o", "json"))["serverVersion"]

    assert (version["major"], version["gitVersion"][:3]) == ("1", "v1.")


def test_a_service_account_has_exactly_the_rights_bound_to_it(control_plane: Cluster, namespace: str) -> None:
    control_plane.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    control_plane.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", "-n", namespace)
    binding = ["create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader"]
    control_plane.kubectl(*binding, "-n", namespace)
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "reader")

    control_plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "pods")
    with pytest.raises(CommandError, match='cannot list resource "secrets"'):
        control_plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "secrets")
    with pytest.raises(CommandError, match="forbidden"):
        control_plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "pods", "-n", "default")


def test_pods_can_be_created_without_a_controller_manager(control_plane: Cluster, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "engine", "namespace": namespace},
        "spec": {"containers": [{"name": "engine", "image": "engine"}]},
    }

    control_plane.apply(pod)

    assert control_plane.get("pod", "engine", "-n", namespace)["spec"]["containers"][0]["name"] == "engine"


def test_objects_survive_a_restart_and_an_old_watch_is_gone(
    restartable_control_plane: ControlPlane, unique_name: Callable[[str], str]
) -> None:
    cluster = restartable_control_plane
    name = cluster.namespace(unique_name("old"))
    old = cluster.get("namespace", name)["metadata"]["resourceVersion"]
    cluster.namespace(unique_name("newer"))
    watch = f"{cluster.proxy()}/api/v1/namespaces?watch=1&resourceVersion={int(old) - 1}&timeoutSeconds=5"

    cluster.compact()
    cluster.restart_apiserver()

    assert cluster.get("namespace", name)["metadata"]["name"] == name
    with urllib.request.urlopen(watch, timeout=10) as answer:
        assert json.loads(answer.readline())["object"]["code"] == 410


def test_a_stopped_api_server_refuses_connections(restartable_control_plane: ControlPlane) -> None:
    cluster = restartable_control_plane

    cluster.stop_apiserver()
    try:
        with pytest.raises(CommandError, match="refused"):
            cluster.kubectl("get", "namespaces")
    finally:
        cluster.start_apiserver()

    cluster.kubectl("get", "namespaces")


def test_the_processes_end_with_the_test_run_however_it_ends(
    restartable_control_plane: ControlPlane, tmp_path: Path
) -> None:
    program = textwrap.dedent(
        """
        import pathlib, sys, time
        from tests.support.controlplane import Process
        child = Process([sys.executable, "-c", "import time; time.sleep(60)"], pathlib.Path(sys.argv[1]))
        print(child._child.pid, flush=True)
        time.sleep(60)
        """
    )
    run = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    child = int(run.stdout.readline())

    run.kill()
    run.wait()
    run.stdout.close()

    assert _ends(child)


def _ends(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_the_proxy_has_administrators_rights(control_plane: Cluster) -> None:
    with urllib.request.urlopen(f"{control_plane.proxy()}/api/v1/secrets", timeout=10) as answer:
        assert json.load(answer)["kind"] == "SecretList"
