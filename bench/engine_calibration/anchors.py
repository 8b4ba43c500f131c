"""The paper's measured anchors against ours: three Llama-3.1-8B engines on A100-40GB behind round robin.

Paper carbon-slo-tension, §V-B: CNN-DailyMail prompts (mean 841 tokens in, 71 out), Poisson arrivals from 2 to 50 req/s,
19 rates and over 40,000 requests, so about 2,100 per rate. Nothing is tuned to the anchors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from heliotrope.engine.leastsquares import Array
from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine import Engine, Request

ENGINES = 3
MEAN_PROMPT_TOKENS, MEAN_OUTPUT_TOKENS = 841, 71
PROMPT_VARIATION, OUTPUT_VARIATION = 0.5, 0.4
"""Coefficients of variation: assumed, the paper prints means only. Lengths are log-normal."""
BATCH_CAPACITY = 40
"""The paper's batch capacity of an engine at TP=1 (table II)."""
REQUESTS = 2_100
RATES = (2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
SEED = 841_071
NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Load:
    """What requests saw at one arrival rate."""

    rate: float
    completed_per_second: float
    """Between the first and the last tenth of completions."""
    mean_ttft: float
    longest_ttft: float
    mean_tpot: float
    joules_per_request: float
    """Accelerators, idle time up to the last completion included; no host."""
    mean_batch: float


def serve(model: EngineModel, rate: float, *, batch_capacity: int = BATCH_CAPACITY, requests: int = REQUESTS) -> Load:
    """Serve Poisson arrivals on engines that take turns."""
    random = np.random.default_rng(SEED)
    arrivals = np.cumsum(random.exponential(1 / rate, requests))
    prompts = _lengths(random, requests, MEAN_PROMPT_TOKENS, PROMPT_VARIATION)
    outputs = _lengths(random, requests, MEAN_OUTPUT_TOKENS, OUTPUT_VARIATION)
    engines = [Engine(model, max_num_seqs=batch_capacity) for _ in range(ENGINES)]
    sequences = [
        engines[i % ENGINES].submit(
            Request(str(i), int(prompts[i]), max(2, int(outputs[i]))), round(arrivals[i] * NANOSECONDS)
        )
        for i in range(requests)
    ]
    for index, engine in enumerate(engines):
        _drain(engine, [round(arrivals[i] * NANOSECONDS) for i in range(index, requests, ENGINES)])
    end = max(sequence.finished_ns or 0 for sequence in sequences)
    ttft = np.array([(sequence.first_token_ns or 0) - sequence.queued_ns for sequence in sequences]) / NANOSECONDS
    residence = np.array([(s.finished_ns or 0) - (s.first_token_ns or 0) for s in sequences]) / NANOSECONDS
    tokens = np.array([sequence.generated - 1 for sequence in sequences])
    finished = np.sort([sequence.finished_ns or 0 for sequence in sequences]) / NANOSECONDS
    first, last = requests // 10, requests - requests // 10
    return Load(
        rate=rate,
        completed_per_second=(last - first) / float(finished[last] - finished[first]),
        mean_ttft=float(ttft.mean()),
        longest_ttft=float(ttft.max()),
        mean_tpot=float((residence / tokens).mean()),
        joules_per_request=sum(engine.energy.millijoules(end) for engine in engines) / 1e3 / requests,
        mean_batch=float(residence.sum()) / (end / NANOSECONDS) / ENGINES,
    )


def _drain(engine: Engine, arrivals: list[int]) -> None:
    now, upcoming = 0, iter(arrivals)
    while True:
        result = engine.step(now)
        if result is not None:
            now = result.end_ns
            continue
        arrival = next((t for t in upcoming if t > now), None)
        if arrival is None:
            return
        now = arrival


def _lengths(random: np.random.Generator, count: int, mean: float, variation: float) -> Array:
    spread = np.sqrt(np.log1p(variation**2))
    lengths: Array = np.rint(random.lognormal(np.log(mean) - spread**2 / 2, spread, count))
    return np.clip(lengths, 2, 4096)


@dataclass(frozen=True, slots=True)
class Anchor:
    """One number of the paper beside ours."""

    what: str
    paper: str
    ours: str


def compare(loads: list[Load]) -> list[Anchor]:
    """The paper's anchors."""
    lowest, highest = loads[0], loads[-1]
    return [
        Anchor("saturated capacity of three engines, req/s", "27.58", f"{highest.completed_per_second:.2f}"),
        Anchor("mean TPOT at 2 req/s, ms", "15.5", f"{lowest.mean_tpot * 1e3:.1f}"),
        Anchor("mean TPOT at 50 req/s, ms", "54", f"{highest.mean_tpot * 1e3:.1f}"),
        Anchor("mean TTFT unloaded, ms", "71", f"{lowest.mean_ttft * 1e3:.0f}"),
        Anchor(
            "TTFT at 50 req/s, s",
            "over 20",
            f"{highest.mean_ttft:.1f} mean, {highest.longest_ttft:.1f} longest",
        ),
    ]


SENSITIVITY_RATES = (4.0, 24.0)
SENSITIVITY_REQUESTS = 600

Loads = dict[float, Load]
"""By arrival rate."""


def sensitivity(model: EngineModel) -> list[tuple[str, Loads, Loads]]:
    """What halving and doubling each coefficient that no measurement isolates does, at a low and at a high load."""

    def served(changed: EngineModel) -> Loads:
        return {rate: serve(changed, rate, requests=SENSITIVITY_REQUESTS) for rate in SENSITIVITY_RATES}

    unchanged = served(model)
    changed = [(name, served(change(model, 0.5)), served(change(model, 2.0))) for name, change in CHANGES.items()]
    return [("(unchanged)", unchanged, unchanged), *changed]


def _per_request(model: EngineModel, factor: float) -> EngineModel:
    return replace(
        model,
        prefill=replace(model.prefill, seconds_per_request=model.prefill.seconds_per_request * factor),
    )


def _squared_time(model: EngineModel, factor: float) -> EngineModel:
    p = model.prefill
    return replace(model, prefill=replace(p, seconds_per_token_squared=p.seconds_per_token_squared * factor))


def _squared_energy(model: EngineModel, factor: float) -> EngineModel:
    e = model.energy
    joules = e.prefill_joules_per_token_squared * factor
    return replace(model, energy=replace(e, prefill_joules_per_token_squared=joules))


def _cached_energy(model: EngineModel, factor: float) -> EngineModel:
    e = model.energy
    joules = e.decode_joules_per_cached_token * factor
    return replace(model, energy=replace(e, decode_joules_per_cached_token=joules))


def _idle(model: EngineModel, factor: float) -> EngineModel:
    return replace(model, idle_watts=model.idle_watts * factor)


CHANGES: dict[str, Callable[[EngineModel, float], EngineModel]] = {
    "prefill.seconds_per_request (b1)": _per_request,
    "prefill.seconds_per_token_squared (b2)": _squared_time,
    "energy.prefill_joules_per_token_squared (e_a)": _squared_energy,
    "energy.decode_joules_per_cached_token (e_k)": _cached_energy,
    "idle_watts": _idle,
}
