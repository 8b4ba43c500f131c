"""The process before it has an API server."""

import asyncio
import urllib.request
from pathlib import Path

import pytest
from tests.support.controlplane import free_ports
from tests.unit.operator.test_kube import write_kubeconfig

from heliotrope.errors import InvalidInputError
from heliotrope_operator.app import EXIT_STOPPED, operate
from heliotrope_operator.settings import OperatorSettings


def settings(kubeconfig: Path, metrics_port: int = 0) -> OperatorSettings:
    return OperatorSettings(kubeconfig=kubeconfig, host="127.0.0.1", metrics_port=metrics_port, health_port=0)


async def test_it_waits_for_the_api_server_and_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    nobody, port = free_ports(2)
    write_kubeconfig(tmp_path / "config", nobody, "token")
    stop = asyncio.Event()
    running = asyncio.create_task(operate(settings(tmp_path / "config", port), stop))
    await asyncio.sleep(0.3)

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read())

    assert 'heliotrope_kubernetes_requests_total{code="0",method="GET"}' in await asyncio.to_thread(scrape)
    assert not running.done()
    stop.set()
    async with asyncio.timeout(5):
        assert await running == EXIT_STOPPED


async def test_without_credentials_it_ends_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="give a kubeconfig, or run in a pod"):
        await operate(settings(tmp_path / "missing"))
