"""Emulated engines on the stand-in for NVIDIA's driver, through the real nvidia-ml-py."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pynvml
import pytest
from tests.support.nvml.node import FakeNode
from tests.support.nvml.products import A100_40GB, H100_SXM

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator import ServedEngine

Serve = Callable[..., Awaitable[ServedEngine]]
Connect = Callable[[str], httpx.AsyncClient]

COUNT = 4
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "ignore_eos": True}
POWER_CAP = 0x4


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    """Five H100: the last one is nobody's."""
    with FakeNode.create(tmp_path / "gpus", *[H100_SXM] * (COUNT + 1)) as node, node.installed():
        pynvml.nvmlInit()
        yield node
        pynvml.nvmlShutdown()


def handles(node: FakeNode) -> list[Any]:
    return [pynvml.nvmlDeviceGetHandleByUUID(node.uuid(i)) for i in range(COUNT)]


def gpu(node: FakeNode) -> dict[str, Any]:
    return {"uuids": [node.uuid(i) for i in range(COUNT)]}


def counters(node: FakeNode) -> list[int]:
    return [state.energy_millijoules for state in node.states()[:COUNT]]


def shown(page: str) -> list[int]:
    found = re.findall(r"^DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\{.*\} (\d+)$", page, re.MULTILINE)
    return [int(each) for each in found]


async def ask(http: httpx.AsyncClient, count: int, **more: Any) -> None:
    answers = await asyncio.gather(*(http.post("/v1/chat/completions", json=BODY | more) for _ in range(count)))
    assert {answer.status_code for answer in answers} == {200}


async def test_the_counters_gain_what_the_page_says_to_the_millijoule(
    node: FakeNode, serve: Serve, connect: Connect
) -> None:
    began_s, nobodys = time.monotonic(), node.read(COUNT).energy_millijoules
    started = counters(node)
    engine = await serve(gpu=gpu(node))
    at_rest = node.read(COUNT).energy_millijoules - nobodys
    async with connect(engine.url) as http:
        idle: list[int] | None = None
        for mhz in (None, 990, 1500):
            for handle in handles(node):
                if mhz is not None:
                    pynvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
            await ask(http, 6)
            await asyncio.sleep(0.05)
            # No await in between: what one says, the other has.
            page = engine.driver.page()
            gained = [after - before for after, before in zip(counters(node), started, strict=True)]
            told = shown(page)
            assert max(told) - min(told) <= 1
            # Until an engine is attached to a GPU, that draws what it does by itself, which is not the engine's.
            others = [each - own for each, own in zip(gained, told, strict=True)]
            idle = others if idle is None else idle
            assert others == idle
            assert all(0 <= each <= at_rest + 1 for each in idle)
        assert idle is not None
        before = counters(node)
        scraped = shown((await http.get("/metrics")).text)
        after = counters(node)
        assert all(b - own <= each <= a - own for b, each, a, own in zip(before, scraped, after, idle, strict=True))
    gained_by_nobodys = node.read(COUNT).energy_millijoules - nobodys
    assert gained_by_nobodys <= H100_SXM.idle_milliwatts * (time.monotonic() - began_s) + 1


async def test_the_engine_follows_whoever_locks_the_clock(node: FakeNode, serve: Serve, connect: Connect) -> None:
    engine = await serve(gpu=gpu(node))
    async with connect(engine.url) as http:
        assert engine.driver.engine.model.clock_mhz == 1980
        assert (await http.get("/emulator/v1/state")).json()["gpus"] == gpu(node)["uuids"]
        await ask(http, 1)
        fast = (await http.get("/emulator/v1/requests")).json()["requests"][-1]["e2e_seconds"]
        # One of the group: the others wait for it.
        pynvml.nvmlDeviceSetGpuLockedClocks(handles(node)[2], 660, 660)
        async with asyncio.timeout(5):
            while engine.driver.engine.model.clock_mhz != 660:
                await asyncio.sleep(0.005)
        await ask(http, 1)
        slow = (await http.get("/emulator/v1/requests")).json()["requests"][-1]["e2e_seconds"]
        assert slow > 1.3 * fast
        refused = await http.post("/emulator/v1/clock", json={"sm_clock_mhz": 900})
        assert refused.status_code == 409
        assert node.uuid(0) in refused.text
        assert engine.driver.engine.model.clock_mhz == 660


