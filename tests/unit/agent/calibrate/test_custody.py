"""Signs of life of a calibration: from its sweep, and not from a process that lives on while the sweep hangs."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.agent.control.world import MemoryDriver, gpu

from heliotrope_agent.calibrate import custody
from heliotrope_agent.calibrate.custody import RESTORE_SECONDS, STEP_SECONDS, Custody
from heliotrope_agent.calibrate.engine import CONNECT_SECONDS, PAGE_SECONDS
from heliotrope_agent.calibrate.errors import CalibrationError
from heliotrope_agent.calibrate.gpus import DRIVER_SECONDS
from heliotrope_agent.state import heartbeat
from heliotrope_agent.state.store import Store


class Bench:
    """A calibration's hands on a GPU in memory, with a watchdog that is a process."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 1000.0
        self.folder = folder
        self.driver = MemoryDriver([gpu(0)])
        (self.device,) = self.driver.devices()
        self.custody = Custody(self.driver, folder, watchdog_s=3600.0, clock=lambda: self.now_s)

    @property
    def beat_s(self) -> float | None:
        found = heartbeat.read(self.folder / heartbeat.AGENT)
        return None if found is None else found.at_s


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.custody._guard.end()


def test_signs_of_life_end_when_the_sweep_gets_on_no_more(bench: Bench) -> None:
    with bench.custody as held:
        assert bench.beat_s == 1000.0
        bench.now_s += STEP_SECONDS - 1.0
        held.beat()
        assert bench.beat_s == bench.now_s
        last_s = bench.now_s
        for _ in range(5):
            bench.now_s += 1.0
            held.beat()
        assert bench.beat_s == last_s
        held.progressed()
        assert bench.beat_s == bench.now_s
    assert bench.beat_s is None


def test_steps_that_may_be_long_take_no_longer_than_one_may() -> None:
    assert max(DRIVER_SECONDS, CONNECT_SECONDS + PAGE_SECONDS, 2 * RESTORE_SECONDS) < STEP_SECONDS


def test_a_call_that_hangs_beyond_the_end_is_left_to_the_watchdog(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sets when it goes on is not forgotten: originals, lock and signs of life stay."""
    monkeypatch.setattr(custody, "RESTORE_SECONDS", 0.2)
    released, entered = threading.Event(), threading.Event()
    lock_sm_clock = bench.driver.lock_sm_clock

    def slow(uuid: str, mhz: int) -> None:
        entered.set()
        released.wait(30.0)
        lock_sm_clock(uuid, mhz)

    monkeypatch.setattr(bench.driver, "lock_sm_clock", slow)
    with bench.custody as held:
        thread = threading.Thread(target=held.lock_clock, args=([bench.device.uuid], 600))
        thread.start()
        assert entered.wait(30.0)
        guarding = held._guard._process
        assert guarding is not None
    alive = Path(f"/proc/{guarding.pid}").exists()
    os.kill(guarding.pid, signal.SIGKILL)
    os.waitpid(guarding.pid, 0)
    assert alive
    assert set(Store(tmp_path).load()) == {bench.device.uuid}
    assert bench.beat_s is not None
    released.set()
    thread.join(30.0)
    assert set(Store(tmp_path).load()) == {bench.device.uuid}


def test_a_call_that_was_merely_slow_is_waited_for(bench: Bench, tmp_path: Path) -> None:
    entered = threading.Event()
    lock_sm_clock = bench.driver.lock_sm_clock
    thread: threading.Thread | None = None

    def slow(uuid: str, mhz: int) -> None:
        entered.set()
        threading.Event().wait(0.5)
        lock_sm_clock(uuid, mhz)

    bench.driver.lock_sm_clock = slow  # type: ignore[method-assign]
    with bench.custody as held:
        thread = threading.Thread(target=held.lock_clock, args=([bench.device.uuid], 600))
        thread.start()
        assert entered.wait(30.0)
    thread.join(30.0)
    assert bench.driver.as_found()
    assert Store(tmp_path).load() == {}


def test_without_a_watchdog_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliotrope_agent.calibrate.guard.PROGRAM", "heliotrope_agent.no_such_module")
    bench = Bench(tmp_path)
    with pytest.raises(CalibrationError, match="watchdog does not start"), bench.custody:
        pass
    monkeypatch.undo()
    with Bench(tmp_path).custody:  # the lock is free again
        pass
