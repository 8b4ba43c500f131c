"""One simulated run of the study, and what is kept of it."""

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from heliotrope.carbon.series import Point, Series
from heliotrope.engine import profiles
from heliotrope.place.assignment import Assignment, Scheduler
from heliotrope.place.policy import Fallback, PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.registry import scheduler_named, shipped
from heliotrope.place.solve.facility import warm_up
from heliotrope.place.window import Window
from heliotrope.units import grams_co2e, nanoseconds_from_seconds
from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.network import aws_rtt_seconds
from heliotrope_sim.fleet.results import Line, Results
from heliotrope_sim.fleet.settings import RunSettings
from heliotrope_sim.fleet.simulate import compile_kernel, simulate
from heliotrope_sim.fleet.topology import SchedulerSite, Site, Topology
from heliotrope_sim.fleet.workload import RequestClass, Workload
from heliotrope_sim.reproduce.tension.grids import REGIONS, ZONES, Floats, intensities, pue
from heliotrope_sim.reproduce.tension.lengths import predicted
from heliotrope_sim.reproduce.tension.models import SERVED, Served
from heliotrope_sim.reproduce.tension.policies import POLICIES, Sight

NODES = 4
"""Of a data centre."""
SOLVER_NODES = 400
"""Of a window's search: simulations do not depend on the machine, so the paper's 0.25 s are a limit of work here."""
BUCKET_ACCURACY = {"llama": 0.51, "mixtral": 0.37}
"""Of the paper's predictor of output lengths (§V-C)."""
LONG_RUN_SECONDS = 1e9
BASE, EIGHT_SCHEDULERS, LARGE_SITES = "base", "eight schedulers", "half the sites, twice the nodes"
SHAPES = (BASE, EIGHT_SCHEDULERS, LARGE_SITES)


@dataclass(frozen=True, slots=True)
class Case:
    """One run. Equal cases are run once."""

    served: str
    rate: float
    """Requests per second of the full fleet."""
    policy: str
    seconds: float
    hour: int
    """Of 2022; its intensities hold for the whole run, as in the paper."""
    seed: int
    warm_seconds: float = 15.0
    """From the start on and left out: engines reach a stable load within 15 s (§V-A)."""
    share: float = 1.0
    """Of the fleet and of the rate: quick runs have a quarter of the nodes, and as much load per engine."""
    sight: Sight = Sight.ALL
    poll_seconds: float = 1.0
    staggered: bool = False
    shape: str = BASE
    real_pue: bool = False
    predicted: bool = False
    batch_capacity: int = 0
    """0: the model's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of a run: of the time from the end of the warm-up until no more requests arrive."""

    case: Case
    joules: tuple[tuple[float, ...], ...]
    """IT energy by site and `Line`."""
    violation: float
    ttft_violation: float
    tpot_violation: float
    ttft_seconds: tuple[float, float, float]
    """p50, p90, p99."""
    mean_tpot_seconds: float
    idle_share: float
    """Of the engines' time, with nothing in flight."""
    batch_share: float
    """Mean sequences per engine over the batch capacity."""
    decide_seconds: tuple[float, float]
    """Modelled, from a window's close to its decision: p50 and p99 over requests."""
    call_seconds: tuple[float, float]
    """CPU time of the scheduler's calls on this machine: p50 and p99 over a sample of windows."""
    cpu_seconds: float
    """Of the whole run on this machine."""
    scheduler_cpu_seconds: float
    requests: int

    def grams(self, hour: int | None = None, *, real_pue: bool | None = None) -> float:
        """Operational CO2e; of another hour or other PUEs for policies that look at neither."""
        intensity, factor = _prices(self.case, hour, real_pue)
        return float(grams_co2e(np.array(self.joules).sum(axis=1), factor, intensity).sum())

    def grams_per_second(self, hour: int | None = None, *, real_pue: bool | None = None) -> float:
        """The same by time."""
        return self.grams(hour, real_pue=real_pue) / (self.case.seconds - self.case.warm_seconds)

    @property
    def standing_share(self) -> float:
        """Share of the grams that idle engines and hosts emit."""
        return float(self._standing_grams.sum()) / self.grams()

    @property
    def dirty_standing_share(self) -> float:
        """Share of those that come from sites with an intensity above the median."""
        intensity, _ = _prices(self.case, None, None)
        grams = self._standing_grams
        return float(grams[intensity > np.median(intensity)].sum() / grams.sum())

    @property
    def _standing_grams(self) -> Floats:
        intensity, factor = _prices(self.case, None, None)
        joules = np.array(self.joules)
        found: Floats = grams_co2e(joules[:, Line.IDLE] + joules[:, Line.HOST], factor, intensity)
        return found