async def test_a_power_limit_slows_work_that_draws_more(
    node: FakeNode, serve: Serve, connect: Connect, model: EngineModel
) -> None:
    engine = await serve(gpu=gpu(node))
    prompt = {"messages": [{"role": "user", "content": "word " * 1_500}], "max_tokens": 1}
    limit = 350_000
    async with connect(engine.url) as http:
        await ask(http, 2, **prompt)
        assert engine.driver.engine.model.clock_mhz == 1980
        for handle in handles(node):
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, limit)
        for i in range(8):  # each step tells the driver more exactly what its clock draws
            await ask(http, 1, **prompt | {"cache_salt": f"{i}"})
        capped = engine.driver.engine.model
        assert node.read(0).clock_event_reasons & POWER_CAP
        assert model.clock.min_mhz < capped.clock_mhz < 1980
        # Work that draws as much as it may, give or take a step of the clock.
        drawn = 1e3 * float(capped.prefill_joules(1_900.0) / capped.prefill_seconds(1_900.0)) / COUNT
        assert drawn == pytest.approx(limit, rel=0.1)
        for handle in handles(node):
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, 700_000)
        async with asyncio.timeout(5):
            # What it knows of work at a low clock tells roughly what it draws at a high one; the next step, exactly.
            while engine.driver.engine.model.clock_mhz < 1_900:
                await ask(http, 1, **prompt)


async def test_its_process_is_on_its_gpus_as_long_as_it_serves(node: FakeNode, serve: Serve) -> None:
    engine = await serve(gpu=gpu(node))
    for handle in handles(node):
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        assert [process.pid for process in running] == [os.getpid()]
    await engine.driver.stop()
    assert [state.engines for state in node.states()] == [0] * (COUNT + 1)
    pynvml.nvmlDeviceGetHandleByIndex(0)  # another client of this process goes on


async def test_what_the_driver_does_not_have_is_named(node: FakeNode, serve: Serve) -> None:
    with pytest.raises(InvalidInputError, match=r"engines\.0\.gpu\.uuids: 1 GPUs; .* runs on 4") as error:
        await serve(gpu={"uuids": [node.uuid(0)]})
    assert error.value.path == "engines.0.gpu.uuids"
    uuids = [*gpu(node)["uuids"][:3], "GPU-0"]
    with pytest.raises(InvalidInputError, match=r"engines\.0\.gpu\.uuids\.3: the driver does not know GPU-0"):
        await serve(gpu={"uuids": uuids})
    assert [state.engines for state in node.states()] == [0] * (COUNT + 1)


def emulator(folder: Path, uuids: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    file = folder / "emulator.json"
    engine = {"name": "a", "profile": "llama-3.1-8b-a100-40gb", "gpu": {"uuids": uuids}}
    file.write_text(json.dumps({"engines": [engine]}))
    return subprocess.Popen(
        [sys.executable, "-m", "heliotrope_sim.emulator", "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_the_gpu_idle(tmp_path: Path) -> None:
    with FakeNode.create(tmp_path / "gpus", A100_40GB) as node:
        with emulator(tmp_path, [node.uuid()], node.environment) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["engines"][0]["name"] == "a"
            assert (node.read().engines, node.read().sm_mhz) == (1, 1410)
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=20)
        assert (node.read().engines, node.read().sm_mhz) == (0, 210)


@pytest.mark.slow
def test_another_driver_than_the_stand_in_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "real.c"
    source.write_text(
        "int nvmlInit_v2(void){return 0;} int nvmlInitWithFlags(unsigned f){return 0;}"
        "int nvmlShutdown(void){return 0;}"
        'const char*nvmlErrorString(int e){return "no";}'
    )
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", tmp_path / "libnvidia-ml.so.1", source],
        check=True,
    )
    for environment, problem in (
        ({"LD_LIBRARY_PATH": str(tmp_path)}, "libnvidia-ml.so.1 is a real driver's (it has no heliotropeFakeAttach)"),
        ({"LD_LIBRARY_PATH": ""}, "no driver answers"),
    ):
        with emulator(tmp_path, ["GPU-0"], environment) as process:
            _, told = process.communicate(timeout=60)
        assert process.returncode == 2
        assert f"engines.0.gpu.uuids: {problem}" in told
        assert "Traceback" not in told
