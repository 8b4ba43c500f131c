"""What resting idle engines saves, and what it costs in promises kept: carbon-slo-tension §VI, measured by depth.

    uv run python bench/activation.py [--quick] [--output build/bench/activation.json]

The paper finds that idle engines and hosts emit 28 to 81 % of what good placement leaves, and asks for an activator.
Here the study's fleet (a quarter of it, with as much load per engine) is placed by the facility program as in
`heliotrope reproduce carbon-slo`, while `heliotrope.scale.activation.plan` says every five seconds which engines rest:

- `steady`: the study's constant loads. Demand is what was counted in the last half minute, with three standard
  deviations of a Poisson count on top.
- `wave`: two hours in which the load goes from a quarter of the moderate one to 1.75 times it and back, twice, so
  that engines must be woken. The forecast knows the wave; its upper quantile lies a tenth above it.

Depths add up: the idle clock, then exiting processes, then whole nodes off. Waking takes 3 s, 120 s and 420 s. By
`removed` the share of idle and host grams (the sleeping ones' included) is meant that is gone. Simulated, and equal on
every machine.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import pi, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.engine.model import EngineModel
from heliotrope.place.policy import Fallback, PlacementPolicy, WorkLimit
from heliotrope.place.registry import scheduler_named, shipped
from heliotrope.scale.activation import ActivationRules, EngineFacts, plan
from heliotrope.scale.depths import RestTable, WakeTimes, rest_table
from heliotrope.scale.facts import DemandForecast
from heliotrope.units import grams_co2e, nanoseconds_from_seconds
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.results import Line, Results
from heliotrope_sim.fleet.settings import Command, Depth, RunSettings
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.fleet.topology import Topology, Wake
from heliotrope_sim.fleet.view import FleetView
from heliotrope_sim.fleet.workload import RequestClass, Workload
from heliotrope_sim.reproduce.tension.case import SOLVER_NODES, Case, topology_of
from heliotrope_sim.reproduce.tension.grids import base_hour
from heliotrope_sim.reproduce.tension.models import LLAMA, LOADS, Served
from heliotrope_sim.reproduce.tension.policies import FACILITY, POLICIES

SHARE = 0.25
INTERVAL_S = 5.0
STEP_S, STEPS = 30.0, 60
WARM_S = 30.0
WAKES = WakeTimes(idle_clock=3.0, engine_sleep=15.0, process_exit=120.0, node_off=420.0)
BUSY_SHARE = 0.85
"""Of what an engine carries with a full batch."""
CLOCK, EXIT, OFF = ActivationDepth.IDLE_CLOCK, ActivationDepth.PROCESS_EXIT, ActivationDepth.NODE_OFF
ACTIVATORS: dict[str, frozenset[ActivationDepth]] = {
    "none": frozenset(),
    "clock": frozenset({CLOCK}),
    "clock, exit": frozenset({CLOCK, EXIT}),
    "clock, exit, node off": frozenset({CLOCK, EXIT, OFF}),
}
_DEPTHS = {
    Depth.IDLE_CLOCK: CLOCK,
    Depth.SLEEP: ActivationDepth.ENGINE_SLEEP,
    Depth.EXIT: EXIT,
    Depth.NODE_OFF: OFF,
}
_COMMANDS = {None: Depth.AWAKE} | {ours: theirs for theirs, ours in _DEPTHS.items()}

Forecast = Callable[[float, float], DemandForecast]
"""(seconds since the start, requests per second counted lately) → what is expected."""


def capacity_rps(model: EngineModel, batch: int, prompt: float, output: float) -> float:
    """Requests per second that an engine carries with a batch of this size, prefill and decode in turn."""
    decode_s = float(model.decode_seconds(float(batch), batch * (prompt + output / 2.0)))
    busy_s = float(model.prefill_seconds(prompt)) + output * decode_s / batch
    return BUSY_SHARE / busy_s


@dataclass(slots=True)
class Activator:
    """Asks `plan` and says what to tell engines."""

    topology: Topology
    rules: ActivationRules
    forecast: Forecast
    rps: float
    tables: tuple[RestTable, ...]
    grams_per_joule: tuple[float, ...]
    idle_since: dict[str, float] = field(default_factory=dict)
    surplus_since: dict[str, float] = field(default_factory=dict)
    rested: dict[str, ActivationDepth] = field(default_factory=dict)
    counted: list[float] = field(default_factory=list)
    wakes: int = 0
    awake: list[int] = field(default_factory=list)

    def __call__(self, seconds: float, view: FleetView) -> Sequence[Command]:
        """What engines are told now."""
        if seconds > 0.0:
            self.counted = [*self.counted[-5:], float(view.arrived_since.sum()) / INTERVAL_S]
        if not self.counted:
            return ()
        facts = self._facts(seconds, view)
        demand = self.forecast(seconds, float(np.mean(self.counted)))
        decided = plan(facts, demand, self.rules, step_seconds=STEP_S, now_unix_s=seconds)
        self.awake.append(decided.awake)
        commands = []
        for facts_of, todo in zip(facts, decided.engines, strict=True):
            name, before = todo.name, facts_of.depth
            if todo.surplus:
                self.surplus_since.setdefault(name, seconds)
            else:
                self.surplus_since.pop(name, None)
            site, engine = name.split("/")
            at = view.sites[int(site)].depth[int(engine)]
            if at != _COMMANDS[todo.depth]:
                self.wakes += todo.depth is None and before is not None
                commands.append(Command(int(site), (int(engine),), depth=_COMMANDS[todo.depth]))
            if todo.depth is not None:
                self.rested[name] = todo.depth
        return commands

    def _facts(self, seconds: float, view: FleetView) -> list[EngineFacts]:
        facts = []
        for s, site in enumerate(view.sites):
            for e in range(len(site.running)):
                name = f"{s}/{e}"
                busy = bool(site.running[e] or site.waiting[e])
                if busy:
                    self.idle_since.pop(name, None)
                else:
                    self.idle_since.setdefault(name, seconds)
                depth = _DEPTHS.get(Depth(int(site.depth[e])))
                # One that wakes serves as little as one that rests.
                depth = self.rested.get(name) if depth is None and not site.ready[e] else depth
                facts.append(
                    EngineFacts(
                        name,
                        self.tables[s],
                        self.rps,
                        busy,
                        depth,
                        self.idle_since.get(name),
                        node=f"{s}/{e // self.topology.sites[s].engines_per_node}",
                        node_ours=True,
                        grams_per_joule=self.grams_per_joule[s],
                        drains=True,
                        surplus_since_unix_s=self.surplus_since.get(name),
                    )
                )
        return facts


def steady(_seconds: float, counted: float) -> DemandForecast:
    """As it was, with the spread of a count over half a minute."""
    upper = counted + 3.0 * sqrt(max(counted, 1.0) / 30.0)
    return DemandForecast((counted,) * STEPS, (upper,) * STEPS, None)


def wave(mean: float, period_s: float) -> Callable[[float], float]:
    """Requests per second by time: from a quarter of the mean up to 1.75 times it."""
    return lambda seconds: mean * (1.0 - 0.75 * sin(pi / 2.0 + 2.0 * pi * seconds / period_s))


def knowing(rate: Callable[[float], float]) -> Forecast:
    """Each step's highest rate, a tenth above it."""

    def forecast(seconds: float, _counted: float) -> DemandForecast:
        starts = seconds + STEP_S * np.arange(STEPS)
        expected = tuple(max(rate(float(s)), rate(float(s) + STEP_S / 2.0), rate(float(s) + STEP_S)) for s in starts)
        return DemandForecast(expected, tuple(1.1 * value for value in expected), None)

    return forecast


