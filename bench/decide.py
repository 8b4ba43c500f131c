"""What a decision costs: CPU microseconds from a parsed request to the pick, everything that the picker does between.

    uv run python bench/decide.py [--quick] [--endpoints 9 64 256] [--runs 1] [--output build/bench/decide.json]

The real pipeline of the default configuration runs in this process under a policy that uses every term and constraint:
loads projected to now, the prefix producer, the scorers, and the carbon picker with analytic and learned estimates.
Endpoints differ in engine and region. Between two decisions the pool changes as it does in service: requests are
dispatched, send pieces and end, metrics are scraped. What is timed is the decision alone, in CPU time of its thread, so
that other load on the machine disturbs it through caches and shared cores only. Of several runs (`--runs`) the one with
the lowest median is reported, in which that was least.
"""

import argparse
import cProfile
import io
import json
import pstats
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from machine import describe, spin_milliseconds
from predict import trained

from heliotrope.carbon.series import Point, Series
from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import Embodied, Hardware, RegionView
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.rows import describe as describe_hardware
from heliotrope.engine.profiles import available, load
from heliotrope.predict.models import LearnedModels
from heliotrope_epp.config.loader import load as load_config
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.pickers.chosen import ChosenRows
from heliotrope_epp.plugins.pipeline import Pipeline

START_UNIX_S = 1_700_000_000.0
REGIONS = {"north": 30.0, "west": 120.0, "south": 210.0, "east": 420.0}
OPEN_PER_ENDPOINT = 12
PREFIXES = 400


@dataclass(frozen=True, slots=True)
class Carbon:
    """A `CarbonContext` that does not change."""

    attached: DecisionPolicy
    views: dict[str, RegionView]

    def policy(self) -> DecisionPolicy | None:
        """The policy."""
        return self.attached

    def regions(self) -> dict[str, RegionView]:
        """The regions."""
        return self.views


