"""Coefficients of hardware, refitted to requests whose laws are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from heliotrope.predict.costs import CLOCK_STEP_MHZ, MIN_SAMPLES, TERMS, fit_costs, kinds_of, non_negative_fit
from heliotrope.predict.features import (
    EndpointInputs,
    HardwareDescription,
    Matrix,
    RequestInputs,
    column_of,
    hardware_matrix,
    request_rows,
)
from heliotrope.predict.models import Bases
from heliotrope.predict.targets import Target

NAN = float("nan")
TRUE = np.array([0.006, 4e-5, 2e-8, 0.004, 6e-5, 0.001, 1e-9])
"""Of TTFT: a decode step, per sequence, per cached token; a prefill step, per token, per prompt, per square."""


def requests(n: int, seed: int, *, profile: bool = False, clock_mhz: float = 1_400.0) -> Matrix:
    rng = np.random.default_rng(seed)
    hardware = HardwareDescription(
        accelerator="A100",
        model="m",
        role="both",
        tensor_parallel=1.0,
        prefill_base_seconds=0.008 if profile else NAN,
        prefill_seconds_per_token=7e-5 if profile else NAN,
        decode_base_seconds=0.012 if profile else NAN,
        decode_seconds_per_request=5e-5 if profile else NAN,
    )
    rows = []
    for _ in range(n):
        running, waiting = float(rng.integers(0, 40)), float(rng.integers(0, 3))
        prompts = rng.integers(10, 3_000, int(waiting)).astype(np.float64)
        endpoint = EndpointInputs(
            hardware=hardware_matrix([hardware.row()]),
            running=running,
            waiting=waiting,
            waiting_tokens=float(prompts.sum()),
            oldest_waiting_seconds=0.0,
            kv_tokens=running * float(rng.integers(100, 2_000)),
            prefill_duty=0.1,
            cached_tokens=0.0,
            sm_clock_mhz=clock_mhz,
            waiting_squared_tokens=float((prompts**2).sum()),
            step_seconds=float(rng.uniform(0.0, 0.005)),
            step_prefills=float(waiting > 0.0 and rng.random() < 0.5),
            recent_prompt_tokens_per_second=float(rng.uniform(0.0, 5_000.0)),
        )
        rows.append(request_rows(RequestInputs(float(rng.integers(10, 4_000)), float(rng.integers(1, 500))), endpoint))
    return np.concatenate(rows)


def by_hand(row: np.ndarray) -> float:
    """TTFT of one request, as the formula says."""
    value = {name: float(row[column_of(name)]) for name in ("running", "waiting", "kv_tokens", "waiting_tokens")}
    value |= {name: float(row[column_of(name)]) for name in ("step_seconds", "step_prefills", "uncached_tokens")}
    squares = float(row[column_of("waiting_squared_tokens")]) + value["uncached_tokens"] ** 2
    prefill = (value["waiting_tokens"] + value["uncached_tokens"]) * TRUE[4]
    prefill += (value["waiting"] + 1.0) * TRUE[5] + squares * TRUE[6]
    if value["running"] + value["waiting"] == 0.0:
        return TRUE[3] + prefill
    decode = TRUE[0] + value["running"] * TRUE[1] + value["kv_tokens"] * TRUE[2]
    return decode + (1.0 + value["step_prefills"]) * TRUE[3] + prefill - value["step_seconds"]


def test_true_coefficients_are_found_and_predict_other_requests() -> None:
    rows, fresh = requests(400, 1), requests(100, 2)
    costs = fit_costs(Target.TTFT, rows, np.array([by_hand(row) for row in rows]))

    assert len(costs.kinds) == 1
    np.testing.assert_allclose(costs.coefficients[0], TRUE, rtol=1e-3)
    bases = Bases([(Target.TTFT, costs)]).of(fresh)[0]
    np.testing.assert_allclose(bases, [by_hand(row) for row in fresh], rtol=1e-3)


def test_requests_that_met_something_unforeseen_do_not_move_them() -> None:
    rows = requests(400, 3)
    labels = np.array([by_hand(row) for row in rows])
    labels[::10] *= 8.0
    costs = fit_costs(Target.TTFT, rows, labels)

    np.testing.assert_allclose(costs.coefficients[0], TRUE, rtol=0.05)


def test_kinds_differ_by_clock_and_few_samples_make_none() -> None:
    fast, slow, few = requests(100, 4), requests(100, 5, clock_mhz=900.0), requests(MIN_SAMPLES - 1, 6, clock_mhz=NAN)
    rows = np.concatenate([fast, slow, few])
    labels = np.array([by_hand(row) for row in rows])
    labels[100:200] *= 2.0
    costs = fit_costs(Target.TTFT, rows, labels)

    assert sorted(costs.kinds[:, -1].tolist()) == [900.0, 1_400.0]
    assert np.isnan(Bases([(Target.TTFT, costs)]).of(few)).all()
    near = requests(5, 7, clock_mhz=1_400.0 + CLOCK_STEP_MHZ / 3.0)
    assert np.isfinite(Bases([(Target.TTFT, costs)]).of(near)).all()


def test_a_profile_stands_in_for_ttft_alone() -> None:
    rows = requests(20, 8, profile=True)
    ttft, tpot, joules = Bases([(t, fit_costs(t, rows, np.full(20, NAN))) for t in list(Target)[:3]]).of(rows)

    assert (ttft > 0.0).all()
    own = 0.008 + 7e-5 * rows[:, column_of("uncached_tokens")]
    assert (ttft >= own - 1e-12).all()
    assert np.isnan([tpot, joules]).all()


@pytest.mark.parametrize("target", [Target.TPOT, Target.REQUEST_ENERGY])
def test_other_targets_are_linear_too(target: Target) -> None:
    rows = requests(300, 9)
    batch, prompt, answer = (rows[:, column_of(n)] for n in ("batch", "prompt_tokens", "expected_output_tokens"))
    if target is Target.TPOT:
        rate = rows[:, column_of("recent_prompt_tokens_per_second")]
        labels = 0.01 + 1e-4 * batch + 1e-8 * (rows[:, column_of("kv_tokens")] + prompt) + 1e-6 * rate * batch
    else:
        labels = 5.0 + 0.02 * prompt + 6.0 * answer / batch + 0.1 * answer + 1e-6 * answer * (prompt + answer / 2.0)
    costs = fit_costs(target, rows, labels)

    np.testing.assert_allclose(Bases([(target, costs)]).of(rows)[0], labels, rtol=1e-3)


def test_what_is_unknown_makes_an_unknown_base_and_is_not_fitted() -> None:
    rows = requests(200, 10)
    rows[:100, column_of("kv_tokens")] = NAN
    labels = np.ones(200)
    costs = fit_costs(Target.TTFT, rows, labels)

    assert len(costs.kinds) == 1
    bases = Bases([(Target.TTFT, costs)]).of(rows)[0]
    busy = rows[:, column_of("running")] + rows[:, column_of("waiting")] > 0.0
    assert np.isnan(bases[:100][busy[:100]]).all()
    assert len(fit_costs(Target.STEP_ENERGY, rows, labels).kinds) == 0
    assert len(fit_costs(Target.TTFT, rows[:0], labels[:0]).kinds) == 0


def test_unknown_hardware_is_equal_to_itself() -> None:
    rows = requests(2, 11, clock_mhz=NAN)
    rows[:, column_of("role")] = NAN
    kinds = kinds_of(rows)

    np.testing.assert_array_equal(kinds[0], kinds[1])
    assert not np.isnan(kinds).any()


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, TERMS), st.integers(1, 40))
def test_the_fit_is_the_best_one_without_negative_coefficients(seed: int, terms: int, samples: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(0.0, 1.0, (samples, terms)) * 10.0 ** rng.integers(-4, 4, terms)
    observed = rng.normal(0.0, 1.0, samples)

    found = non_negative_fit(matrix, observed)

    assert (found >= 0.0).all()
    best = nnls(matrix, observed)[1]
    assert np.linalg.norm(matrix @ found - observed) <= best + 1e-6 * np.linalg.norm(observed)
