"""One short day on a site: clients ask, a planner chooses clocks as load changes, the agent sets them."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import cos, pi
from typing import Any

import numpy as np
from bench.clocks.planner import Planner, Seen, full_watts
from bench.clocks.setups import PROMISES, Fleet, Promised
from e2e.clocks.site import PROFILE, Site
from numpy.typing import NDArray

from heliotrope.engine.profiles import load
from heliotrope.power.options import Work
from heliotrope_sim.demo.client import LoadGenerator, RequestResult
from heliotrope_sim.demo.plan import PlannedRequest
from heliotrope_sim.engine.fixed_point import nanoseconds
from heliotrope_sim.fleet.workload import Workload, workload

FLEET = Fleet("8B on A100, 1 + 1", PROFILE, 1, 2)
PROMISED: Promised = PROMISES[0]
PROMPT_TOKENS, OUTPUT_TOKENS = (2_000, 3_000), (30, 70)
WORK = Work(sum(PROMPT_TOKENS) / 2.0, sum(OUTPUT_TOKENS) / 2.0)
HEADROOM = 0.5
"""Of the promise, that is kept free."""
PACE = 1.0 / 12.0
LOOK_ENGINE_S = 2.5
DRAIN_ENGINE_S = 5.0
YOUNG_ENGINE_S = 1.5
"""Requests that have not ended are known to be late no sooner: clients tell of the first token at the end."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Requests per engine second over a day that begins and ends at night."""

    engine_seconds: float
    night: float
    noon: float

    def rate(self, at: float) -> float:
        """At an engine second."""
        return self.night + (self.noon - self.night) * (0.5 - 0.5 * cos(2.0 * pi * at / self.engine_seconds))


@dataclass(frozen=True, slots=True)
class Arm:
    """How clocks are set."""

    name: str
    moves: bool = True
    shared: bool = False
    cut: float = 0.0
    capped: bool = False
    """The cut as one power limit for every GPU."""


ARMS = (Arm("left alone", moves=False), Arm("one clock", shared=True), Arm("per phase"))
CUTS = (Arm("cut, split by phase", cut=0.3), Arm("cut, one cap", cut=0.3, capped=True))


@dataclass(slots=True)
class Outcome:
    """What a day came to; times are engine seconds."""

    arm: str
    joules: dict[str, float] = field(default_factory=dict)
    """By role, from the driver's counters."""
    answered: int = 0
    failed: int = 0
    late: int = 0
    """Beyond the promise, as clients saw it; on a machine that is too slow for its engines, its own lateness too."""
    ttft_seconds: list[float] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)
    """Clocks of the GPUs, and what was wished, at each look."""

    @property
    def total_joules(self) -> float:
        """Of both GPUs."""
        return sum(self.joules.values())

    def as_mapping(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"total_joules": round(self.total_joules, 3)}


