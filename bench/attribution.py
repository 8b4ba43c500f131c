"""How wrong attributed joules are: the picker's meter on the simulator's engine, against the true shares.

    uv run python bench/attribution.py [--quick] [--output build/bench/attribution.json]

Joules of requests against each one's true share; the mean joules of an interval's steps, which learning takes, against
the true mean; and models trained on the latter against single steps of other runs.

Virtual time, so the machine's speed does not enter: the meter runs its real code, sees what a picker sees (pages each
0.2 s, progress of streams, bytes for tokens, usage at the end) and the engine's energy counter at the stated interval.
Requests are those of the recorded trace of conversations, with arrivals as a Poisson process.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe
from metered_engine import UNIX_OFFSET_S, Arrival, MeteredEngine
from step_labels import StepLabels, StepModel, step_labels, step_model

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope_sim.data import data_file
from heliotrope_sim.workload.trace import TraceRequest, load_azure

PROFILE = "llama-3.1-70b-h100-tp4"
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
COUNTER_SECONDS = (0.2, 1.0, 30.0)
WARM_UP_SECONDS = 65.0
"""Two changes of the slowest counter before the first request."""
LEARN_SECONDS = 120.0
"""Requests of this time teach and are not judged."""
BOOTSTRAPS = 2_000
BLOCK = 20
"""Requests in a row that are resampled together: neighbours share steps and so errors."""
MAX_TOKENS = 8_000
"""Longest prompt and answer that are served; the trace has few beyond."""
BELIEVED_PER_TOKEN = 1.15
BELIEVED_SPREAD = 0.1
"""Prompts in bytes / 4 are off by a factor that differs by prompt."""
OFF_PROFILE = 1.3


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table."""

    load: float
    streamed: bool
    counter_seconds: float
    known: str
    """`profile`: the picker has the engine's; `wrong`: one whose prefill and decode are off in opposite directions;
    `none`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def text(self) -> str:
        """In per cent."""
        return f"{100 * self.value:5.1f} [{100 * self.low:5.1f}, {100 * self.high:5.1f}]"


@dataclass(frozen=True, slots=True)
class Result:
    """Relative errors per request, and the error of the sum."""

    requests: int
    median: Interval
    mean: Interval
    bias: Interval
    total_error: float
    others_share: float
    """Energy that was taken for other clients', of which there are none."""
    idle_error: float
    """Relative to the busy energy."""
    steps: StepLabels


def capacity(model: EngineModel, trace: Sequence[TraceRequest]) -> float:
    """Requests per second that the engine completes when it never waits for any."""
    engine = MeteredEngine(model, known=model, counter_s=1.0)
    arrivals = [_arrival(0.0, request, streamed=True, random=np.random.default_rng(0)) for request in trace[:600]]
    engine.run(arrivals)
    return len(arrivals) / engine.busy_seconds


def load_of(trace: Sequence[TraceRequest], rate: float, *, requests: int, streamed: bool, seed: int) -> list[Arrival]:
    """Poisson arrivals of the trace's requests, in its order, after the warm-up."""
    random = np.random.default_rng(seed)
    now_s = WARM_UP_SECONDS
    arrivals = []
    count = requests + round(LEARN_SECONDS * rate)
    for request in trace[:count]:
        now_s += float(random.exponential(1.0 / rate))
        arrivals.append(_arrival(now_s, request, streamed=streamed, random=random))
    return arrivals


def _arrival(at_s: float, request: TraceRequest, *, streamed: bool, random: np.random.Generator) -> Arrival:
    believed = request.prompt_tokens * BELIEVED_PER_TOKEN * float(random.lognormal(0.0, BELIEVED_SPREAD))
    return Arrival(at_s, request.prompt_tokens, request.output_tokens, max(round(believed), 1), streamed)


