"""Three engines behind round robin: what the paper measured on real ones (§V-B) beside the simulator."""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.series import Point, Series
from heliotrope.engine import profiles
from heliotrope.place.registry import scheduler_named, shipped
from heliotrope.units import milliseconds_from_seconds
from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.settings import RunSettings
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.fleet.topology import SchedulerSite, Site, Topology
from heliotrope_sim.reproduce.row import Row
from heliotrope_sim.reproduce.tension.models import LLAMA

ENGINES = 3
TOLERANCE = 0.15
"""Of an anchor: nothing is tuned to them, and lengths vary as assumed."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One run."""

    per_second: float
    requests: int
    seed: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """What requests saw at one rate."""

    per_second: float
    mean_ttft_seconds: float
    longest_ttft_seconds: float
    mean_tpot_seconds: float
    completed_per_second: float
    """Between the first and the last tenth of the completions."""


def measure(rate: Rate) -> Anchor:
    """Serve Poisson arrivals on the three engines."""
    site = Site(
        name="node",
        zone="node",
        model=profiles.load(LLAMA.profile),
        nodes=1,
        engines_per_node=ENGINES,
        carbon=Series.from_points([Point(0.0, 100.0)], last_holds_s=1e9),
        batch_capacity=LLAMA.batch_capacity,
    )
    topology = Topology((site,), (SchedulerSite("node", "node"),), np.zeros((1, 1)))
    settings = RunSettings(scheduler=scheduler_named(shipped(), "RoundRobin"), window_seconds=0.0)
    work = poisson(rate.per_second, rate.requests / rate.per_second, seed=rate.seed, lengths=LLAMA.lengths)
    results = simulate(topology, work, settings)
    summary = results.summary()
    finished = np.sort(results.finished_ns)
    first, last = len(finished) // 10, len(finished) * 9 // 10
    return Anchor(
        per_second=rate.per_second,
        mean_ttft_seconds=summary.ttft_seconds["mean"],
        longest_ttft_seconds=float(results.ttft_seconds.max()),
        mean_tpot_seconds=summary.tpot_seconds["mean"],
        completed_per_second=(last - first) / float(seconds(int(finished[last] - finished[first]))),
    )


def anchor_rows(found: list[Anchor]) -> list[Row]:
    """The paper's anchors, each within 15 %, and the order of TTFTs."""
    lowest, highest = found[0], found[-1]

    def row(id_: str, title: str, paper: float, ours: float, unit: str) -> Row:
        holds = abs(ours / paper - 1.0) <= TOLERANCE
        return Row(f"anchor/{id_}", title, paper, ours, unit, holds, f"judged: within {TOLERANCE:.0%}")

    return [
        row("capacity", "Saturated capacity of three engines", 27.58, highest.completed_per_second, "req/s"),
        row("tpot-low", "Mean TPOT at 2 req/s", 15.5, milliseconds_from_seconds(lowest.mean_tpot_seconds), "ms"),
        row("tpot-high", "Mean TPOT at 50 req/s", 54.0, milliseconds_from_seconds(highest.mean_tpot_seconds), "ms"),
        row("ttft-low", "Mean TTFT, unloaded", 71.0, milliseconds_from_seconds(lowest.mean_ttft_seconds), "ms"),
        Row(
            "anchor/ttft-high",
            "Longest TTFT at 50 req/s",
            "> 20",
            highest.longest_ttft_seconds,
            "s",
            None if highest.longest_ttft_seconds <= 20.0 else True,
            "grows with the length of the run; the paper's has about 2,100 requests per rate, as a full run here",
        ),
    ]