class _Clocked:
    """A scheduler whose CPU time is known of one call in `EVERY`: reading that clock may itself take milliseconds."""

    EVERY = 8

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.calls = 0
        self.taken: list[float] = []

    def __call__(
        self, window: Window, regions: Regions, policy: PlacementPolicy, now: float, memory: Any = None
    ) -> Assignment:
        self.calls += 1
        if self.calls % self.EVERY != 1:
            return self._scheduler(window, regions, policy, now, memory)
        started = time.thread_time()
        assignment = self._scheduler(window, regions, policy, now, memory)
        self.taken.append(time.thread_time() - started)
        return assignment


def play(case: Case) -> Outcome:
    """Simulate."""
    topology, kind = topology_of(case), POLICIES[case.policy]
    schedulers = len(topology.schedulers)
    _warm_up(case.policy)
    clocked = _Clocked(scheduler_named(shipped(), kind.scheduler))
    settings = RunSettings(
        scheduler=clocked,
        policy=PlacementPolicy(
            latency_weight=kind.latency_weight,
            window_seconds=kind.window_seconds,
            limit=WorkLimit(seconds=None, nodes=SOLVER_NODES),
            fallback=Fallback.ROUND_ROBIN,
            projects=case.sight is not Sight.POLLS,
            peers=schedulers - 1,
        ),
        window_seconds=kind.window_seconds,
        poll_seconds=case.poll_seconds,
        staggered_polls=case.staggered,
        project=case.sight is not Sight.POLLS,
        peers=None if case.sight is Sight.ALL else 0.0,
        carbon_step_seconds=case.warm_seconds,
    )
    workload = workload_of(case, schedulers)
    started = time.process_time()
    results = simulate(topology, workload, settings)
    cpu = time.process_time() - started
    return _kept(case, results, clocked, cpu)


def workload_of(case: Case, schedulers: int) -> Workload:
    """Poisson arrivals, in turn to the schedulers; equal for all policies at a rate."""
    served = SERVED[case.served]
    promise = RequestClass(served.name, served.ttft_slo_seconds, served.tpot_slo_seconds)
    made = poisson(
        case.rate * case.share,
        case.seconds,
        seed=case.seed,
        schedulers=schedulers,
        lengths=served.lengths,
        classes=(promise,),
    )
    if not case.predicted:
        return made
    accuracy = BUCKET_ACCURACY[case.served]
    return made.expecting(predicted(made.output_tokens.astype(np.int64), served.lengths, accuracy, case.seed + 1))


