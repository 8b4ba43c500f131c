"""What the driver does while an engine can only wait: for KV from outside, or for memory that others hold."""

import asyncio
from dataclasses import replace

from heliotrope.engine import profiles
from heliotrope_sim.emulator.answers import Answer
from heliotrope_sim.emulator.config import EngineConfig
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.generation import Generation
from heliotrope_sim.emulator.sse import Identity
from heliotrope_sim.engine import ExternalKv, Request
from heliotrope_sim.engine.fixed_point import NANOSECONDS_PER_SECOND

PROFILE = "llama-3.1-70b-h100-tp4"
LONG_NS = 1000 * NANOSECONDS_PER_SECOND


def driver() -> EngineDriver:
    """An engine of ten blocks, fifty times faster than real time."""
    model = replace(profiles.load(PROFILE), kv_capacity_tokens=160, block_size=16)
    return EngineDriver(EngineConfig(name="a", profile=PROFILE, time_scale=50), model)


def generation(request: Request) -> Generation:
    return Generation(
        request=request,
        answer=Answer(0, request.output_tokens, "length"),
        identity=Identity(request.request_id, 0, "m", "f"),
        transport=asyncio.WriteTransport(),
        done=asyncio.get_running_loop().create_future(),
    )


async def test_a_load_is_waited_for_and_its_time_is_idle() -> None:
    d = driver()
    d.start()
    one = generation(Request("one", 100, 2, external=ExternalKv(100, 2 * NANOSECONDS_PER_SECOND, 5_000)))
    d.submit(one)
    await asyncio.wait_for(one.done, 10)
    assert one.sequence is not None
    assert one.sequence.scheduled_ns == one.sequence.queued_ns + 2 * NANOSECONDS_PER_SECOND
    idle_milliwatts = round(d.engine.model.idle_watts * 1000)
    assert d.engine.energy.idle_picojoules >= idle_milliwatts * 2 * NANOSECONDS_PER_SECOND
    assert d.engine.energy.busy_picojoules == one.sequence.picojoules
    assert d.finished["one"].external_tokens == 99
    await d.stop()


async def test_who_waits_for_held_memory_starts_when_it_is_released_and_not_before() -> None:
    d = driver()
    d.start()
    held, waiting = generation(Request("held", 150, 1, hold_ns=LONG_NS)), generation(Request("waiting", 150, 1))
    d.submit(held)
    await asyncio.wait_for(held.done, 10)
    d.submit(waiting)
    await asyncio.sleep(0.05)
    assert waiting.sequence is not None
    assert (waiting.sequence.scheduled_ns, d.engine.num_held, d.engine.num_waiting) == (None, 1, 1)
    before_ns = d.clock.now_ns()
    energy = d.engine.energy.picojoules(d.meter_ns(before_ns))
    assert d.release("held")
    assert not d.release("held")
    assert d.engine.energy.picojoules(d.meter_ns(d.clock.now_ns())) >= energy
    await asyncio.wait_for(waiting.done, 10)
    assert waiting.sequence.scheduled_ns is not None
    assert waiting.sequence.scheduled_ns >= before_ns
    await d.stop()


async def test_who_waits_for_the_memory_of_a_load_starts_when_its_client_leaves() -> None:
    d = driver()
    d.start()
    loading = generation(Request("loading", 150, 1, external=ExternalKv(150, LONG_NS, 1)))
    waiting = generation(Request("waiting", 150, 1))
    d.submit(loading)
    d.submit(waiting)
    await asyncio.sleep(0.05)
    assert (d.engine.num_loading, d.engine.num_waiting) == (1, 2)
    before_ns = d.clock.now_ns()
    d.abort(loading)
    await asyncio.wait_for(waiting.done, 10)
    assert waiting.sequence is not None
    assert waiting.sequence.scheduled_ns is not None
    assert waiting.sequence.scheduled_ns >= before_ns
    await d.stop()


async def test_a_hold_ends_by_itself() -> None:
    d = driver()
    d.start()
    held = generation(Request("held", 150, 1, hold_ns=NANOSECONDS_PER_SECOND))
    waiting = generation(Request("waiting", 150, 1))
    d.submit(held)
    d.submit(waiting)
    await asyncio.wait_for(waiting.done, 10)
    assert held.sequence is not None
    assert held.sequence.finished_ns is not None
    assert waiting.sequence is not None
    assert waiting.sequence.scheduled_ns == held.sequence.finished_ns + NANOSECONDS_PER_SECOND
    assert d.engine.external.expired_holds == 1
    await d.stop()
