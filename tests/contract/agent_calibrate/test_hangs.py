"""A calibration that is dead or hangs, with no agent on the node: clocks come back, and it sets none afterwards."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.contract.agent_calibrate.bench import PATIENCE_S, QUICK, Bench, until
from tests.support.zygote import Started

from heliotrope_agent.state.store import Store

pytestmark = pytest.mark.slow
LONG = (*QUICK, "--window-seconds=100", "--clocks=1410,1200,900,600", "--watchdog-seconds=4")
"""Five seconds a window, and patience for a busy machine."""


def guards(bench: Bench) -> list[int]:
    """Process ids of watchdogs that calibrations on this node started."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"heliotrope_agent.watchdog.guard" in words and str(bench.state).encode() in words:
                found.append(int(path.name))
    return found


def measuring(bench: Bench) -> Started:
    """A calibration that holds a clock, with its watchdog beside it."""
    started = bench.calibrate(*LONG)
    until("it measures at the second clock", lambda: bench.sm_lock_mhz == 1200 or started.ended.is_set())
    assert not started.ended.is_set(), started.text()
    assert len(guards(bench)) == 1
    return started


def put_back(bench: Bench) -> bool:
    return bench.sm_lock_mhz is None and not Store(bench.state).load()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stopped_calibration_is_put_back_by_its_own_watchdog(bench: Bench, number: signal.Signals) -> None:
    started = measuring(bench)
    started.signal(number)
    until("put back", lambda: put_back(bench))
    assert started.wait(10.0) == -signal.SIGKILL, "it cannot write afterwards"
    until("the watchdog has ended too", lambda: not guards(bench))
    assert bench.sm_lock_mhz is None


def test_a_call_of_the_driver_that_hangs_counts_though_the_process_lives(bench: Bench) -> None:
    started = measuring(bench)
    with bench.node.hang("nvmlDeviceSetGpuLockedClocks") as hung:
        until("it hangs at the next clock", lambda: hung.waiting > 0)
        until("put back", lambda: put_back(bench))
        assert started.wait(10.0) in (1, -signal.SIGKILL), "it has ended, or was killed"
    assert "the watchdog puts it back soon" in started.text()
    time.sleep(0.5)
    assert put_back(bench), "the call that hung has set nothing"
    until("the watchdog has ended too", lambda: not guards(bench))


def test_a_reading_that_hangs_ends_it_and_the_process_too(bench: Bench) -> None:
    started = measuring(bench)
    with bench.node.hang("nvmlDeviceGetUtilizationRates"), bench.node.hang("nvmlShutdown"):
        assert started.wait(PATIENCE_S) == 1
        assert "the GPU driver has not answered" in " ".join(started.text().split())
        assert put_back(bench)
        assert not guards(bench)


def test_an_energy_counter_that_hangs_ends_the_measurement(bench: Bench) -> None:
    started = measuring(bench)
    with bench.node.hang("nvmlDeviceGetTotalEnergyConsumption") as hung:
        until("it hangs", lambda: hung.waiting > 0)
        until("put back", lambda: put_back(bench))
    assert started.wait(PATIENCE_S) in (1, -signal.SIGKILL)
    until("the watchdog has ended too", lambda: not guards(bench))


def test_an_agents_watchdog_takes_over_from_a_stopped_calibration(bench: Bench) -> None:
    started = measuring(bench)
    watchdog = bench.heliotrope(
        "agent", "--watchdog", f"--state-folder={bench.state}", "--watchdog-seconds=4", "--look-seconds=0.1"
    )
    time.sleep(5.0)
    assert not started.ended.is_set(), "a calibration that lives is none of its business"
    assert bench.sm_lock_mhz is not None
    for each in guards(bench):
        os.kill(each, signal.SIGKILL)
    started.signal(signal.SIGSTOP)
    until("put back", lambda: put_back(bench))
    assert started.wait(10.0) == -signal.SIGKILL
    assert "killed the silent process" in watchdog.text()
    watchdog.signal(signal.SIGTERM)
    assert watchdog.wait(PATIENCE_S) == 0


def test_a_long_measurement_is_no_hang(bench: Bench) -> None:
    """A window is twice as long as the watchdog's patience."""
    started = bench.calibrate(*QUICK, "--clocks=1410", "--window-seconds=200", "--watchdog-seconds=5")
    assert started.wait(2 * PATIENCE_S) == 0, started.text()
    assert put_back(bench)
    assert not guards(bench)


def test_a_watchdog_that_dies_is_started_again_before_the_next_clock(bench: Bench) -> None:
    started = measuring(bench)
    (first,) = guards(bench)
    os.kill(first, signal.SIGKILL)
    until("the next clock", lambda: bench.sm_lock_mhz == 900 or started.ended.is_set())
    (second,) = guards(bench)
    assert second != first
    started.signal(signal.SIGTERM)
    assert started.wait(15.0) == 143, started.text()
    assert put_back(bench)
    until("the watchdog has ended too", lambda: not guards(bench))


@pytest.mark.parametrize("killed", [False, True], ids=["noticed", "killed at once"])
def test_a_state_folder_that_is_removed_has_the_clock_put_back(bench: Bench, killed: bool) -> None:
    started = measuring(bench)
    if killed:
        started.signal(signal.SIGSTOP)
    shutil.rmtree(bench.state)
    if killed:
        started.signal(signal.SIGKILL)
    until("put back", lambda: bench.sm_lock_mhz is None)
    assert started.wait(PATIENCE_S) == (-signal.SIGKILL if killed else 1)
    assert bench.sm_lock_mhz is None
    until("the watchdog has ended too", lambda: not guards(bench))