def topology_of(case: Case) -> Topology:
    """Four regions of four data centres, or one of the paper's other shapes."""
    served = SERVED[case.served]
    nodes = max(round(NODES * case.share), 1)
    chosen = _places(case)
    twice = 2 if case.shape == LARGE_SITES else 1
    sites = tuple(_site(case, served, ZONES[i], _zone(case, i), nodes * twice, i) for i in chosen)
    parts = 2 if case.shape == EIGHT_SCHEDULERS else 1
    names = [(f"{region}-{part}" if parts > 1 else region, region) for region in REGIONS for part in range(parts)]
    round_trips = aws_rtt_seconds(list(REGIONS), list(REGIONS))
    of_region = {region: r for r, region in enumerate(REGIONS)}
    rows = [of_region[region] for _, region in names]
    columns = [i // (len(ZONES) // len(REGIONS)) for i in chosen]
    # A data centre of one's own is next door, another one of the region a round trip within it away.
    rtt = round_trips[np.ix_(rows, columns)]
    return Topology(sites, tuple(SchedulerSite(name, name) for name, _ in names), rtt)


def _places(case: Case) -> list[int]:
    """The data centres that there are, by their position in `ZONES`."""
    return [i for i in range(len(ZONES)) if case.shape != LARGE_SITES or i % 2 == 0]


def _zone(case: Case, i: int) -> str:
    """The scheduler that a data centre belongs to."""
    per_region = len(ZONES) // len(REGIONS)
    region = list(REGIONS)[i // per_region]
    return f"{region}-{i % per_region * 2 // per_region}" if case.shape == EIGHT_SCHEDULERS else region


def _site(case: Case, served: Served, name: str, zone: str, nodes: int, i: int) -> Site:
    intensity = float(intensities()[case.hour, i])
    return Site(
        name=name,
        zone=zone,
        model=_model(served.profile),
        nodes=nodes,
        engines_per_node=served.engines_per_node,
        carbon=Series.from_points([Point(0.0, intensity)], last_holds_s=LONG_RUN_SECONDS),
        pue=pue(name, real=case.real_pue),
        batch_capacity=case.batch_capacity or served.batch_capacity,
    )


_model = cache(profiles.load)


def _prices(case: Case, hour: int | None, real_pue: bool | None) -> tuple[Floats, Floats]:
    chosen = _places(case)
    row = intensities()[case.hour if hour is None else hour]
    real = case.real_pue if real_pue is None else real_pue
    return row[chosen], np.array([pue(ZONES[i], real=real) for i in chosen])


COMPILED = ("engines", "solvers")
"""What `prepare` knows: two halves, for two processes."""


def prepare(what: str) -> None:
    """Compile one of `COMPILED` where its machine code is not cached yet, so that no two processes compile the same."""
    if what == "engines":
        compile_kernel()
    else:
        warm_up()


@cache
def _warm_up(policy: str) -> None:
    """A second of a small run, so that CPU times of the first long one hold no compilation."""
    place = Case("llama", 100.0, policy, 1.0, 0, 1, share=0.25)
    simulate(
        topology_of(place),
        workload_of(place, len(REGIONS)),
        RunSettings(
            scheduler=scheduler_named(shipped(), POLICIES[policy].scheduler),
            policy=PlacementPolicy(limit=WorkLimit(seconds=None, nodes=SOLVER_NODES)),
        ),
    )


def _kept(case: Case, results: Results, clocked: _Clocked, cpu_seconds: float) -> Outcome:
    ends = results.interval_end_ns
    until = (ends > nanoseconds_from_seconds(case.warm_seconds)) & (ends <= results.workload.duration_ns)
    summary = results.summary(drained=False, skip_seconds=case.warm_seconds)
    awake, busy = results.awake_engine_seconds[until].sum(), results.busy_engine_seconds[until].sum()
    residence = seconds(np.maximum(results.finished_ns - results.first_token_ns, 0)[results.served])
    capacity = results.topology.engines * results.topology.sites[0].capacity
    d = results.decisions
    # Forwarded requests that wait along are not counted: a window may have decided nothing.
    decided = np.repeat(seconds(d.decided_ns - d.closed_ns), d.requests)  # type: ignore[arg-type]
    spread = summary.ttft_seconds
    return Outcome(
        case=case,
        joules=tuple(tuple(float(j) for j in row) for row in results.energy_joules[until].sum(axis=0)),
        violation=summary.violation,
        ttft_violation=summary.ttft_violation,
        tpot_violation=summary.tpot_violation,
        ttft_seconds=(spread["p50"], spread["p90"], spread["p99"]),
        mean_tpot_seconds=summary.tpot_seconds["mean"],
        idle_share=float(1.0 - busy / awake),
        batch_share=float(np.sum(residence)) / case.seconds / capacity,
        decide_seconds=_quantiles(decided),
        call_seconds=_quantiles(np.array(clocked.taken)),
        cpu_seconds=cpu_seconds,
        scheduler_cpu_seconds=float(np.mean(clocked.taken)) * clocked.calls,
        requests=summary.requests,
    )


def _quantiles(values: Floats) -> tuple[float, float]:
    p50, p99 = np.quantile(values, (0.5, 0.99))
    return float(p50), float(p99)