def waved(made: Workload, rate: Callable[[float], float], seconds: float) -> Workload:
    """The same requests at other times, so that they come at a rate."""
    grid = np.linspace(0.0, seconds, 4_001)
    passed = np.concatenate([[0.0], np.cumsum([rate(float(t)) for t in (grid[1:] + grid[:-1]) / 2.0])])
    passed *= seconds / passed[-1]
    arrivals = np.interp(made.arrival_ns / 1e9, passed, grid)
    return replace(made, arrival_ns=np.sort(np.rint(nanoseconds_from_seconds(arrivals)).astype(np.int64)))


def run(served: Served, load: str, name: str, seconds: float, *, moving: bool) -> dict[str, Any]:
    """One run, as plain data."""
    rate = served.rate(load) * SHARE
    place = Case(served.name, served.rate(load), FACILITY, seconds, base_hour(), 1, share=SHARE)
    topology = topology_of(place)
    wakes = Wake(WAKES.idle_clock or 0.0, WAKES.engine_sleep or 0.0, WAKES.process_exit or 0.0, WAKES.node_off or 0.0)
    topology = replace(topology, sites=tuple(replace(site, wake=wakes) for site in topology.sites))
    promise = RequestClass(served.name, served.ttft_slo_seconds, served.tpot_slo_seconds)
    schedulers = len(topology.schedulers)
    load_of = wave(rate, seconds / 2.0)
    made = poisson(rate, seconds, seed=1, schedulers=schedulers, lengths=served.lengths, classes=(promise,))
    made = waved(made, load_of, seconds) if moving else made
    lengths = served.lengths
    activator = Activator(
        topology,
        ActivationRules(ACTIVATORS[name], 0.2, 1, INTERVAL_S, dwell_seconds=10.0),
        knowing(load_of) if moving else steady,
        capacity_rps(
            topology.sites[0].model, topology.sites[0].capacity, lengths.mean_prompt_tokens, lengths.mean_output_tokens
        ),
        tuple(_table(site.model, site.host_watts_per_node / site.engines_per_node) for site in topology.sites),
        tuple(_grams_per_joule(topology)),
    )
    kind = POLICIES[FACILITY]
    settings = RunSettings(
        scheduler=scheduler_named(shipped(), kind.scheduler),
        policy=PlacementPolicy(
            latency_weight=kind.latency_weight,
            window_seconds=kind.window_seconds,
            limit=WorkLimit(seconds=None, nodes=SOLVER_NODES),
            fallback=Fallback.ROUND_ROBIN,
            peers=schedulers - 1,
        ),
        window_seconds=kind.window_seconds,
        carbon_step_seconds=WARM_S,
        controller=activator if ACTIVATORS[name] else None,
        control_seconds=INTERVAL_S,
    )
    return _told(simulate(topology, made, settings), activator, topology)


