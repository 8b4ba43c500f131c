"""Emulated engines that say themselves what they draw: their joules are the counter, and the cap holds their clock."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from tests.support.nvml.node import Code, FakeNode
from tests.support.nvml.products import A100_80GB

from heliotrope_agent.driver.nvml import Nvml

SECOND = 1_000_000_000
SW_POWER_CAP = 0x4
ROOT = Path(__file__).parents[4]


def attach(uuid: str, pid: int) -> int:
    return int(pynvml.nvmlLib.heliotropeFakeAttach(uuid.encode(), ctypes.c_uint(pid)))


def detach(uuid: str, pid: int) -> int:
    return int(pynvml.nvmlLib.heliotropeFakeDetach(uuid.encode(), ctypes.c_uint(pid)))


def draw(
    uuid: str,
    pid: int,
    millijoules: int,
    milliwatts: int = 0,
    busy_milliwatts: int = 0,
    busy_mhz: int = 0,
    utilization_percent: int = 0,
) -> int:
    return int(
        pynvml.nvmlLib.heliotropeFakeDraw(
            uuid.encode(),
            ctypes.c_uint(pid),
            ctypes.c_ulonglong(millijoules),
            ctypes.c_uint(milliwatts),
            ctypes.c_uint(busy_milliwatts),
            ctypes.c_uint(busy_mhz),
            ctypes.c_uint(utilization_percent),
        )
    )


@pytest.fixture
def still(node: FakeNode) -> Iterator[FakeNode]:
    with node.time_stands_still():
        yield node


def test_the_counter_is_what_the_engine_says_and_nothing_else(still: FakeNode, driver: Nvml) -> None:
    uuid = still.uuid(0)
    still.load(1000)
    still.advance(SECOND)
    before = still.read().energy_millijoules
    assert attach(uuid, 41) == 0
    still.advance(1_000 * SECOND)
    assert still.read().energy_millijoules == before
    assert draw(uuid, 41, 12_345, 250_000, utilization_percent=80) == 0
    reading = driver.read(uuid)
    assert reading.energy_millijoules == before + 12_345
    assert (reading.power_milliwatts, reading.utilization_percent, reading.processes) == (250_000, 80, (41,))
    still.load(0)
    assert detach(uuid, 41) == 0
    still.advance(10 * SECOND)
    assert still.read().energy_millijoules == before + 12_345 + 457_000, "idle again, at 45.7 W"
    assert driver.read(uuid).processes == ()
    assert detach(uuid, 41) == Code.NOT_FOUND
    assert draw(uuid, 41, 1) == Code.NOT_FOUND


def test_two_engines_on_one_gpu_add_up(still: FakeNode, driver: Nvml) -> None:
    uuid = still.uuid(0)
    before = still.read().energy_millijoules
    still.processes([7, 41])
    assert (attach(uuid, 41), attach(uuid, 42), attach(uuid, 42)) == (0, 0, 0)
    assert (draw(uuid, 41, 100, 90_000, utilization_percent=10), draw(uuid, 42, 23, 110_000)) == (0, 0)
    state = still.read()
    assert (state.engines, state.energy_millijoules, state.power_milliwatts) == (2, before + 123, 200_000)
    assert state.utilization_percent == 10
    assert driver.read(uuid).processes == (7, 41, 42)


def test_the_power_limit_holds_down_the_clock_of_what_the_work_draws(still: FakeNode, driver: Nvml) -> None:
    uuid = still.uuid(0)
    attach(uuid, 41)
    assert driver.read(uuid).sm_clock_mhz == 1410
    draw(uuid, 41, 0, 300_000, busy_milliwatts=300_000, busy_mhz=1410)
    assert driver.read(uuid).sm_clock_mhz == 1410
    driver.set_power_limit(uuid, 200_000)
    held = driver.read(uuid)
    assert held.clock_event_reasons == SW_POWER_CAP
    assert held.sm_clock_mhz is not None
    # Standing power falls to 63 W or so at the clock found, dynamic power from 228 W with V²f.
    share = held.sm_clock_mhz / 1410
    volts = 0.7 + 0.3 * max(0.0, share - 0.6) / 0.4
    standing = 45_700 + 26_300 * (held.sm_clock_mhz - 210) / 1200
    above = (share + 15 / 1410) * (0.7 + 0.3 * max(0.0, share + 15 / 1410 - 0.6) / 0.4) ** 2
    assert standing + 228_000 * share * volts**2 <= 200_000 < standing + 329 + 228_000 * above
    # What it says at the lower clock describes the same work: nothing changes.
    busy = round(standing + 228_000 * share * volts**2)
    draw(uuid, 41, 0, busy, busy_milliwatts=busy, busy_mhz=held.sm_clock_mhz)
    assert driver.read(uuid).sm_clock_mhz == held.sm_clock_mhz
    # Nothing said: as before.
    draw(uuid, 41, 0, 0)
    assert driver.read(uuid).sm_clock_mhz == held.sm_clock_mhz
    driver.lock_sm_clock(uuid, 600)
    assert (driver.read(uuid).sm_clock_mhz, driver.read(uuid).clock_event_reasons) == (600, 0)


def test_what_makes_no_sense_is_refused(still: FakeNode, driver: Nvml) -> None:
    uuid = still.uuid(0)
    assert attach("GPU-0", 41) == Code.NOT_FOUND
    assert attach(uuid, 0) == Code.INVALID_ARGUMENT
    assert attach(uuid, 41) == 0
    assert draw(uuid, 41, 1, utilization_percent=101) == Code.INVALID_ARGUMENT
    assert draw(uuid, 41, 1, busy_milliwatts=100) == Code.INVALID_ARGUMENT
    still.lose(0)
    assert draw(uuid, 41, 1) == Code.GPU_IS_LOST
    still.lose(0, lost=False)
    assert draw(uuid, 41, 1) == 0
    still.reboot()
    assert draw(uuid, 41, 1) == Code.UNINITIALIZED
    driver.devices()
    assert draw(uuid, 41, 1) == Code.NOT_FOUND
    assert attach(uuid, 41) == 0


def test_an_engine_that_dies_is_gone_at_once(node: FakeNode, driver: Nvml) -> None:
    """However it dies, whatever pid it gave; and a fork of it is not it."""
    uuid = node.uuid(0)
    program = (
        "import ctypes, os, sys, pynvml\n"
        "pynvml.nvmlInit()\n"
        "uuid = sys.argv[1].encode()\n"
        "assert pynvml.nvmlLib.heliotropeFakeAttach(uuid, ctypes.c_uint(1)) == 0\n"
        "draw = pynvml.nvmlLib.heliotropeFakeDraw\n"
        "none = ctypes.c_uint(0)\n"
        "assert draw(uuid, ctypes.c_uint(1), ctypes.c_ulonglong(5000), ctypes.c_uint(111000), none, none, none) == 0\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "    os._exit(0 if pynvml.nvmlDeviceGetPowerUsage(gpu) == 111000 else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print('attached', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    engine = subprocess.Popen(
        [sys.executable, "-c", program, uuid],
        env=os.environ | node.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "attached\n"
        reading = driver.read(uuid)
        assert (reading.power_milliwatts, reading.processes, node.read().engines) == (111_000, (1,), 1)
        counted = driver.energy_millijoules(uuid)
        assert counted == driver.energy_millijoules(uuid)
    finally:
        engine.kill()
        engine.communicate()
    reading = driver.read(uuid)
    assert (reading.power_milliwatts, reading.processes) == (A100_80GB.unloaded_milliwatts, ())
    assert node.read().engines == 0


def test_there_is_room_for_eight(still: FakeNode, driver: Nvml) -> None:
    uuid = still.uuid(0)
    assert [attach(uuid, pid) for pid in range(1, 10)] == [0] * 8 + [7]
    assert detach(uuid, 3) == 0
    assert attach(uuid, 9) == 0