def wrong(model: EngineModel) -> EngineModel:
    """The model with prefill too dear and decode too cheap by `OFF_PROFILE`."""
    e = model.energy
    return replace(
        model,
        energy=replace(
            e,
            prefill_base_joules=e.prefill_base_joules * OFF_PROFILE,
            prefill_joules_per_token=e.prefill_joules_per_token * OFF_PROFILE,
            prefill_joules_per_token_squared=e.prefill_joules_per_token_squared * OFF_PROFILE,
            decode_base_joules=e.decode_base_joules / OFF_PROFILE,
            decode_joules_per_request=e.decode_joules_per_request / OFF_PROFILE,
            decode_joules_per_cached_token=e.decode_joules_per_cached_token / OFF_PROFILE,
        ),
    )


def believed(model: EngineModel, known: str) -> EngineModel | None:
    """What the picker has of the engine, by the name in `Setting.known`."""
    return {"profile": model, "wrong": wrong(model), "none": None}[known]


def measure(model: EngineModel, setting: Setting, arrivals: Sequence[Arrival], seed: int) -> Result:
    """Run one setting.

    Raises:
        RuntimeError: if parts and counters do not add up, or a request has no energy.
    """
    engine = MeteredEngine(model, known=believed(model, setting.known), counter_s=setting.counter_seconds)
    outcomes = engine.run(arrivals)
    (picker,) = engine.pickers
    judged = [outcome for outcome in outcomes if outcome.arrival.at_s >= WARM_UP_SECONDS + LEARN_SECONDS]
    if any(outcome.energy is None or outcome.energy.coverage < 0.999 for outcome in judged):
        raise RuntimeError("a request has no energy")
    if sum(each.millijoules for each in picker.energies.values() if each) != sum(
        interval.requests_millijoules for interval in picker.intervals
    ):
        raise RuntimeError("requests and intervals do not add up")
    got = np.array([outcome.energy.millijoules / 1_000.0 for outcome in judged if outcome.energy is not None])
    true = np.array([outcome.true_joules for outcome in judged])
    errors = got / true - 1.0
    busy = engine.engine.energy.busy_picojoules / 1e12
    idle = engine.engine.energy.idle_picojoules / 1e12
    first_s = picker.intervals[0].start_unix_s - UNIX_OFFSET_S
    counted_idle = sum(interval.idle_millijoules for interval in picker.intervals) / 1_000.0
    uncounted_idle = first_s * model.idle_watts
    return Result(
        requests=len(judged),
        median=_bootstrap(np.abs(errors), np.median, seed),
        mean=_bootstrap(np.abs(errors), np.mean, seed),
        bias=_bootstrap(errors, np.mean, seed),
        total_error=float(got.sum() / true.sum() - 1.0),
        others_share=sum(interval.others_millijoules for interval in picker.intervals) / 1_000.0 / busy,
        idle_error=(counted_idle + uncounted_idle - idle) / busy,
        steps=step_labels(engine, picker.intervals),
    )


