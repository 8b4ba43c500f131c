"""What the driver does between the event loop's turns, when nobody else has had a chance to act."""

import asyncio
import time
from dataclasses import replace

import pytest

from heliotrope.engine import profiles
from heliotrope_sim.emulator.answers import Answer
from heliotrope_sim.emulator.config import EngineConfig
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.generation import Generation
from heliotrope_sim.emulator.sse import Identity
from heliotrope_sim.engine import Request, SleepLevel

PROFILE = "llama-3.1-70b-h100-tp4"


def driver(time_scale: float = 50.0) -> EngineDriver:
    model = replace(profiles.load(PROFILE), idle_watts=400.0, sleep_watts=100.0)
    return EngineDriver(EngineConfig(name="a", profile=PROFILE, time_scale=time_scale), model)


def generation(name: str, tokens: int) -> Generation:
    return Generation(
        request=Request(name, 10, tokens),
        answer=Answer(0, tokens, "length"),
        identity=Identity(name, 0, "m", "f"),
        transport=asyncio.WriteTransport(),
        done=asyncio.get_running_loop().create_future(),
    )


def energy(d: EngineDriver) -> int:
    return d.engine.energy.picojoules(d.meter_ns(d.clock.now_ns()))


async def test_the_meter_does_not_run_back_when_a_request_ends_an_idle_time() -> None:
    d = driver()
    d.start()
    time.sleep(0.01)  # noqa: ASYNC251
    before = energy(d)
    d.submit(generation("one", 3))
    assert energy(d) >= before > 0
    await d.stop()


async def test_a_request_starts_when_it_came_however_late_the_loop_is() -> None:
    d = driver()
    d.start()
    await asyncio.sleep(0)
    one = generation("one", 3)
    d.submit(one)
    time.sleep(0.05)  # noqa: ASYNC251
    assert one.sequence is not None
    assert energy(d) == 400_000 * one.sequence.queued_ns
    await one.done
    assert one.sequence.scheduled_ns == one.sequence.queued_ns
    assert d.metrics.step_lateness.total > 0
    # The time that the loop was late is not idle time.
    assert d.engine.energy.idle_picojoules == 400_000 * one.sequence.queued_ns
    await d.stop()


async def test_a_late_engine_serves_each_request_no_earlier_than_it_came() -> None:
    d = driver()
    d.start()
    first, second = generation("first", 2), generation("second", 2)
    d.submit(first)
    await asyncio.sleep(0)
    # The engine finishes in engine time long before the second comes, but has had no turn to notice.
    time.sleep(0.1)  # noqa: ASYNC251
    d.submit(second)
    await asyncio.gather(first.done, second.done)
    assert first.sequence is not None
    assert second.sequence is not None
    assert first.sequence.finished_ns is not None
    assert second.sequence.scheduled_ns == second.sequence.queued_ns > first.sequence.finished_ns
    await d.stop()


async def test_switches_on_a_late_engine_keep_it_alive_and_its_account_whole() -> None:
    d = driver()
    d.start()
    for name, switch in (
        ("clock", lambda: d.set_clock(900)),
        ("sleep", lambda: d.sleep(SleepLevel.DISCARDED)),
        ("wake", d.wake_up),
    ):
        one = generation(name, 50)
        d.submit(one)
        await asyncio.sleep(0)
        time.sleep(0.02)  # noqa: ASYNC251
        switch()
        d.wake_up()
        await one.done
        assert d.running
    end = d.engine.energy.settled_ns
    assert sum(d.engine.energy.split(end)) == d.engine.energy.picojoules(end)
    assert sum(f.joules for f in d.finished.values()) == pytest.approx(d.engine.energy.busy_picojoules / 1e12)
    await d.stop()


async def test_the_page_shows_all_of_the_energy_shared_out_in_whole_millijoules() -> None:
    d = driver()
    for now_ns in range(10**9, 10**9 + 10**7, 10**6 + 7):
        page = d.metrics.page(now_ns)
        shares = [int(x.split()[-1]) for x in page.splitlines() if x.startswith("DCGM_FI_DEV_TOTAL_ENERGY")]
        assert len(shares) == 4
        assert sum(shares) == d.engine.energy.millijoules(now_ns)


async def test_stopping_ends_what_is_in_flight() -> None:
    d = driver(time_scale=0.01)
    d.start()
    one = generation("one", 5)
    d.submit(one)
    await asyncio.sleep(0)
    await d.stop()
    assert one.done.done()
    assert one.finish_reason == "abort"
    assert sum(d.metrics.finished.values()) == 0
    assert not d.running


async def test_finished_requests_are_remembered_up_to_a_bound() -> None:
    d = driver(time_scale=1000)
    d.FINISHED_LIMIT = 3
    d.start()
    for i in range(5):
        one = generation(str(i), 1)
        d.submit(one)
        await one.done
    assert list(d.finished) == ["2", "3", "4"]
    assert d.forgotten == 2
    await d.stop()
