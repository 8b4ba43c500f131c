"""One arm of the demo: a fresh fleet, the same arrivals, one way of routing them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import httpx

from heliotrope.carbon.series import Series
from heliotrope.engine import profiles
from heliotrope_sim.demo.client import LoadGenerator, RequestResult
from heliotrope_sim.demo.conservation import Conservation, conservation, counters, picker_state
from heliotrope_sim.demo.fleet import (
    PickerPorts,
    RunningEngine,
    start_engines,
    start_picker,
    write_endpoints,
    write_regions,
    write_resources,
)
from heliotrope_sim.demo.grids import series_on_the_wall
from heliotrope_sim.demo.joules import RequestJoules, request_joules, true_joules
from heliotrope_sim.demo.levers import ABLATIONS, Lever
from heliotrope_sim.demo.meter import Meter, MeteredEngine, RegionEnergy
from heliotrope_sim.demo.plan import PlannedRequest
from heliotrope_sim.demo.scenario import Scenario
from heliotrope_sim.gateway.config import DESTINATION_HEADER, GatewayConfig
from heliotrope_sim.gateway.process import Gateway

A = TypeVar("A")
B = TypeVar("B")
SETUP_SECONDS = 3.0
LEAD_SECONDS = 1.0
KNOWN_SECONDS = 60.0
NO_PICKER = "127.0.0.1:1"
REFRESH_SECONDS = 0.5
LAST_TURNS_SECONDS = 60.0
"""After the horizon, for answers under way and for turns that a busy machine has delayed."""
SETTLING_SECONDS = 15.0
"""After that, for the picker to settle the energy of the last requests; nothing of it is counted in the arm."""


class ArmName(StrEnum):
    """The two ways of routing."""

    ROUND_ROBIN = "round_robin"
    HELIOTROPE = "heliotrope"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of routing; Heliotrope's may do without a lever."""

    name: ArmName
    without: Lever | None = None
    """None: the arm itself and no ablation."""

    @property
    def key(self) -> str:
        """Names its folder and its entry in the summary."""
        return self.name.value if self.without is None else f"without_{self.without}"

    @property
    def title(self) -> str:
        """For tables and plots."""
        if self.without is Lever.NOTHING:
            return "Heliotrope again"
        if self.without is not None:
            return f"without {ABLATIONS[self.without].title}"
        return "round robin" if self.name is ArmName.ROUND_ROBIN else "Heliotrope"


@dataclass(slots=True)
class ArmState:
    """What an arm shows while it runs and leaves when it has ended."""

    arm: Arm
    engines: tuple[RunningEngine, ...]
    meter: Meter
    intensity: Mapping[str, Series]
    unix_offset_s: float
    start_s: float
    planned: int
    results: list[RequestResult] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    """What the picker explains, where it decides."""
    joules: list[RequestJoules] = field(default_factory=list)
    """Of each answered request, in Heliotrope's arm."""
    conservation: Conservation | None = None
    """The picker's books, in Heliotrope's arm; None: it has none."""
    after_horizon: int = 0
    """Requests that ended after the horizon; their energy after it is not counted."""
    unfinished: int = 0
    """Requests that had not ended when the arm stopped waiting for them."""

    def region_of(self, result: RequestResult) -> str | None:
        """The region that served a request, None if no engine answered."""
        return next((e.region for e in self.engines if e.name == result.engine), None)

    def energy(self, scenario: Scenario) -> dict[str, RegionEnergy]:
        """Energy and grams by region so far."""
        pue = {region.name: region.pue for region in scenario.regions}
        return self.meter.by_region(self.intensity, pue, self.unix_offset_s)


async def run_arm(
    arm: Arm,
    scenario: Scenario,
    planned: Sequence[PlannedRequest],
    folder: Path,
    on_progress: Callable[[ArmState], None],
) -> ArmState:
    """Run one arm to its horizon, and on until its last requests have ended.

    Args:
        arm: how to route.
        scenario: regions, promises, times.
        planned: the requests, the same in every arm, in the order of their times.
        folder: existing folder for configuration and logs of the arm's processes.
        on_progress: called twice a second.

    Raises:
        ChildError, GatewayError: if a process does not come up.
    """
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        wall_start = time.time() + SETUP_SECONDS
        resources = folder / "resources"
        write_resources(scenario, (), resources, wall_start, arm.without or Lever.NOTHING)
        admin_url = ""
        picker_address = NO_PICKER
        # Both take seconds to start, so they do it at once; the picker learns afterwards where the engines are.
        engines, ports = await _both(_engines(stack, scenario, folder), _picker(stack, arm, folder, resources))
        before = await counters(engines)
        write_endpoints(engines, resources)
        if ports is not None:
            admin_url, picker_address = f"http://127.0.0.1:{ports.admin}", f"127.0.0.1:{ports.grpc}"
        gateway = await Gateway.start(
            GatewayConfig(pickers=(picker_address,), baseline=True), directory=folder / "envoy"
        )
        stack.push_async_callback(gateway.stop)
        if ports is not None:
            await gateway.wait_for_pickers()
            await _knows(admin_url, engines)
        if wall_start < time.time() + LEAD_SECONDS:
            wall_start = time.time() + LEAD_SECONDS + 0.5
            write_regions(scenario, resources, wall_start)
        unix_offset = time.time() - loop.time()
        state = ArmState(
            arm=arm,
            engines=tuple(engines),
            meter=_meter(scenario, engines),
            intensity=series_on_the_wall(scenario, wall_start),
            unix_offset_s=unix_offset,
            start_s=wall_start - unix_offset,
            planned=len(planned),
        )
        await _play(state, scenario, planned, gateway, on_progress)
        if arm.without is not None:
            state.decisions = await _decisions(admin_url, len(planned))
        elif arm.name is ArmName.HELIOTROPE:
            state.decisions = await _settled_decisions(admin_url, len(planned))
            books = await picker_state(admin_url)
            state.conservation = conservation(books, before, await counters(engines))
            regions = {engine.name: engine.region for engine in engines}
            state.joules = request_joules(state.results, regions, state.decisions, await true_joules(engines))
        return state


