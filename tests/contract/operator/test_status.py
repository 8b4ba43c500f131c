"""`heliotrope status` on a real API server: what the operator wrote, waiting Jobs, and savings through its proxy."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.contract.operator.cluster import Api, conditions
from tests.contract.operator.process import OperatorProcess, eventually
from tests.support.own_address import own_address
from tests.unit.cli.statuses import SAVED

from heliotrope_operator.resources import RESOURCES, Kind

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


def status(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heliotrope_cli.main", "status", f"--kubeconfig={kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def found(kubeconfig: Path, *arguments: str) -> dict[str, Any]:
    printed = status(kubeconfig, *arguments, "--json")
    assert printed.returncode == 0, printed.stderr
    document: dict[str, Any] = json.loads(printed.stdout)
    return document


class _Metrics(BaseHTTPRequestHandler):
    """A picker's metrics port."""

    def do_GET(self) -> None:
        body = SAVED.encode() if self.path == "/metrics" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def picker(api: Api) -> Iterator[None]:
    """A picker behind the Service `epp`. The API server's proxy goes to addresses of pods that Endpoints name."""
    host = own_address()
    server = ThreadingHTTPServer((host, 0), _Metrics)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    metadata = {"name": "epp", "namespace": api.namespace}
    ports = [{"name": "http-metrics", "port": server.server_port, "protocol": "TCP"}]
    pod = {"kind": "Pod", **metadata}
    api.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "epp", "image": "epp"}]},
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": metadata,
            "subsets": [{"addresses": [{"ip": host, "targetRef": pod}], "ports": ports}],
        },
        *(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**metadata, "name": f"epp-{n}", "labels": {"kubernetes.io/service-name": "epp"}},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            }
            for n, address in enumerate((host, "192.0.2.99"))
        ),
    )
    running = {"status": {"phase": "Running", "podIP": host, "podIPs": [{"ip": host}]}}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps(running))
    api.cluster.kubectl("patch", "pod", "epp", "-n", api.namespace, *patch)
    yield
    server.shutdown()
    server.server_close()


def test_one_page_says_what_a_cluster_does(
    api: Api, operator: OperatorProcess, picker: None, unique: Callable[[str], str]
) -> None:
    assert operator.health()[0] == 200
    name = unique("es")
    api.apply(
        api.region(name),
        api.pool(),
        api.policy("green", holdoutPercent=5),
        api.workload(),
        api.variant("v", regionRef={"name": name}),
    )
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": api.namespace,
            "labels": {"heliotrope.io/deferrable": "true"},
            "annotations": {"heliotrope.io/planned-start": "2036-01-01T00:00:00Z"},
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    }
    api.cluster.apply(job, {**job, "metadata": {"name": "foreign", "namespace": api.namespace}})
    eventually(lambda: conditions(api.get("CarbonPolicy", "green")).get("Accepted") == ("True", "Accepted"))
    eventually(lambda: api.get("RegionProfile", name).get("status", {}).get("freshness") == "Fresh")
    eventually(lambda: "TargetResolved" in conditions(api.get("WorkloadVariant", "v")))

    page = found(api.cluster.kubeconfig, f"--namespace={api.namespace}")
    region = next(each for each in page["regions"] if each["region"] == name)
    assert (region["intensity_g_per_kwh"], region["freshness"], region["source"]) == (140.0, "Fresh", "static")
    (policy,) = page["policies"]
    assert (policy["policy"], policy["accepted"]["status"]) == (f"{api.namespace}/green", "True")
    (variant,) = page["variants"]
    assert (variant["variant"], variant["region"], variant["desired"]) == (f"{api.namespace}/v", name, None)
    assert page["waiting_jobs"]["count"] == 1
    assert page["waiting_jobs"]["next_planned_start"] == "2036-01-01T00:00:00Z"
    (saved,) = page["savings"]
    assert saved["of"] == f"pool {api.namespace}/pool, Service epp"
    assert saved["evidence"] == "measured", saved["says"]
    assert saved["joules_change"] == pytest.approx(-0.2)
    assert saved["other_pickers"] == 1
    assert page["problems"] == []

    text = status(api.cluster.kubeconfig, f"--namespace={api.namespace}").stdout
    assert name in text
    assert "20.0% less energy" in text


def test_where_a_picker_is_not_reached_it_says_so(api: Api, operator: OperatorProcess) -> None:
    assert operator.health()[0] == 200
    api.apply(api.pool(), api.policy("green"))
    (saved,) = found(api.cluster.kubeconfig, f"--namespace={api.namespace}")["savings"]
    assert saved["evidence"] is None
    assert saved["joules_change"] is None
    assert saved["says"] == "unknown: there is no such Service, or it has no port named http-metrics"


def test_who_may_not_ask_pickers_sees_the_rest(
    api: Api, account: Path, operator: OperatorProcess, refusals_allowed: None
) -> None:
    """The operator's own account may list everything, and may not go through proxies."""
    assert operator.health()[0] == 200
    api.apply(api.pool(), api.policy("green"), api.variant("v"))
    page = found(account, f"--namespace={api.namespace}")
    assert [each["variant"] for each in page["variants"]] == [f"{api.namespace}/v"]
    (saved,) = page["savings"]
    assert f"you need `get` on services/proxy in {api.namespace}" in saved["says"]


def test_who_may_see_nothing_is_told_what_is_missing(api: Api, refusals_allowed: None) -> None:
    api.cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": api.namespace}}
    )
    nobody = api.cluster.service_account_kubeconfig(api.namespace, "nobody")
    page = found(nobody)
    assert page["policies"] is None
    assert page["regions"] is None
    plural = RESOURCES[Kind.REGION_PROFILE].plural
    assert any(f"you need `list` on {plural} of heliotrope.io" in each for each in page["problems"])
    printed = status(nobody)
    assert printed.returncode == 0
    assert "unknown, see below" in printed.stdout