def _table(model: EngineModel, host_watts: float) -> RestTable:
    return replace(rest_table(model, WAKES), host_watts=host_watts)


def _grams_per_joule(topology: Topology) -> list[float]:
    found = []
    for site in topology.sites:
        assert site.carbon is not None
        point = site.carbon.at(0.0)
        assert point is not None
        found.append(grams_co2e(1.0, site.pue, point.intensity_g_per_kwh))
    return found


def _told(results: Results, activator: Activator, topology: Topology) -> dict[str, Any]:
    ends = results.interval_end_ns
    until = (ends > nanoseconds_from_seconds(WARM_S)) & (ends <= results.workload.duration_ns)
    pue = np.array([site.pue for site in topology.sites])
    intensity = results.intensity_g_per_kwh[until][:, :, None]
    by_line = grams_co2e(results.energy_joules[until], pue[None, :, None], intensity).sum(axis=(0, 1))
    standing = float(by_line[Line.IDLE] + by_line[Line.ASLEEP] + by_line[Line.HOST])
    summary = results.summary(drained=False, skip_seconds=WARM_S)
    return {
        "grams": float(by_line.sum()),
        "standing_grams": standing,
        "standing_share": standing / float(by_line.sum()),
        "violation": summary.violation,
        "ttft_p99_seconds": summary.ttft_seconds["p99"],
        "awake_engines": float(np.mean(activator.awake)) if activator.awake else float(topology.engines),
        "wakes": activator.wakes,
        "requests": summary.requests,
    }


def main() -> None:
    """Run everything and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter runs, and the low load only")
    parser.add_argument("--output", type=Path, default=Path("build/bench/activation.json"))
    arguments = parser.parse_args()
    seconds = 90.0 if arguments.quick else 200.0
    cases = [(f"steady {load}", load, seconds, False) for load in (LOADS[:1] if arguments.quick else LOADS)]
    cases.append(("wave", "low" if arguments.quick else "moderate", 900.0 if arguments.quick else 7_200.0, True))
    report: dict[str, Any] = {"machine": describe(), "quick": arguments.quick, "cases": {}}
    for title, load, length, moving in cases:
        rows = {}
        for name in ACTIVATORS:
            row = rows[name] = run(LLAMA, load, name, length, moving=moving)
            base = rows["none"]
            row["removed"] = 1.0 - row["standing_grams"] / base["standing_grams"]
            row["saved"] = 1.0 - row["grams"] / base["grams"]
            row["more_violation_points"] = 100.0 * (row["violation"] - base["violation"])
            print(
                f"{title:16} {name:22} standing {row['standing_share']:.0%} removed {row['removed']:.0%} "
                f"saved {row['saved']:.0%} violation {row['violation']:.2%} awake {row['awake_engines']:.0f} "
                f"wakes {row['wakes']}",
                flush=True,
            )
        report["cases"][title] = rows
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
