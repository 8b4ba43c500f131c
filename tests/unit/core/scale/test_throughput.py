"""SLO-feasible throughput: its shape, its parts, and how far it is from simulated engines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.workloadvariant import EnergyPoint, Phase
from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope.scale.facts import Mix
from heliotrope.scale.throughput import (
    ATTAINMENT,
    LONGEST_CORRECTION,
    Bound,
    Correction,
    Promise,
    corrected,
    correction_of,
    from_measurements,
    latency,
    throughput,
)
from heliotrope_sim.engine import Engine, Request

SMALL = profiles.load("llama-3.1-8b-h100")
LARGE = profiles.load("llama-3.1-70b-h100-tp4")
MIX = Mix(1_000.0, 200.0)
PROMISE = Promise(1.0, 0.08)


def simulated(
    model: EngineModel, mix: Mix, rate: float, role: Role = Role.BOTH, count: int = 1_500
) -> tuple[np.ndarray, np.ndarray]:
    """TTFT and TPOT in seconds of Poisson arrivals at an engine; the first fifth is left out."""
    rng = np.random.default_rng(1)

    def lengths(mean: float, variation: float) -> np.ndarray:
        if variation == 0.0:
            return np.full(count, int(mean))
        return np.maximum(rng.gamma(1.0 / variation**2, mean * variation**2, count).astype(int), 2)

    arrivals = (np.cumsum(rng.exponential(1.0 / rate, count)) * 1e9).astype(np.int64)
    prompts = np.minimum(lengths(mix.prompt_tokens, mix.prompt_variation), 30_000)
    outputs = np.ones(count, int) if role is Role.PREFILL else lengths(mix.output_tokens, mix.output_variation)
    engine, now, submitted, finished = Engine(model), 0, 0, 0
    first, last = np.zeros(count), np.zeros(count)
    while finished < count:
        while submitted < count and arrivals[submitted] <= now:
            engine.submit(
                Request(str(submitted), int(prompts[submitted]), int(outputs[submitted])), int(arrivals[submitted])
            )
            submitted += 1
        step = engine.step(now)
        if step is None:
            now = max(int(arrivals[submitted]), now + 1)
            continue
        now = step.end_ns
        for sequence in step.first_tokens:
            first[int(sequence.request.request_id)] = now
        for sequence in step.finished:
            last[int(sequence.request.request_id)] = now
            finished += 1
    ttft = (first - arrivals) / 1e9
    tpot = (last - first) / np.maximum(outputs - 1, 1) / 1e9
    return ttft[count // 5 :], tpot[count // 5 :]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mix", "promise"),
    [
        ("llama-3.1-8b-h100", Mix(512, 128), Promise(0.5, 0.05)),
        ("llama-3.1-8b-h100", Mix(2_000, 200), Promise(2.0, 0.1)),
        ("llama-3.1-8b-h100", Mix(200, 300, 0.0, 0.0), Promise(0.5, 0.05)),
        ("llama-3.1-70b-h100-tp4", Mix(512, 128), Promise(2.0, 0.1)),
        ("llama-3.1-70b-h100-tp4", Mix(1_000, 300, 0.5, 0.5), Promise(2.0, 0.1)),
        ("llama-3.1-8b-a100-40gb", Mix(1_000, 200, 0.5, 0.5), Promise(2.0, 0.1)),
        ("mixtral-8x7b-a100-40gb-tp4", Mix(512, 128, 0.5, 0.5), Promise(2.0, 0.15)),
    ],
)
def test_simulated_engines_keep_the_promise_at_the_predicted_load_and_break_it_above(
    name: str, mix: Mix, promise: Promise
) -> None:
    model = profiles.load(name)
    told = throughput(model, mix, promise)

    def kept(rate: float) -> float:
        ttft, tpot = simulated(model, mix, rate)
        return min(float((ttft <= promise.ttft_seconds).mean()), float((tpot <= promise.tpot_seconds).mean()))

    # A promise of 95 % is kept by 90 % at least 5 % below the predicted load, and broken a quarter above.
    assert kept(0.95 * told.requests_per_second) >= 0.9
    assert kept(1.25 * told.requests_per_second) < ATTAINMENT


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("model", [SMALL, LARGE])
def test_mean_latencies_are_those_of_simulated_engines(model: EngineModel, share: float) -> None:
    rate = share * throughput(model, MIX, PROMISE).requests_per_second
    told = latency(model, MIX, rate, PROMISE.ttft_seconds)
    ttft, tpot = simulated(model, MIX, rate)
    assert told.ttft_seconds == pytest.approx(float(ttft.mean()), rel=0.15)
    assert told.tpot_seconds == pytest.approx(float(tpot.mean()), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("model", [SMALL, LARGE])
def test_prefill_engines_keep_ttft_at_the_predicted_load(model: EngineModel) -> None:
    told = throughput(model, MIX, PROMISE, Role.PREFILL)
    below, _ = simulated(model, MIX, 0.9 * told.requests_per_second, Role.PREFILL)
    above, _ = simulated(model, MIX, 1.25 * told.requests_per_second, Role.PREFILL, 3_000)
    assert (below <= PROMISE.ttft_seconds).mean() >= 0.9
    assert (above <= PROMISE.ttft_seconds).mean() < ATTAINMENT


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(profiles.available()),
    st.floats(50.0, 4_000.0),
    st.floats(2.0, 800.0),
    st.floats(0.2, 5.0),
    st.floats(0.02, 0.2),
    st.sampled_from(list(Role)),
)
def test_looser_promises_never_lower_throughput(
    name: str, prompt: float, output: float, ttft: float, tpot: float, role: Role
) -> None:
    model, mix = profiles.load(name), Mix(prompt, output)
    tight = throughput(model, mix, Promise(ttft, tpot), role).requests_per_second
    loose = throughput(model, mix, Promise(1.5 * ttft, 1.5 * tpot), role).requests_per_second
    assert 0.0 <= tight <= loose * (1.0 + 1e-6)
    assert np.isfinite(loose)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(profiles.available()), st.floats(50.0, 3_000.0), st.floats(2.0, 500.0), st.floats(0.05, 0.95))
def test_latency_grows_with_load(name: str, prompt: float, output: float, share: float) -> None:
    model, mix = profiles.load(name), Mix(prompt, output)
    most = throughput(model, mix, Promise(5.0, 0.3)).requests_per_second
    less, more = (latency(model, mix, factor * share * most, 5.0) for factor in (0.9, 1.0))
    if more.stable:
        assert less.ttft_seconds <= more.ttft_seconds * (1.0 + 1e-9)
        assert less.tpot_seconds <= more.tpot_seconds * (1.0 + 1e-9)
        assert less.ttft_kept >= more.ttft_kept - 1e-9


def test_what_binds_is_said() -> None:
    assert throughput(SMALL, MIX, Promise(10.0, 0.012)).bound is Bound.TPOT
    assert throughput(SMALL, MIX, Promise(0.15, 1.0)).bound is Bound.TTFT
    never = throughput(SMALL, MIX, Promise(0.001, 1.0))
    assert (never.requests_per_second, never.bound) == (0.0, Bound.NEVER)
    assert throughput(LARGE, MIX, Promise(10.0, 0.001)).bound is Bound.NEVER


def test_shorter_requests_are_more_per_second() -> None:
    assert (
        throughput(SMALL, Mix(500.0, 100.0), PROMISE).requests_per_second
        > throughput(SMALL, Mix(1_000.0, 200.0), PROMISE).requests_per_second
    )


def test_slower_clocks_carry_less() -> None:
    slow = throughput(SMALL.at_clock(900), MIX, PROMISE).requests_per_second
    assert slow < throughput(SMALL, MIX, PROMISE).requests_per_second


def test_phases_apart() -> None:
    prefill = throughput(SMALL, MIX, PROMISE, Role.PREFILL)
    decode = throughput(SMALL, MIX, PROMISE, Role.DECODE)
    both = throughput(SMALL, MIX, PROMISE).requests_per_second
    assert prefill.requests_per_second > both
    assert decode.requests_per_second > 0.5 * both
    longer = Mix(4_000.0, 200.0)
    ratio = decode.requests_per_second / prefill.requests_per_second
    long_prefill = throughput(SMALL, longer, PROMISE, Role.PREFILL)
    long_decode = throughput(SMALL, longer, PROMISE, Role.DECODE)
    assert long_decode.requests_per_second / long_prefill.requests_per_second > ratio


def test_energy_is_that_above_idle() -> None:
    told = throughput(SMALL, MIX, PROMISE)
    assert told.capacity.idle_watts == SMALL.idle_watts
    assert told.capacity.host_watts == SMALL.host_watts
    assert told.capacity.joules_per_request is not None
    # A busy engine draws more than an idle one, and no more than its accelerators can.
    full = SMALL.idle_watts + told.capacity.joules_per_request * told.requests_per_second
    assert SMALL.idle_watts < full < 700.0


@pytest.mark.slow
def test_energy_above_idle_is_that_of_a_simulated_engine() -> None:
    told = throughput(SMALL, MIX, PROMISE)
    assert told.capacity.joules_per_request is not None
    rng = np.random.default_rng(2)
    count = 1_500
    arrivals = (np.cumsum(rng.exponential(1.0 / told.requests_per_second, count)) * 1e9).astype(np.int64)
    prompts, outputs = rng.exponential(1_000.0, count).astype(int) + 1, rng.exponential(200.0, count).astype(int) + 1
    engine, now, submitted, joules, busy = Engine(SMALL), 0, 0, 0.0, 0
    while submitted < count or engine.in_flight:
        while submitted < count and arrivals[submitted] <= now:
            engine.submit(
                Request(str(submitted), int(prompts[submitted]), int(outputs[submitted])), int(arrivals[submitted])
            )
            submitted += 1
        step = engine.step(now)
        if step is None:
            if submitted == count:
                break
            now = max(int(arrivals[submitted]), now + 1)
            continue
        joules, busy, now = joules + step.joules, busy + step.duration_ns, step.end_ns
    above = (joules - SMALL.idle_watts * busy / 1e9) / count
    assert told.capacity.joules_per_request == pytest.approx(above, rel=0.15)


def test_corrections_are_bounded_and_scale_times() -> None:
    """ai-dynamo/dynamo#2511: cold starts made correction factors overshoot."""
    told = Promise(0.2, 0.02)
    assert correction_of(told, Promise(60.0, 0.02)) == Correction(LONGEST_CORRECTION, 1.0)
    assert correction_of(told, Promise(0.1, 0.03)).prefill == 0.5
    assert correction_of(told, Promise(0.1, 0.03)).decode == pytest.approx(1.5)
    assert correction_of(told, Promise(float("nan"), 0.0)) == Correction()
    slower = corrected(SMALL, Correction(2.0, 1.5))
    assert slower.prefill_seconds(500.0) == pytest.approx(2.0 * SMALL.prefill_seconds(500.0))
    assert slower.decode_seconds(8.0, 4_000.0) == pytest.approx(1.5 * SMALL.decode_seconds(8.0, 4_000.0))
    assert (
        throughput(SMALL, MIX, PROMISE, correction=Correction(2.0, 1.5)).requests_per_second
        < throughput(SMALL, MIX, PROMISE).requests_per_second
    )


