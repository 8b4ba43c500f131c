"""One engine in a fleet of its own, and the same requests through the emulator's engine."""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.series import Point, Series
from heliotrope.engine.model import EngineModel
from heliotrope.place.assignment import Assignment, Outcome
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.schedulers.round_robin import round_robin
from heliotrope.place.window import Window
from heliotrope_sim.engine import Engine, Request, Sequence
from heliotrope_sim.fleet.settings import DecisionTime, RunSettings
from heliotrope_sim.fleet.topology import SchedulerSite, Site, Topology
from heliotrope_sim.fleet.workload import Workload, workload

AT_ONCE = DecisionTime(base_seconds=0.0, seconds_per_request=0.0, seconds_per_work=0.0)
CONSTANT_100 = Series.from_points([Point(0.0, 100.0)], last_holds_s=1e9)


@dataclass(frozen=True)
class Arrival:
    """One request of a test."""

    ns: int
    prompt: int
    output: int
    hashes: tuple[int, ...] = ()


def to_site(index: int) -> object:
    """A scheduler that sends everything to one region."""

    def scheduler(window: Window, _r: Regions, _p: PlacementPolicy, _now: float, _memory: object = None) -> Assignment:
        n = len(window)
        return Assignment(
            regions=np.full(n, index),
            reasons=np.zeros(n, dtype=np.int64),
            outcome=Outcome.HEURISTIC,
            objective=np.nan,
            gap=np.nan,
            work=0,
            carbon_counts=False,
        )

    return scheduler


def settings(**changes: object) -> RunSettings:
    """Requests reach their engine in the nanosecond in which they arrive."""
    given = {"scheduler": round_robin, "window_seconds": 0.0, "decision_time": AT_ONCE, "project": False}
    return RunSettings(**{**given, **changes})  # type: ignore[arg-type]


def one_site(model: EngineModel, **changes: object) -> Topology:
    """A scheduler and a site without any distance between them."""
    given = {"name": "a", "zone": "z", "model": model, "nodes": 1, "engines_per_node": 1, "carbon": CONSTANT_100}
    site = Site(**{**given, **changes})  # type: ignore[arg-type]
    return Topology((site,), (SchedulerSite("s", "z"),), np.zeros((1, 1)))


def workload_of(arrivals: list[Arrival], **changes: object) -> Workload:
    """Their columns."""
    shares = any(a.hashes for a in arrivals)
    return workload(
        [a.ns / 1e9 for a in arrivals],
        [a.prompt for a in arrivals],
        [a.output for a in arrivals],
        block_hashes=[a.hashes for a in arrivals] if shares else None,
        **changes,  # type: ignore[arg-type]
    )


def emulated(model: EngineModel, arrivals: list[Arrival]) -> tuple[Engine, list[Sequence]]:
    """The emulator's engine, stepped until everybody has ended."""
    engine = Engine(model)
    sequences: list[Sequence] = []
    while True:
        starts = engine.next_work_ns
        if len(sequences) < len(arrivals):
            a = arrivals[len(sequences)]
            if starts is None or a.ns <= max(starts, engine.energy.settled_ns):
                sequences.append(engine.submit(Request(str(len(sequences)), a.prompt, a.output, a.hashes), a.ns))
                continue
        if starts is None:
            return engine, sequences
        engine.step(max(starts, engine.energy.settled_ns))
