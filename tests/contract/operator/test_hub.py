"""A member of a hub on a real API server: conditions, metrics, an outage, garbage, and a hub that comes back."""

import contextlib
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.operator.cluster import Api, conditions
from tests.contract.operator.conftest import Start
from tests.contract.operator.process import OperatorProcess, eventually
from tests.support.controlplane import Process, free_ports
from tests.unit.operator.hub.running import certificate

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(240)]


class HubProcess:
    """`heliotrope hub` as a process; its files stand in a folder."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder = folder
        self.port, self._metrics_port = free_ports(2)
        certificate(folder)
        (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
        (folder / "tokens").mkdir()
        (folder / "tokens" / "here").write_text("secret-of-here")
        (folder / "token").write_text("secret-of-here\n")
        self._process: Process | None = None
        self.start()

    def start(self) -> None:
        """Run it, until it answers."""
        files = {"plan": "plan.yaml", "tls-cert": "tls.crt", "tls-key": "tls.key", "tokens": "tokens"}
        flags = [f"--{flag}={self.folder / name}" for flag, name in files.items()]
        flags += [
            f"--port={self.port}",
            f"--metrics-port={self._metrics_port}",
            "--host=127.0.0.1",
            "--valid-seconds=30",
        ]
        log = self.folder / "hub.log"
        self._process = Process([sys.executable, "-m", "heliotrope_cli.main", "hub", *flags], log)
        eventually(lambda: "hub on port" in log.read_text(), "the hub answers")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def member(self) -> dict[str, Any]:
        """Settings of its member."""
        return {
            "url": f"https://localhost:{self.port}",
            "name": "here",
            "ca": str(self.folder / "tls.crt"),
            "token": str(self.folder / "token"),
            "poll_s": 1.0,
        }


@pytest.fixture
def region(api: Api, unique: Callable[[str], str]) -> str:
    name = unique("es")
    api.apply(api.region(name))
    return name


@pytest.fixture
def hub(tmp_path: Path, region: str) -> Iterator[HubProcess]:
    plan = {
        "schema": 1,
        "members": [{"name": "here"}, {"name": "there"}],
        "budgets": [{"region": region, "accelerator": "H100", "accelerators": 20}, {"region": region, "watts": 9_000}],
    }
    folder = tmp_path / "hub"
    folder.mkdir()
    running = HubProcess(folder, plan)
    yield running
    running.stop()


def said(api: Api, region: str) -> tuple[str, str] | None:
    return conditions(api.get("RegionProfile", region)).get("CeilingHolds")


def ceiling(operator: OperatorProcess, region: str) -> float:
    return operator.metric("heliotrope_hub_ceiling_accelerators", {"region": region, "accelerator": "H100"})


def test_ceilings_come_go_stale_and_come_back(api: Api, start: Start, hub: HubProcess, region: str) -> None:
    operator = start(hub=hub.member()).wait_ready()
    api.apply(api.variant("v", target=None, regionRef={"name": region}))
    eventually(lambda: said(api, region) == ("True", "CeilingHolds"))
    eventually(lambda: ceiling(operator, region) == 10, "the whole budget, once the hub knows who needs it")
    assert conditions(api.get("RegionProfile", region))["SignalFresh"] == ("True", "SignalFresh")

    hub.stop()
    eventually(lambda: said(api, region) == ("True", "HubFailing"))
    assert operator.metric("heliotrope_hub_ceilings_hold") == 1
    eventually(lambda: said(api, region) == ("False", "CeilingExpired"), seconds=60)
    assert operator.metric("heliotrope_hub_ceilings_hold") == 0
    assert operator.health()[0] == 200

    hub.start()
    eventually(lambda: said(api, region) == ("True", "CeilingHolds"))
    eventually(lambda: ceiling(operator, region) == 10, "the whole budget, once the hub knows who needs it")
    eventually(lambda: len(api.told(region)) == 3)
    assert [each for each in api.told(region) if each[1].startswith(("Ceiling", "Hub"))] == [
        ("Warning", "HubFailing"),
        ("Warning", "CeilingExpired"),
        ("Normal", "CeilingHolds"),
    ]
    assert "secret-of-here" not in operator.text() + (hub.folder / "hub.log").read_text()


def test_without_its_hub_an_operator_takes_back_what_was_said(
    api: Api, start: Start, hub: HubProcess, region: str
) -> None:
    first = start("first", hub=hub.member()).wait_ready()
    eventually(lambda: said(api, region) == ("True", "CeilingHolds"))
    assert first.terminate()[0] == 0

    start("second").wait_ready()

    eventually(lambda: said(api, region) is None)
    assert conditions(api.get("RegionProfile", region))["SignalFresh"] == ("True", "SignalFresh")


@pytest.mark.parametrize("body", [b"<html>", json.dumps({"schema": 1, "ceilings": []}).encode(), b"x" * 2_000_000])
def test_garbage_is_no_ceiling(api: Api, start: Start, tmp_path: Path, region: str, body: bytes) -> None:
    with answering(tmp_path, body) as member:
        operator = start(hub=member).wait_ready()
        eventually(lambda: operator.metric("heliotrope_hub_polls_total") >= 2)

        assert operator.metric("heliotrope_hub_failing") == 1
        assert operator.metric("heliotrope_hub_ceilings_hold") == 0
        assert said(api, region) is None
        assert operator.health()[0] == 200


@contextlib.contextmanager
def answering(folder: Path, body: bytes) -> Iterator[dict[str, Any]]:
    """A server with TLS that answers everything with one body."""
    certificate(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield {
            "url": f"https://localhost:{server.server_port}",
            "name": "here",
            "ca": str(folder / "tls.crt"),
            "poll_s": 1.0,
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
