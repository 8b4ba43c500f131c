"""Fits find the model that made the measurements, and sums over steps are sums over the model's own steps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine import calibration
from heliotrope.engine.calibration import EnergyRun, TimedRun
from heliotrope.engine.leastsquares import Fit
from heliotrope.engine.model import EngineModel, ModelError
from heliotrope.engine.roofline import A100_40GB, H100_80GB, LLAMA_3_8B
from heliotrope.engine.work import Work, decode_work, generation_work, prefill_work


def coefficients(model: EngineModel) -> np.ndarray:
    p, d = model.prefill, model.decode
    return np.array(
        [
            p.seconds_per_token_below,
            p.seconds_per_token_above,
            p.base_seconds,
            p.seconds_per_request,
            p.seconds_per_token_squared,
            *d.alpha_seconds,
            *d.beta_seconds_per_token,
        ]
    )


@given(batch=st.integers(1, 64), prompt=st.integers(1, 3000), output=st.integers(2, 60))
@settings(max_examples=30, deadline=None)
def test_a_generation_is_the_sum_of_its_steps(model: EngineModel, batch: int, prompt: int, output: int) -> None:
    budget = 8192
    work = generation_work(batch, prompt, output, budget)
    total = batch * prompt
    steps = -(-total // budget)
    prefill = sum(model.prefill_seconds(total / steps, 0.0, 0.0) for _ in range(steps))
    prefill += model.prefill.seconds_per_request * batch + model.prefill.seconds_per_token_squared * batch * prompt**2
    decode = sum(model.decode_seconds(batch, batch * (prompt + i)) for i in range(1, output))
    seconds = work.time_features(model.prefill.knee_tokens) @ coefficients(model)
    assert seconds == pytest.approx(prefill + decode, rel=1e-9)


def test_a_decode_step_is_a_step_of_the_model(model: EngineModel) -> None:
    seconds = decode_work(7.0, 300.0).time_features(model.prefill.knee_tokens) @ coefficients(model)
    assert seconds == pytest.approx(model.decode_seconds(7.0, 2100.0))


def test_work_counts_flops_and_bytes() -> None:
    work = generation_work(2, 10, 3, 8192)
    # One prefill step, then two decode steps in which both sequences attend to 11 and to 12 tokens.
    assert work.cached == 2 * (11 + 12)
    assert work.bytes_moved(LLAMA_3_8B) == pytest.approx(LLAMA_3_8B.step_bytes(3, work.cached))
    assert work.flops(LLAMA_3_8B) == pytest.approx(
        LLAMA_3_8B.prefill_flops(20, 2, 200) + LLAMA_3_8B.decode_flops(4, work.cached)
    )


def synthetic_runs(truth: np.ndarray, knee: float) -> list[TimedRun]:
    works = [
        ("prefill", prefill_work(n * r, r, n * n * r)) for n in (16, 64, 200, 400, 1000, 4000, 12000) for r in (1, 8)
    ]
    works += [
        ("decode", generation_work(b, length, length, 8192)) for b in (1, 4, 16, 64) for length in (128, 512, 2048)
    ]
    return [
        TimedRun(phase, phase, work, float(work.time_features(knee) @ truth), 0.001)  # type: ignore[arg-type]
        for phase, work in works
    ]


def test_step_times_are_found_again() -> None:
    prior = calibration.time_prior(LLAMA_3_8B, A100_40GB, 1, max_batch=64)
    truth = prior.mean * np.array([1.4, 1.2, 0.8, 1.5, 1.3, 0.9, 1.6, 0, 0, 0.7, 0])
    fit = calibration.fit_time(synthetic_runs(truth, 160.0), prior)
    assert fit.knee_tokens == 160.0
    assert fit.decode.alpha_seconds[0] == pytest.approx(truth[5], rel=0.01)
    assert fit.decode.beta_seconds_per_token[1] == pytest.approx(truth[9], rel=0.02)
    assert fit.prefill.seconds_per_token_above == pytest.approx(truth[1], rel=0.01)
    assert fit.prefill.seconds_per_token_squared == pytest.approx(truth[4], rel=0.05)
    runs = synthetic_runs(truth, 160.0)
    np.testing.assert_allclose(fit.predict(runs), [run.seconds for run in runs], rtol=5e-3)


def test_without_long_prompts_attention_is_the_prior() -> None:
    prior = calibration.time_prior(LLAMA_3_8B, A100_40GB, 1, max_batch=64)
    truth = prior.mean * np.array([1, 1, 1, 1, 3, 1, 1, 0, 0, 1, 0])
    short = [run for run in synthetic_runs(truth, 160.0) if run.work.prefill_squares < 2e6]
    noisy = [replace(run, noise=0.05) for run in short]
    fit = calibration.fit_time(noisy, prior)
    assert fit.fit.prior_share[4] > 0.9
    assert fit.prefill.seconds_per_token_squared == pytest.approx(prior.mean[4], rel=0.2)


@given(
    # Seconds × B², and × B² per token: up to what makes the largest batch of the measured ones ten times slower.
    quadratic=st.floats(0.0, 4e-5),
    per_token=st.floats(0.0, 4e-8),
    max_batch=st.sampled_from([16, 64, 400, 1024]),
)
@settings(max_examples=30, deadline=None)
def test_no_measurement_makes_throughput_fall_with_the_batch(
    quadratic: float, per_token: float, max_batch: int
) -> None:
    prior = calibration.time_prior(LLAMA_3_8B, A100_40GB, 1, max_batch)
    truth = prior.mean + np.array([0, 0, 0, 0, 0, 0, 0, quadratic, 0, 0, per_token])
    decode = calibration.fit_time(synthetic_runs(truth, 160.0), prior, knees=(160.0,)).decode
    batches = np.arange(1.0, max_batch + 1.0)
    for length in (0.0, 100.0, 10_000.0):
        a0, a1, a2 = (
            alpha + beta * length
            for alpha, beta in zip(decode.alpha_seconds, decode.beta_seconds_per_token, strict=True)
        )
        per_sequence = (a0 + a1 * batches + a2 * batches**2) / batches
        assert (np.diff(per_sequence) <= 1e-9 * per_sequence[:-1]).all()


def test_beyond_the_measured_batches_the_line_goes_on() -> None:
    prior = calibration.time_prior(LLAMA_3_8B, A100_40GB, 1, max_batch=400)
    truth = prior.mean * np.array([1, 1, 1, 1, 1, 1.2, 1.5, 0, 0, 1, 0])
    runs = [
        replace(
            run,
            noise=0.03,
            seconds=run.seconds * (1.03 if run.work.decode_sequences > 50 * run.work.decode_steps else 1),
        )
        for run in synthetic_runs(truth, 160.0)
    ]
    decode = calibration.fit_time(runs, prior).decode
    # The largest of the measured batches took 3 % longer than the line says: no ground to bend it sixfold beyond.
    a0, a1, a2 = decode.alpha_seconds
    assert a2 * 400**2 < 0.05 * (a0 + a1 * 400)


def test_power_is_found_again() -> None:
    truth = np.array([150.0, 8e-13, 9e-11])
    works = [prefill_work(n) for n in (100, 1000, 8000)] + [generation_work(b, 500, 200, 8192) for b in (1, 8, 64, 256)]
    runs = [
        EnergyRun(
            "x",
            LLAMA_3_8B,
            work,
            seconds,
            float(np.array([seconds, work.flops(LLAMA_3_8B), work.bytes_moved(LLAMA_3_8B)]) @ truth),
            0.01,
        )
        for work, seconds in zip(works, (0.01, 0.05, 0.3, 2.0, 2.5, 5.0, 12.0), strict=True)
    ]
    fit = calibration.fit_power(runs, calibration.power_prior(H100_80GB))
    np.testing.assert_allclose(fit.fit.coefficients, truth, rtol=0.02)


def test_waiting_is_taken_out_at_idle_power() -> None:
    run = EnergyRun("x", LLAMA_3_8B, Work(), accelerator_seconds=10.0, joules=2000.0, noise=0.1)
    busy = run.without_waiting(busy_accelerator_seconds=4.0, idle_watts=100.0)
    assert (busy.accelerator_seconds, busy.joules) == (4.0, 1400.0)
    assert run.without_waiting(busy_accelerator_seconds=12.0, idle_watts=100.0) == run


def test_step_energy_is_power_times_time_in_another_form() -> None:
    prior = calibration.time_prior(LLAMA_3_8B, H100_80GB, 1, max_batch=64)
    ones = np.ones_like(prior.mean)
    time = calibration.TimeFit(256.0, Fit(prior.mean, 0.0, ones))
    power = calibration.PowerFit(Fit(np.array([200.0, 6e-13, 8e-11]), 0.0, np.ones(3)))
    energy, error = calibration.step_energy(time, power, LLAMA_3_8B, 2, max_batch=64)
    assert error < 0.02
    for batch, length in ((1.0, 100.0), (32.0, 1000.0), (64.0, 3000.0)):
        work = decode_work(batch, length)
        expected = power.joules(2 * time.seconds(work), work.flops(LLAMA_3_8B), work.bytes_moved(LLAMA_3_8B))
        joules = (
            energy.decode_base_joules
            + energy.decode_joules_per_request * batch
            + energy.decode_joules_per_cached_token * batch * length
        )
        assert joules == pytest.approx(expected, rel=0.02)


def test_the_clock_model_saves_what_it_was_told_at_the_knee() -> None:
    clock = calibration.clock_response(A100_40GB, 250.0, 810 / 1410, 0.37)
    assert clock.decode_knee_mhz == 810
    x = 810 / 1410
    idle = A100_40GB.unloaded_watts + (A100_40GB.idle_watts - A100_40GB.unloaded_watts) * x
    watts = idle + (250.0 - A100_40GB.idle_watts) * x**clock.decode_power_exponent
    assert watts * clock.decode_time(810, 1410) / 250.0 == pytest.approx(0.63)


def test_an_engine_is_put_together_from_its_hardware() -> None:
    prior = calibration.time_prior(LLAMA_3_8B, A100_40GB, 1, max_batch=64)
    time = calibration.TimeFit(256.0, Fit(prior.mean, 0.0, np.ones_like(prior.mean)))
    power = calibration.PowerFit(Fit(calibration.power_prior(A100_40GB).mean, 0.0, np.ones(3)))
    energy, _ = calibration.step_energy(time, power, LLAMA_3_8B, 1, max_batch=64)
    engine = calibration.engine_model(
        "mine",
        "my/model",
        LLAMA_3_8B,
        A100_40GB,
        1,
        time,
        energy,
        calibration.clock_response(A100_40GB, 250.0, 0.57, 0.3),
        ModelError(0.1, 0.1, 0.1),
        host_watts=37.5,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
    )
    assert (engine.idle_watts, engine.sleep_watts, engine.unloaded_watts) == (72.0, 72.0, 45.7)
    assert (engine.kv_bytes_per_token, engine.kv_capacity_tokens) == (131_072, 152_128)
    assert engine.clock_mhz == 1410
    assert engine.decode_seconds(1.0, 0.0) == pytest.approx(time.seconds(decode_work(1.0, 0.0)))
    assert EngineModel.from_mapping(engine.to_mapping()) == engine