def test_measured_profiles() -> None:
    points = (
        EnergyPoint(
            phase=Phase.PREFILL, sm_clock_mhz=1980, tokens_per_second=20_000.0, joules_per_token=0.03, watts=600
        ),
        EnergyPoint(
            phase=Phase.PREFILL, sm_clock_mhz=1200, tokens_per_second=12_000.0, joules_per_token=0.025, watts=300
        ),
        EnergyPoint(phase=Phase.DECODE, sm_clock_mhz=1980, tokens_per_second=2_000.0, joules_per_token=0.2, watts=400),
    )
    told = from_measurements(points, MIX, Promise(1.0, 0.05), 100.0)
    assert told is not None
    # 1,000 / 20,000 + 199 / 2,000 s of work each.
    assert told.requests_per_second < 1.0 / 0.1495
    assert told.requests_per_second > 0.5 / 0.1495
    assert told.capacity.joules_per_request == pytest.approx(1_000 * 0.03 + 199 * 0.2 - 100.0 * 0.1495)
    slow = from_measurements(points, MIX, Promise(1.0, 0.05), 100.0, clock_mhz=1_200)
    assert slow is not None
    assert slow.requests_per_second < told.requests_per_second
    assert from_measurements((), MIX, PROMISE, None) is None
    unknown = from_measurements(points, MIX, PROMISE, None)
    assert unknown is not None
    assert unknown.capacity.joules_per_request is None
    out = from_measurements(points, MIX, Promise(0.01, 0.05), 100.0)
    assert out is not None
    assert out.bound is Bound.NEVER


def test_memory_bounds_the_batch() -> None:
    tiny = replace(SMALL, kv_capacity_tokens=8_000)
    assert (
        throughput(tiny, MIX, PROMISE).requests_per_second < 0.5 * throughput(SMALL, MIX, PROMISE).requests_per_second
    )
