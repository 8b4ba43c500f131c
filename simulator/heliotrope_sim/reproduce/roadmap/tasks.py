"""One run as a task for another process."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.reproduce.roadmap.arms import Arm
from heliotrope_sim.reproduce.roadmap.cluster import run
from heliotrope_sim.reproduce.roadmap.measures import Measured, measure
from heliotrope_sim.reproduce.roadmap.testbed import EndpointSpec, endpoints, intensities, saturated_rate
from heliotrope_sim.reproduce.roadmap.workloads import KINDS, arrivals, turns_of

LENGTH_SAMPLE = 400
"""Requests whose mean lengths say what load 1 is."""
DAY_HOURS = 24


@dataclass(frozen=True, slots=True)
class Run:
    """A workload under an arm."""

    arm: Arm
    workload: str
    load: float
    """Arrivals over what the fleet can serve at a batch of 32 without any reuse."""
    sharing: float
    seed: int
    requests: int
    """At most."""
    window_seconds: float = 40.0
    """Requests arrive for about so long, if they are not more."""
    large: bool = False
    """With endpoints of the 70B model, which clients ask for."""
    kv_capacity_tokens: int | None = None
    without: tuple[str, ...] = ()
    """Regions that have no endpoint."""
    hour_seconds: float | None = None
    """A day passes with hours of this length; None: the intensity of one hour holds."""


def play(task: Run) -> Measured:
    """Do it."""
    specs = tuple(
        spec for spec in endpoints(task.large, task.kv_capacity_tokens) if spec.region.name not in task.without
    )
    rate = offered_rate(task, specs)
    kind = KINDS[task.workload]
    count = max(min(round(rate * task.window_seconds), task.requests), kind.burst)
    firsts = arrivals(kind, rate, count, task.sharing, task.seed)
    hours = intensities()
    hour = int(np.random.default_rng([task.seed, 7]).integers(len(hours) - DAY_HOURS))
    length = 1 if task.hour_seconds is None else DAY_HOURS
    grid = hours[hour : hour + length]
    hour_seconds = 3_600.0 if task.hour_seconds is None else task.hour_seconds
    offered = max(seconds(firsts[-1].at_ns), 1.0)
    outcome = run(specs, task.arm, firsts, grid, hour_seconds, task.seed)
    held = grid[: max(math.ceil(offered / hour_seconds), 1)].mean(axis=0)
    return measure(outcome, specs, held, offered)


def offered_rate(task: Run, specs: tuple[EndpointSpec, ...]) -> float:
    """Requests per second."""
    model = specs[-1].model.model
    prompt, output = _mean_lengths(task.workload, task.sharing)
    return task.load * saturated_rate(tuple(s for s in specs if s.model.model == model), prompt, output)


@lru_cache(maxsize=64)
def _mean_lengths(workload: str, sharing: float) -> tuple[float, float]:
    turns = turns_of(arrivals(KINDS[workload], 1.0, LENGTH_SAMPLE, sharing, 0))
    return float(np.mean([t.prompt_tokens for t in turns])), float(np.mean([t.output_tokens for t in turns]))
