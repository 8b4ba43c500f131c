"""An engine and its GPUs: clocks come from them, millijoules go to them, none is lost and none told twice."""

import asyncio
from dataclasses import replace

import pytest

from heliotrope.engine import profiles
from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator.config import EmulatorConfig, EngineConfig
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.gpus import EngineGpus, shared_millijoules
from heliotrope_sim.emulator.nvml import Draw, DriverCallError
from heliotrope_sim.engine import Engine, Request

PROFILE = "llama-3.1-70b-h100-tp4"
MODEL = replace(profiles.load(PROFILE), idle_watts=487.3)


class Memory:
    """Four GPUs of a driver that keeps everything in memory; `broken` makes it refuse."""

    def __init__(self, count: int = 4) -> None:
        self.uuids = tuple(f"GPU-{i}" for i in range(count))
        self.indices = tuple(range(3, 3 + count))
        self.millijoules = [0] * count
        self.told: list[Draw] = []
        self.mhz = 1980
        self.broken = False
        self.closed = False

    def sm_clock_mhz(self) -> int:
        if self.broken:
            raise DriverCallError("GPU is lost")
        return self.mhz

    def draw(self, position: int, draw: Draw) -> None:
        if self.broken:
            raise DriverCallError("GPU is lost")
        assert draw.millijoules >= 0
        self.millijoules[position] += draw.millijoules
        self.told.append(draw)

    def close(self) -> None:
        self.closed = True


class Run:
    """An engine that is stepped by hand, and its GPUs."""

    def __init__(self) -> None:
        self.engine, self.driver, self.now_ns = Engine(MODEL), Memory(), 0
        self.gpus = EngineGpus(self.driver, self.engine, lambda: self.now_ns)

    def step(self) -> None:
        result = self.engine.step(self.now_ns)
        assert result is not None
        self.gpus.stepping(result)
        self.now_ns = result.start_ns + result.duration_ns // 3
        self.gpus.exchange()
        self.now_ns = result.end_ns

    @property
    def shares(self) -> list[int]:
        total = self.engine.energy.millijoules(self.now_ns)
        return [shared_millijoules(total, i, 4) for i in range(4)]


def test_every_millijoule_is_told_once_whenever_it_is_asked() -> None:
    run = Run()
    run.engine.submit(Request("a", 700, 5), 0)
    for pause_ns in (0, 1_234_567, 0, 0, 0):
        run.step()
        run.now_ns += pause_ns
        run.gpus.exchange()
        assert run.driver.millijoules == run.shares
    run.now_ns += 987_654_321
    run.gpus.exchange()
    assert run.driver.millijoules == run.shares
    assert sum(run.shares) == run.engine.energy.millijoules(run.now_ns) > 1_000


def test_the_clock_of_the_driver_holds_from_the_next_step_on_and_for_idle_power() -> None:
    run = Run()
    run.driver.mhz = 990
    run.gpus.exchange()
    assert run.engine.model.clock_mhz == 990
    assert run.engine.energy.watts(0) == pytest.approx(MODEL.at_clock(990).idle_watts, abs=1e-3)
    run.driver.mhz = 100  # below what the engine has
    run.gpus.exchange()
    assert run.engine.model.clock_mhz == MODEL.clock.min_mhz
    run.driver.mhz = 1980
    run.gpus.exchange()
    assert run.engine.model.clock_mhz == 1980


def test_what_work_draws_is_told_with_its_clock_and_kept_while_nothing_runs() -> None:
    run = Run()
    run.driver.mhz = 1200
    run.gpus.exchange()
    run.engine.submit(Request("a", 4_000, 1), 0)
    result = run.engine.step(0)
    assert result is not None
    run.gpus.stepping(result)
    run.now_ns = result.end_ns // 2
    run.gpus.exchange()
    busy = result.picojoules // result.duration_ns // 4
    during = run.driver.told[-1]
    assert (during.busy_milliwatts, during.busy_mhz, during.utilization_percent) == (busy, 1200, 100)
    assert during.milliwatts == pytest.approx(busy, abs=2)
    run.now_ns = result.end_ns + 10
    run.gpus.exchange()
    after = run.driver.told[-1]
    assert (after.busy_milliwatts, after.busy_mhz, after.utilization_percent) == (busy, 1200, 0)
    assert after.milliwatts == pytest.approx(MODEL.at_clock(1200).idle_watts * 1_000 / 4, abs=2)


def test_a_driver_that_fails_loses_nothing_and_leaves_the_clock() -> None:
    run = Run()
    run.engine.submit(Request("a", 700, 3), 0)
    run.step()
    run.driver.broken, run.driver.mhz = True, 345
    run.step()
    run.step()
    assert run.gpus.errors == 2
    assert run.engine.model.clock_mhz == 1980
    run.driver.broken = False
    run.gpus.exchange()
    assert run.driver.millijoules == run.shares
    assert run.engine.model.clock_mhz == 345


async def test_an_idle_engine_follows_and_lets_go_when_it_stops() -> None:
    driver = Memory()
    config = EngineConfig(name="a", profile=PROFILE, time_scale=50)
    engine = EngineDriver(config, MODEL, driver)
    engine.start()
    driver.mhz = 1005
    async with asyncio.timeout(5):
        while engine.engine.model.clock_mhz != 1005:
            await asyncio.sleep(0.005)
    page = engine.page()
    for uuid, index, millijoules in zip(driver.uuids, driver.indices, driver.millijoules, strict=True):
        labels = f'gpu="{index}",UUID="{uuid}",device="nvidia{index}"'
        assert f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}," in page
        (line,) = [each for each in page.splitlines() if each.startswith("DCGM_FI_DEV_TOTAL") and uuid in each]
        assert int(line.rpartition(" ")[2]) == millijoules > 0
    await engine.stop()
    assert driver.closed


@pytest.mark.parametrize(
    ("engines", "path", "problem"),
    [
        ([{"gpu": {"uuids": ["x"]}, "sm_clock_mhz": 900}], "engines.0", "exclude each other"),
        ([{"gpu": {"uuids": ["x", "x"]}}], "engines.0.gpu", "different GPUs"),
        ([{"gpu": {"uuids": []}}], "engines.0.gpu.uuids", "at least 1"),
        ([{"gpu": {"uuids": ["x"]}}, {"gpu": {"uuids": ["x"]}}], "", "cannot share a GPU; x occurs"),
    ],
)
def test_what_cannot_be_is_refused(engines: list[dict[str, object]], path: str, problem: str) -> None:
    data = {"engines": [{"name": f"e{i}", "profile": PROFILE} | each for i, each in enumerate(engines)]}
    with pytest.raises(InvalidInputError) as error:
        EmulatorConfig.from_mapping(data)
    assert error.value.path == path
    assert problem in error.value.problem