async def _both(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """Wait until both have ended, and raise the first error only then, so that nothing is left half started."""
    one, two = await asyncio.gather(first, second, return_exceptions=True)
    for result in (one, two):
        if isinstance(result, BaseException):
            raise result
    return one, two  # type: ignore[return-value]


async def _engines(stack: AsyncExitStack, scenario: Scenario, folder: Path) -> list[RunningEngine]:
    fleet, engines = await start_engines(scenario, folder)
    stack.push_async_callback(fleet.stop)
    return engines


async def _picker(stack: AsyncExitStack, arm: Arm, folder: Path, resources: Path) -> PickerPorts | None:
    if arm.name is not ArmName.HELIOTROPE:
        return None
    # No gateway looks elsewhere when the arm has ended.
    picker, ports = await start_picker(folder, resources, "--drain-seconds=0")
    stack.push_async_callback(picker.stop)
    return ports


async def _knows(admin_url: str, engines: Sequence[RunningEngine]) -> None:
    """Wait until the picker has read every engine's metrics."""
    async with asyncio.timeout(KNOWN_SECONDS):
        while True:
            endpoints = (await picker_state(admin_url))["endpoints"]
            if len(endpoints) == len(engines) and all(row["running"] is not None for row in endpoints):
                return
            await asyncio.sleep(0.05)


async def _play(
    state: ArmState,
    scenario: Scenario,
    planned: Sequence[PlannedRequest],
    gateway: Gateway,
    on_progress: Callable[[ArmState], None],
) -> None:
    names = [engine.name for engine in state.engines]
    addresses = [engine.address for engine in state.engines]
    # Neighbours in the rotation are in different regions, so that every region sees the same stream.
    order = sorted(range(len(names)), key=lambda i: (int(names[i].rpartition("-")[2]), names[i]))

    def in_rotation(position: int) -> Mapping[str, str]:
        return {DESTINATION_HEADER: addresses[order[position % len(order)]]}

    round_robin = state.arm.name is ArmName.ROUND_ROBIN
    url = gateway.baseline_url if round_robin else gateway.url
    assert url is not None
    generator = LoadGenerator(
        url, headers_for=in_rotation if round_robin else lambda _: {}, on_result=state.results.append
    )
    before_horizon = 0

    async def metered() -> None:
        nonlocal before_horizon
        await state.meter.run(state.start_s, scenario.horizon_seconds)
        before_horizon = len(state.results)

    async def progress() -> None:
        while True:
            on_progress(state)
            await asyncio.sleep(REFRESH_SECONDS)

    ticker = asyncio.create_task(progress())
    try:
        await play_out(generator.run(planned, state.start_s), metered(), LAST_TURNS_SECONDS)
    finally:
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)
    state.after_horizon = len(state.results) - before_horizon
    state.unfinished = len(planned) - len(state.results)
    on_progress(state)


async def play_out(
    load: Coroutine[Any, Any, None], horizon: Coroutine[Any, Any, None], patience_seconds: float
) -> None:
    """Run both until the horizon is reached, and the load on to its end, but no longer than so many seconds after it.

    A turn of a conversation is sent when the one before has been answered: on a busy machine the last ones are under
    way, or not yet sent, when an arm's counted time is over. They have not failed for that.
    """
    playing = asyncio.create_task(load)
    try:
        await horizon
        ended, _ = await asyncio.wait({playing}, timeout=patience_seconds)
        for task in ended:
            task.result()
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


def _meter(scenario: Scenario, engines: Sequence[RunningEngine]) -> Meter:
    host_watts = profiles.load(scenario.profile).host_watts
    return Meter([MeteredEngine(e.name, e.region, e.url, host_watts) for e in engines])


async def _settled_decisions(admin_url: str, limit: int) -> list[dict[str, Any]]:
    """What the picker explains, once it has settled the energy of every request that ended, or given up on some."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + SETTLING_SECONDS
    while True:
        decisions = await _decisions(admin_url, limit)
        if loop.time() >= give_up_s or all(decision["measured"] is not None for decision in decisions):
            return decisions
        await asyncio.sleep(REFRESH_SECONDS)


async def _decisions(admin_url: str, limit: int) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        response = await client.get(f"{admin_url}/debug/decisions", params={"limit": min(limit, 1000)})
        response.raise_for_status()
        decisions: list[dict[str, Any]] = response.json()
        return decisions
