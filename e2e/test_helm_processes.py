"""Operator and picker as the chart runs them: its arguments, its configuration, its service accounts, no more rights.

They run as local processes on the API server, because no kubelet starts the pods here.
"""

import contextlib
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2e import our_crds
from tests.support.chart import CHART
from tests.support.controlplane import Cluster, Process, free_ports
from tests.support.picker_cluster import pods_of, policy, pool, region

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

PATIENCE_S = 60.0
POOL = "llama"


class Installed:
    """A release in a namespace of its own, with a pool in another."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        run = uuid.uuid4().hex[:8]
        self.cluster = cluster
        self.folder = folder
        self.system = cluster.namespace(f"heliotrope-{run}")
        self.models = cluster.namespace(f"models-{run}")
        self.region = f"spain-{run}"
        cluster.apply(pool(self.models, POOL))
        values = f"pool.name={POOL},pool.namespace={self.models}"
        cluster.helm("install", "heliotrope", str(CHART), "--namespace", self.system, "--set", values)
        our_crds.wait(cluster)
        self.node = f"node-{run}"
        labels = {"topology.kubernetes.io/region": self.region}
        cluster.apply(
            region(self.region, topologyRegions=[self.region]),
            policy(self.models, "green", pool_name=POOL),
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node, "labels": labels}},
        )

    @contextlib.contextmanager
    def running(self, deployment: str, namespace: str, **changed: str) -> Iterator[Path]:
        """The container's command as a local process under the pod's service account; yields its log.

        `changed` replaces values of flags that only make sense in a pod: ports and mounted files.
        """
        pod = self.cluster.get("deployment", deployment, "--namespace", namespace)["spec"]["template"]["spec"]
        container = pod["containers"][0]
        fields = {"metadata.name": f"{deployment}-0", "metadata.namespace": namespace}
        variables = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
        environment = [f"{name}={fields[path]}" for name, path in variables.items()]
        flags = {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
        arguments = [each for each in container["args"] if each.partition("=")[0] not in flags]
        assert len(arguments) == len(container["args"]) - len(flags), "every changed flag is one that the chart sets"
        account = self.cluster.service_account_kubeconfig(namespace, pod["serviceAccountName"])
        log = self.folder / f"{deployment}.log"
        command = ["env", *environment, sys.executable, "-m", "heliotrope_cli.main", *arguments]
        command += [f"{flag}={value}" for flag, value in flags.items()]
        command += ["--host=127.0.0.1", f"--kubeconfig={account}"]
        process = Process(command, log)
        try:
            yield log
        finally:
            process.stop()

    def remove(self) -> None:
        self.cluster.helm("uninstall", "heliotrope", "--namespace", self.system, "--ignore-not-found")
        our_crds.remove(self.cluster)
        self.cluster.kubectl("delete", "node", self.node)
        self.cluster.kubectl("delete", "namespace", self.system, self.models, "--wait=false")


@pytest.fixture(scope="module")
def installed(bare_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    installed = Installed(bare_cluster, tmp_path_factory.mktemp("installed"))
    try:
        yield installed
    finally:
        installed.remove()


def eventually(check: Callable[[], Any], log: Path) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if answer := check():
                return answer
        assert time.monotonic() < deadline, log.read_text()[-3_000:]
        time.sleep(0.2)


def refusals(log: Path) -> list[str]:
    """Log lines that tell of a missing right; each line is a JSON object, as the chart asks for."""
    lines = log.read_text().splitlines()
    assert lines
    assert all(json.loads(line)["level"] for line in lines)
    return [line for line in lines if "403" in line or "forbidden" in line.lower() or "may not" in line]


def test_the_operator_reconciles_with_its_own_rights(installed: Installed) -> None:
    metrics, health = free_ports(2)
    with installed.running(
        "heliotrope-operator", installed.system, metrics_port=str(metrics), health_port=str(health)
    ) as log:

        def fresh() -> bool:
            found = installed.cluster.get("regionprofile", installed.region)
            return bool(found.get("status", {}).get("freshness") == "Fresh")

        def accepted() -> bool:
            found = installed.cluster.get("carbonpolicy", "green", "--namespace", installed.models)
            ancestors = found.get("status", {}).get("ancestors", [])
            return any(each["status"] == "True" for ancestor in ancestors for each in ancestor["conditions"])

        eventually(fresh, log)
        eventually(accepted, log)
        assert httpx.get(f"http://127.0.0.1:{health}/healthz", trust_env=False).status_code == 200
        assert "heliotrope_" in httpx.get(f"http://127.0.0.1:{metrics}/metrics", trust_env=False).text
        lease = installed.cluster.get("lease", "heliotrope-operator", "--namespace", installed.system)
        assert lease["spec"]["holderIdentity"]
    assert refusals(log) == []


def test_the_picker_serves_with_its_own_rights(installed: Installed) -> None:
    config = installed.folder / "config.yaml"
    found = installed.cluster.get("configmap", "heliotrope-picker", "--namespace", installed.models)
    config.write_text(found["data"]["config.yaml"])
    grpc, health, metrics = free_ports(3)
    with (
        installed.running(
            "heliotrope-picker",
            installed.models,
            config_file=str(config),
            grpc_port=str(grpc),
            health_port=str(health),
            metrics_port=str(metrics),
        ) as log,
        pods_of(installed.cluster, installed.models) as pods,
    ):
        pods.create("llama-0", "127.0.0.1", node=installed.node)

        def state_with_endpoint() -> dict[str, Any] | None:
            state: dict[str, Any] = httpx.get(f"http://127.0.0.1:{metrics}/debug/state", trust_env=False).json()
            return state if state["endpoints"] else None

        state = eventually(state_with_endpoint, log)
        assert [each["region"] for each in state["endpoints"]] == [installed.region], "by the label of its node"
        assert state["source_healthy"] is True
        policy = state["policy"]
        assert (policy["name"], policy["enforce"]) == (f"{installed.models}/green", False)
        assert (policy["revision"], policy["outdated_because"]) == ("generation 1", None)
        assert [each["name"] for each in state["regions"]] == [installed.region]
        assert httpx.get(f"http://127.0.0.1:{metrics}/readyz", trust_env=False).status_code == 200
    assert refusals(log) == []
