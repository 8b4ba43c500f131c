"""Samples, requests and clocks of the tests of learning."""

import numpy as np

from heliotrope.predict.features import FEATURE_COUNT, STEP_FEATURE_COUNT, STEP_FEATURES, FloatColumn, column_of
from heliotrope.predict.sample import Sample
from heliotrope.predict.targets import REQUESTS
from heliotrope_epp.outcomes.energy import MeteredInterval, MeteredSteps, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.transport.interface import Cause

NOW_UNIX = 1_700_000_000.0
_PROMPT, _RUNNING, _OUTPUT = (column_of(name) for name in ("prompt_tokens", "running", "expected_output_tokens"))
_SLOTS, _CACHED, _UNCACHED = (column_of(name) for name in ("max_num_seqs", "cached_tokens", "uncached_tokens"))
_ANALYTIC = tuple(
    column_of(name) for name in ("analytic_ttft_seconds", "analytic_tpot_seconds", "analytic_request_joules")
)


def row(rng: np.random.Generator) -> FloatColumn:
    """A request somewhere below saturation. The analytic model is off by a factor."""
    values = np.full(FEATURE_COUNT, np.nan)
    prompt, running, output = rng.uniform(50, 4_000), rng.integers(0, 40), rng.integers(2, 400)
    values[[_PROMPT, _CACHED, _UNCACHED, _RUNNING, _OUTPUT]] = prompt, 0.0, prompt, running, output
    values[_SLOTS] = 64.0
    ttft, tpot, joules = truth(values)
    values[list(_ANALYTIC)] = ttft * 1.6, tpot * 1.7, joules * 1.5
    return values


def truth(values: FloatColumn) -> tuple[float, float, float]:
    """TTFT, TPOT and joules of a row, as the engine of these tests has them."""
    tpot = 0.012 + 0.0006 * values[_RUNNING]
    return (
        float(0.02 + 1e-4 * values[_PROMPT] + 0.004 * values[_RUNNING]),
        float(tpot),
        float(0.1 * values[_PROMPT] + 0.8 * values[_OUTPUT]),
    )


def sample(
    rng: np.random.Generator, at_unix_s: float = NOW_UNIX, key: str | None = None, slower: float = 1.0
) -> Sample:
    """One believable observation with 2 % noise."""
    values = row(rng)
    labels = np.array(truth(values)) * rng.normal(1.0, 0.02, 3).clip(0.9, 1.1) * slower
    return Sample(REQUESTS, key or f"request-{rng.integers(1 << 60)}", at_unix_s, values, labels)


def samples(count: int, seed: int = 1, at_unix_s: float = NOW_UNIX, slower: float = 1.0) -> list[Sample]:
    """Several, a tenth of a second apart, the last one at `at_unix_s`."""
    rng = np.random.default_rng(seed)
    return [sample(rng, at_unix_s - (count - 1 - i) * 0.1, slower=slower) for i in range(count)]


def finished(values: FloatColumn | None, **changes: object) -> FinishedRequest:
    """A streamed answer of 11 tokens: TTFT 0.2 s, TPOT 0.05 s, all over after 0.7 s."""
    fields: dict[str, object] = {
        "request_id": "r1",
        "model": "m",
        "tenant": "",
        "request_class": "",
        "arm": "unsteered",
        "policy": None,
        "endpoint": "pod-1",
        "variant": None,
        "region": None,
        "streaming": True,
        "dispatched_s": 100.0,
        "first_s": 100.2,
        "last_s": 100.7,
        "ended_s": 100.7,
        "dispatched_unix_s": NOW_UNIX,
        "ended_unix_s": NOW_UNIX + 0.7,
        "status": 200,
        "cause": Cause.COMPLETE,
        "believed_prompt_tokens": 100,
        "believed_cached_tokens": 0.0,
        "expected_output_tokens": 50.0,
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "output_tokens": 11,
        "expected": None,
        "features": values,
    }
    return FinishedRequest(**fields | changes)  # type: ignore[arg-type]


def energy(millijoules: int = 42_000, coverage: float = 1.0) -> RequestEnergy:
    """What counters say of that request."""
    return RequestEnergy(NOW_UNIX, NOW_UNIX + 1.0, millijoules, 1.0, 1.0, 0.1, coverage)


def metered(**changes: object) -> MeteredInterval:
    """Five seconds of an engine that drew 2,000 J for requests, 500 J for others and 300 J idly."""
    fields: dict[str, object] = {
        "endpoint": "pod-1",
        "variant": None,
        "region": None,
        "model": "m",
        "start_unix_s": NOW_UNIX - 5.0,
        "end_unix_s": NOW_UNIX,
        "total_millijoules": 2_800_000,
        "requests_millijoules": 2_000_000,
        "others_millijoules": 500_000,
        "idle_millijoules": 300_000,
        "unattributed_millijoules": 0,
        "host_joules": 100.0,
        "steps": MeteredSteps(100.0, 2_500.0, 0.9, step_row(np.random.default_rng(3))),
    }
    return MeteredInterval(**fields | changes)  # type: ignore[arg-type]


def step_row(rng: np.random.Generator) -> FloatColumn:
    """A mean step of an engine whose analytic model is off by a factor."""
    values = np.full(STEP_FEATURE_COUNT, np.nan)
    columns = [column_of(name, STEP_FEATURES) for name in ("batch", "kv_tokens", "analytic_step_joules")]
    batch = rng.uniform(1.0, 60.0)
    values[columns] = batch, 500.0 * batch, 1.6 * step_truth(batch)
    return values


def step_truth(batch: float) -> float:
    """Joules of that step."""
    return 8.0 + 0.4 * batch


def metered_steps(count: int, seed: int = 1, at_unix_s: float = NOW_UNIX, **changes: object) -> list[MeteredInterval]:
    """Intervals in a row with 2 % noise, the last one ending at `at_unix_s`."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        row = step_row(rng)
        joules = step_truth(row[column_of("batch", STEP_FEATURES)]) * float(rng.normal(1.0, 0.02))
        end_unix_s = at_unix_s - 5.0 * (count - 1 - i)
        steps = MeteredSteps(100.0, 100.0 * joules, 0.9, row)
        found.append(metered(start_unix_s=end_unix_s - 5.0, end_unix_s=end_unix_s, steps=steps, **changes))
    return found