def planned(shape: Shape, seed: int) -> list[PlannedRequest]:
    """A day's requests, at engine seconds; every arm sends the same."""
    rng = random.Random(seed)
    at, requests = 0.0, []
    while (at := at + rng.expovariate(shape.noon)) < shape.engine_seconds:
        if rng.random() * shape.noon > shape.rate(at):
            continue
        prompt = rng.randint(*PROMPT_TOKENS)
        text = f"{len(requests)} {rng.random()} " + "green " * (4 * prompt // 6)
        requests.append(
            PlannedRequest(
                request_id=f"r{len(requests)}",
                arrival_seconds=at,
                prompt_tokens=prompt,
                output_tokens=rng.randint(*OUTPUT_TOKENS),
                streaming=True,
                model=load(PROFILE).model,
                messages=({"role": "user", "content": text},),
            )
        )
    return requests


class Clients:
    """What clients have had so far, as the planner's view of latency: in engine time, by the request's position."""

    def __init__(self, requests: Sequence[PlannedRequest], time_scale: float) -> None:
        """Nothing yet."""
        self._time_scale = time_scale
        self._position = {each.request_id: i for i, each in enumerate(requests)}
        self._arrival_ns = np.array([nanoseconds(each.arrival_seconds) for each in requests], dtype=np.int64)
        self._first_ns = np.full(len(requests), -1, dtype=np.int64)
        self.now_ns = 0
        self.results: list[RequestResult] = []

    def ended(self, result: RequestResult) -> None:
        """Take a request's end."""
        self.results.append(result)
        if result.ttft_seconds is not None:
            i = self._position[result.request_id]
            self._first_ns[i] = self._arrival_ns[i] + nanoseconds(result.ttft_seconds * self._time_scale)

    def first_token_ns(self, start: int, end: int) -> NDArray[np.int64]:
        """As `heliotrope_sim.fleet.view.FleetView` tells it."""
        known, arrival = self._first_ns[start:end], self._arrival_ns[start:end]
        young = (known < 0) & (self.now_ns - arrival < nanoseconds(YOUNG_ENGINE_S))
        return np.where(young, arrival, known)


async def run(
    site: Site, arm: Arm, shape: Shape, *, time_scale: float, seed: int, seen: Seen = Seen.MEASURED
) -> Outcome:
    """Send a day's requests while clocks are set as the arm says; afterwards nothing is wished for."""
    requests = planned(shape, seed)
    outcome = Outcome(arm.name)
    clients = Clients(requests, time_scale)
    generator = LoadGenerator(
        site.url,
        headers_for=lambda i: {"x-prefiller-host-port": site.prefiller, "x-request-id": f"{arm.name}-{i}"},
        on_result=clients.ended,
    )
    wall = [replace(each, arrival_seconds=each.arrival_seconds / time_scale) for each in requests]
    loop = asyncio.get_running_loop()
    before, begun = site.millijoules, loop.time()
    planner = asyncio.create_task(_plan(site, arm, shape, requests, clients, seen, outcome, begun, time_scale))
    try:
        await generator.run(wall, begun)
        await planner
    finally:
        planner.cancel()
        await asyncio.gather(planner, return_exceptions=True)
    # Every arm is measured over the same time.
    await asyncio.sleep(max(begun + (shape.engine_seconds + DRAIN_ENGINE_S) / time_scale - loop.time(), 0.0))
    after = site.millijoules
    site.wish({})
    outcome.joules = {role.value: (after[role] - before[role]) / 1e3 for role in after}
    promise, results = PROMISED.promise, clients.results
    outcome.answered = sum(not each.failed for each in results)
    outcome.failed = sum(each.failed for each in results)
    outcome.late = sum(
        each.violates(promise.ttft_seconds / time_scale, promise.tpot_seconds / time_scale) for each in results
    )
    outcome.ttft_seconds = [each.ttft_seconds * time_scale for each in results if each.ttft_seconds is not None]
    return outcome


async def _plan(
    site: Site,
    arm: Arm,
    shape: Shape,
    requests: Sequence[PlannedRequest],
    clients: Clients,
    seen: Seen,
    outcome: Outcome,
    begun: float,
    time_scale: float,
) -> None:
    """Look as often as an operator would on a day of this length, and have wished what the planner chooses."""
    loop = asyncio.get_running_loop()
    watts = (1.0 - arm.cut) * full_watts(FLEET, WORK, PROMISED.promise)
    planner = Planner(
        FLEET,
        WORK,
        PROMISED.promise,
        _columns(requests),
        seen=seen,
        shared=arm.shared,
        headroom=HEADROOM,
        pace=PACE,
        saves=not arm.cut,
        **({"budget_watts": watts} if arm.cut else {}),
    )
    if arm.capped:
        site.wish({role: {"watts": int(watts / len(FLEET.roles))} for role in FLEET.roles})
    while (now := (loop.time() - begun) * time_scale) < shape.engine_seconds:
        clients.now_ns = nanoseconds(now)
        if arm.moves and not arm.capped and planner(now, clients):
            chosen = planner.clocks_mhz
            site.wish({role: {} if mhz is None else {"smClockMhz": mhz} for role, mhz in chosen.items()})
        outcome.moments.append(
            {
                "engine_seconds": round(now, 2),
                "wished": {role.value: mhz for role, mhz in planner.clocks_mhz.items()},
                "clocks_mhz": {role.value: mhz for role, mhz in site.clocks_mhz.items()},
                "joules": round(sum(site.millijoules.values()) / 1e3, 3),
            }
        )
        await asyncio.sleep(LOOK_ENGINE_S / time_scale)


def _columns(requests: Sequence[PlannedRequest]) -> Workload:
    return workload(
        [each.arrival_seconds for each in requests],
        [each.prompt_tokens for each in requests],
        [each.output_tokens for each in requests],
    )
