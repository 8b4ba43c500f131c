"""What a simulated fleet costs: CPU seconds of one core and memory of whole runs.

    uv run python bench/simulator.py [--quick] [--sizes 100000 1000000 10000000] [--output build/bench/simulator.json]

The set-up of paper carbon-slo-tension, §V-A, at its high load: 4 regions × 4 data centres × 4 nodes × 8 engines
(Llama-3.1-8B on A100-40GB), 200 s of 4000 req/s, four schedulers with windows of 100 ms. Every run has a process of its
own, which compiles or loads the kernel before time counts; solvers are limited by nodes, as in every simulation. The
cost by number of requests is that of longer and longer runs at that rate with round robin.
"""

import argparse
import json
import multiprocessing
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

from heliotrope.carbon.series import Point, Series
from heliotrope.engine.profiles import load
from heliotrope.place.assignment import Assignment
from heliotrope.place.policy import PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.registry import scheduler_named, shipped
from heliotrope.place.window import Window
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.network import aws_rtt_seconds
from heliotrope_sim.fleet.settings import RunSettings
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.fleet.topology import SchedulerSite, Site, Topology

PROFILE = "llama-3.1-8b-a100-40gb"
REGIONS = ("eu-north-1", "us-east-1", "ap-northeast-1", "sa-east-1")
INTENSITIES = (30.0, 120.0, 210.0, 420.0)
"""Of the first data centre in each region; the others follow in steps of 20 g/kWh."""
RATE_PER_SECOND, SECONDS = 4000.0, 200.0
BATCH_CAPACITY = 40
NODES = 400
"""Of a window's branch and bound."""
SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
KILOBYTES_PER_MEGABYTE = 1024.0


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    scheduler: str
    seconds: float


class Timed:
    """A scheduler whose CPU time is known."""

    def __init__(self, name: str) -> None:
        self._scheduler = scheduler_named(shipped(), name)
        self.cpu_seconds = 0.0

    def __call__(
        self, window: Window, regions: Regions, policy: PlacementPolicy, now: float, memory: Any = None
    ) -> Assignment:
        """Assign."""
        started = time.process_time()
        assignment = self._scheduler(window, regions, policy, now, memory)
        self.cpu_seconds += time.process_time() - started
        return assignment


def topology() -> Topology:
    """The paper's."""
    model = load(PROFILE)
    sites = [
        Site(
            name=f"{region}-{i}",
            zone=region,
            model=model,
            nodes=4,
            engines_per_node=8,
            carbon=Series.from_points([Point(0.0, intensity + 20.0 * i)], last_holds_s=1e9),
            batch_capacity=BATCH_CAPACITY,
        )
        for region, intensity in zip(REGIONS, INTENSITIES, strict=True)
        for i in range(4)
    ]
    rtt = np.repeat(aws_rtt_seconds(REGIONS, REGIONS), 4, axis=1)
    return Topology(tuple(sites), tuple(SchedulerSite(region, region) for region in REGIONS), rtt)


def measure(case: Case) -> dict[str, float]:
    """Run it, in a process that has run nothing else."""
    policy = PlacementPolicy(limit=WorkLimit(seconds=None, nodes=NODES))
    scheduler = Timed(case.scheduler)
    settings = RunSettings(scheduler=scheduler, policy=policy)
    place = topology()
    simulate(place, poisson(100.0, 1.0, seed=1, schedulers=4), settings)
    scheduler.cpu_seconds = 0.0
    started = time.process_time()
    workload = poisson(RATE_PER_SECOND, case.seconds, seed=7, schedulers=4)
    generated = time.process_time()
    results = simulate(place, workload, settings)
    ended = time.process_time()
    summary = results.summary()
    return {
        "requests": float(len(workload)),
        "cpu_s": ended - generated,
        "scheduler_cpu_s": scheduler.cpu_seconds,
        "workload_cpu_s": generated - started,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KILOBYTES_PER_MEGABYTE,
        "violation": summary.violation,
        "grams": summary.grams,
    }


def alone(case: Case) -> dict[str, float]:
    """Measure in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (case,))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, the two smallest sizes")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="requests of the runs by size")
    parser.add_argument("--output", type=Path, default=Path("build/bench/simulator.json"))
    arguments = parser.parse_args()
    seconds = SECONDS / 10.0 if arguments.quick else SECONDS
    sizes = sorted(arguments.sizes)[:2] if arguments.quick else arguments.sizes

    runs = {}
    for name in ("RoundRobin", "Greedy", "Facility"):
        run = runs[name] = alone(Case(name, seconds))
        print(
            f"{name:12} {run['requests']:>10,.0f} requests  {run['cpu_s']:6.1f} s CPU, "
            f"{run['scheduler_cpu_s']:6.1f} s of them the scheduler, {run['rss_mb']:5.0f} MB",
            flush=True,
        )
    by_size = []
    for size in sizes:
        run = alone(Case("RoundRobin", size / RATE_PER_SECOND))
        by_size.append(run)
        print(
            f"by requests  {run['requests']:>10,.0f} requests  {run['cpu_s']:6.1f} s CPU, "
            f"{run['cpu_s'] / run['requests'] * 1e6:5.2f} µs per request, {run['rss_mb']:5.0f} MB",
            flush=True,
        )
    facility = runs["Facility"]
    report = {
        "machine": describe(),
        "quick": arguments.quick,
        f"run_{seconds:.0f}s_4000rps_512engines": {
            "cpu_s_without_solver": facility["cpu_s"] - facility["scheduler_cpu_s"],
            "cpu_s_facility": facility["cpu_s"],
            "rss_mb": facility["rss_mb"],
        },
        "by_scheduler": runs,
        "by_requests": by_size,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