def _bootstrap(values: np.ndarray, statistic: Any, seed: int) -> Interval:
    """95 % percentile interval of a moving-block bootstrap."""
    random = np.random.default_rng(seed)
    count = len(values)
    starts = random.integers(0, count, size=(BOOTSTRAPS, -(-count // BLOCK)))
    rows = (starts[:, :, None] + np.arange(BLOCK)).reshape(BOOTSTRAPS, -1)[:, :count] % count
    low, high = np.percentile(statistic(values[rows], axis=1), [2.5, 97.5])
    return Interval(float(statistic(values)), float(low), float(high))


def settings(*, quick: bool) -> Iterator[Setting]:
    """All lines, slow counters of streams first."""
    loads = (0.3, 0.9) if quick else LOADS
    for known in ("profile", "wrong", "none"):
        for streamed in (True, False):
            for load in loads:
                for seconds in COUNTER_SECONDS if known == "profile" else (1.0,):
                    yield Setting(load, streamed, seconds, known)


def model_of_steps(
    model: EngineModel, known: str, trace: Sequence[TraceRequest], most: float, requests: int
) -> StepModel:
    """Train on the intervals of some runs and judge by others, each of them over all loads."""

    def run(load: float, seed: int) -> MeteredEngine:
        engine = MeteredEngine(model, known=believed(model, known), counter_s=1.0)
        engine.run(load_of(trace, most * load, requests=requests, streamed=True, seed=seed))
        return engine

    training = [run(load, 100 + i) for i, load in enumerate(LOADS)]
    return step_model(training, [run(load, 200 + i) for i, load in enumerate(LOADS)])


def _print_steps(results: Sequence[tuple[Setting, StepLabels]]) -> None:
    print("\nerrors of the mean joules of an interval's steps in %; intervals that learning takes, of those with work")
    print(f"{'profile':8} {'answers':9} {'load':>5} {'counter':>8} {'taken':>10} {'median':>7} {'90 %':>6} {'bias':>6}")
    for setting, steps in results:
        print(
            f"{setting.known:8} {'streamed' if setting.streamed else 'whole':9} {setting.load:5.0%} "
            f"{setting.counter_seconds:6.1f} s {f'{steps.taken}/{steps.with_work}':>10} {100 * steps.median:7.2f} "
            f"{100 * steps.ninetieth:6.2f} {100 * steps.bias:6.2f}"
        )


def _print_models(models: Mapping[str, StepModel]) -> None:
    print(
        "\nmean |error| of the energy of steps of other runs in %: a model trained on such labels, and the picker's own"
    )
    print(f"{'profile':8} {'labels':>6} {'interval':>16} {'decode step':>16} {'prefill step':>16}")
    for known, found in models.items():
        columns = "".join(
            f" {100 * learned:7.2f} {100 * analytic:8.2f}"
            for learned, analytic in (found.interval, found.decode, found.prefill)
        )
        print(f"{known:8} {found.trained_on:6}{columns}".replace("nan", "  -"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer loads and requests")
    parser.add_argument("--output", type=Path, default=Path("build/bench/attribution.json"))
    arguments = parser.parse_args()
    model = profiles.load(PROFILE)
    trace = [
        request
        for request in load_azure(data_file("azure-llm-2023/conv_first_20min.csv"))
        if request.prompt_tokens <= MAX_TOKENS and 0 < request.output_tokens <= MAX_TOKENS
    ]
    most = capacity(model, trace)
    requests = 300 if arguments.quick else 1_000
    print(f"{PROFILE}, at most {most:.2f} requests/s; {requests} requests a line; errors of joules per request in %")
    columns = "".join(f" {name:>22}" for name in ("median |error|", "mean |error|", "bias"))
    print(f"{'profile':8} {'answers':9} {'load':>5} {'counter':>8}{columns}")
    lines = []
    results: list[tuple[Setting, StepLabels]] = []
    for number, setting in enumerate(settings(quick=arguments.quick)):
        arrivals = load_of(trace, most * setting.load, requests=requests, streamed=setting.streamed, seed=number)
        result = measure(model, setting, arrivals, seed=number)
        results.append((setting, result.steps))
        lines.append({"setting": asdict(setting), "result": asdict(result)})
        print(
            f"{setting.known:8} {'streamed' if setting.streamed else 'whole':9} {setting.load:5.0%} "
            f"{setting.counter_seconds:6.1f} s {result.median.text():>22} {result.mean.text():>22} "
            f"{result.bias.text():>22}",
            flush=True,
        )
    _print_steps(results)
    models = {
        known: model_of_steps(model, known, trace, most, 150 if arguments.quick else 600)
        for known in ("profile", "wrong", "none")
    }
    _print_models(models)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": describe(), "profile": PROFILE, "requests_per_second_at_most": most, "lines": lines}
    document["models_of_steps"] = {known: asdict(found) for known, found in models.items()}
    arguments.output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"\nwritten to {arguments.output}")


if __name__ == "__main__":
    main()