def region(name: str, intensity_g_per_kwh: float) -> RegionView:
    """A region with a day of hourly forecast."""
    reading = Reading(intensity_g_per_kwh, START_UNIX_S, "bench", SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
    points = [Point(START_UNIX_S + 3600.0 * hour, intensity_g_per_kwh * (1.0 + 0.01 * hour)) for hour in range(24)]
    signal = CarbonSignal(reading, stale_after_s=1e6, forecast=Series.from_points(points))
    return RegionView(name, signal, pue=1.2, wue_l_per_kwh=1.1, rtt_seconds=0.02)


POLICY = DecisionPolicy(
    name="bench/policy",
    ttft_slo_seconds=2.0,
    tpot_slo_seconds=0.08,
    quality_floor=0.5,
    allowed_regions=frozenset(REGIONS),
    include_embodied=True,
    include_water=True,
    holdout_percent=5,
)


class Pool:
    """Endpoints in service."""

    def __init__(self, endpoints: int, seed: int, models: LearnedModels | None) -> None:
        self.rng = np.random.default_rng(seed)
        self.now_s = 1_000.0
        self.states = tuple(self._state(i) for i in range(endpoints))
        self.open: list[tuple[EndpointState, Dispatch]] = []
        carbon = Carbon(POLICY, {name: region(name, value) for name, value in REGIONS.items()})
        context = PluginContext(carbon=carbon, random=Random(seed), models=lambda: models, instance="bench")
        self.pipeline = Pipeline(load_config("", builtin_registry(), context).scheduling, context)
        self.prompts = [self.rng.bytes(int(self.rng.integers(1_000, 16_000))) for _ in range(PREFIXES)]
        self.count = 0
        for state in self.states:
            self._scrape(state)
        for _ in range(OPEN_PER_ENDPOINT * endpoints):
            self._dispatch(self.states[int(self.rng.integers(endpoints))], self.request())

    def _state(self, i: int) -> EndpointState:
        names = available()
        engine = load(names[i % len(names)])
        hardware = Hardware(engine.accelerator, engine.tensor_parallel, engine.model, "both")
        traits = Traits(
            variant=f"bench/variant-{i % len(names)}",
            region=list(REGIONS)[i % len(REGIONS)],
            engine=engine,
            quality=0.9,
            price_per_hour=4.0,
            currency="USD",
            embodied=Embodied(164_000.0, 4 * 365 * 86_400.0),
            hardware=hardware,
            hardware_row=describe_hardware(hardware, engine).row(),
        )
        return EndpointState(Endpoint(f"engine-{i}", "bench", "10.0.0.1", 8_000 + i), traits)

    def request(self) -> LlmRequest:
        """The next request: one of some hundred prefixes with an ending of its own."""
        self.count += 1
        prompt = self.prompts[int(self.rng.integers(PREFIXES))] + self.rng.bytes(600)
        return LlmRequest(
            request_id=f"request-{self.count}",
            path="/v1/chat/completions",
            model="llama",
            prompt=prompt,
            prompt_tokens=len(prompt) // 4,
            max_output_tokens=512,
            expected_output_tokens=float(self.rng.integers(20, 400)),
            streaming=True,
        )

    def _dispatch(self, state: EndpointState, request: LlmRequest) -> None:
        tokens = float(request.prompt_tokens)
        dispatch = Dispatch(self.now_s, tokens, tokens, self.now_s + 0.05, request.expected_output_tokens, streams=True)
        state.inflight.add(dispatch, 0.02)
        self.open.append((state, dispatch))

    def _scrape(self, state: EndpointState) -> None:
        own = float(len(state.inflight))
        metrics = EngineMetrics(
            self.now_s,
            running=own + float(self.rng.integers(0, 3)),
            waiting=float(self.rng.random() < 0.1),
            kv_usage=min(0.9, 0.01 * own + 0.05 * float(self.rng.random())),
            block_size=16,
            num_blocks=20_000,
            power_watts=200.0 + 10.0 * own,
            sm_clock_mhz=1_410.0,
        )
        state.scraped(metrics)

    def advance(self) -> None:
        """Ten milliseconds of service: some pieces, some ends, some scrapes."""
        self.now_s += 0.01
        for _ in range(8):
            state, dispatch = self.open[int(self.rng.integers(len(self.open)))]
            state.inflight.piece(dispatch, self.now_s)
        state, dispatch = self.open.pop(0)
        state.inflight.remove(dispatch)
        for state in self.rng.choice(len(self.states), max(1, len(self.states) // 20), replace=False):
            self._scrape(self.states[int(state)])

    def decide(self, request: LlmRequest) -> Any:
        """What is timed."""
        return self.pipeline.run(request, self.states, self.now_s, START_UNIX_S + self.now_s)

    def follow(self, request: LlmRequest, result: Any) -> None:
        """Send the request where the decision says."""
        state = result.pick.options[0].state
        self._dispatch(state, request)
        self.pipeline.routed(request, state)


def measure(pool: Pool, decisions: int) -> dict[str, float]:
    """CPU microseconds of single decisions."""
    microseconds = []
    for _ in range(decisions):
        pool.advance()
        request = pool.request()
        started = time.thread_time_ns()
        result = pool.decide(request)
        microseconds.append((time.thread_time_ns() - started) / 1e3)
        pool.follow(request, result)
    kept = microseconds[len(microseconds) // 10 :]
    return {f"p{q}": float(np.percentile(kept, q)) for q in (5, 50, 95, 99)}


def least_disturbed(
    endpoints: int, seed: int, kinds: dict[str, LearnedModels | None], *, decisions: int, runs: int
) -> dict[str, dict[str, float]]:
    """Of each kind the run with the lowest median; kinds take turns."""
    measured: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(runs):
        for kind, models in kinds.items():
            measured[kind].append(measure(Pool(endpoints, seed, models), decisions))
    return {kind: min(of_kind, key=lambda run: run["p50"]) for kind, of_kind in measured.items()}


def measure_undecided(pool: Pool, decisions: int) -> dict[str, float]:
    """CPU microseconds of the features of one chosen endpoint, which a picker that learns makes without a policy."""
    regions = {name: region(name, value) for name, value in REGIONS.items()}
    rows = ChosenRows()
    microseconds = []
    for _ in range(decisions):
        pool.advance()
        request = pool.request()
        result = pool.decide(request)
        started = time.thread_time_ns()
        rows.row(request, result.pick.options[0], regions, START_UNIX_S + pool.now_s)
        microseconds.append((time.thread_time_ns() - started) / 1e3)
        pool.follow(request, result)
    kept = microseconds[len(microseconds) // 10 :]
    return {f"p{q}": float(np.percentile(kept, q)) for q in (5, 50, 95, 99)}


def profile(pool: Pool, decisions: int) -> str:
    """Where the time goes, by function."""
    profiler = cProfile.Profile()
    for _ in range(decisions):
        pool.advance()
        request = pool.request()
        profiler.enable()
        result = pool.decide(request)
        profiler.disable()
        pool.follow(request, result)
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(30)
    return text.getvalue()


def main() -> None:
    """Run, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer decisions, smaller training set")
    parser.add_argument("--endpoints", type=int, nargs="+", default=[9, 64, 256])
    parser.add_argument("--profile", action="store_true", help="print where the time goes for the first pool")
    parser.add_argument("--output", type=Path, default=Path("build/bench/decide.json"))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    models = LearnedModels(trained(arguments.seed, 2_000 if arguments.quick else 10_000))
    models.warm_up()
    if arguments.profile:
        print(profile(Pool(arguments.endpoints[0], arguments.seed, models), 500))
        return
    decisions = 500 if arguments.quick else 3_000
    report: dict[str, Any] = {
        "machine": describe(),
        "seed": arguments.seed,
        "decisions": decisions,
        "runs": arguments.runs,
        "pools": [],
    }
    kinds = {"analytic_cpu_us": None, "learned_cpu_us": models}
    for endpoints in arguments.endpoints:
        report["pools"].append(
            {
                "endpoints": endpoints,
                **least_disturbed(endpoints, arguments.seed, kinds, decisions=decisions, runs=arguments.runs),
            }
        )
    report["undecided_row_cpu_us"] = measure_undecided(Pool(9, arguments.seed, None), decisions)
    report["spin_milliseconds_after"] = spin_milliseconds()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
