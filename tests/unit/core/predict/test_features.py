import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.predict.features import (
    CATEGORIES,
    FEATURE_COUNT,
    FEATURES,
    HARDWARE_FEATURES,
    STEP_FEATURE_COUNT,
    STEP_FEATURES,
    UNKNOWN_HARDWARE,
    EndpointInputs,
    Group,
    HardwareDescription,
    RequestInputs,
    StepInputs,
    code_of,
    column_of,
    hardware_matrix,
    request_rows,
    step_rows,
    with_output_tokens,
)

NAN = float("nan")
DESCRIPTION = HardwareDescription(
    accelerator="H100",
    model="llama",
    role="both",
    tensor_parallel=2.0,
    max_num_seqs=8.0,
    max_num_batched_tokens=2048.0,
    kv_capacity_tokens=1_000.0,
    prefill_base_seconds=0.1,
    prefill_seconds_per_token=0.2,
    decode_base_seconds=0.3,
    decode_seconds_per_request=0.4,
    prefill_joules_per_token=0.5,
    decode_base_joules=0.6,
    decode_joules_per_request=0.7,
    idle_watts=0.8,
)
ENDPOINTS = EndpointInputs(
    hardware=hardware_matrix([DESCRIPTION.row(), DESCRIPTION.row(), UNKNOWN_HARDWARE]),
    running=np.array([2.0, 7.0, 5.0]),
    waiting=np.array([1.0, 30.0, NAN]),
    waiting_tokens=np.array([100.0, 3_000.0, 0.0]),
    oldest_waiting_seconds=np.array([0.5, 1.5, 0.0]),
    kv_tokens=np.array([250.0, 1_000.0, 40.0]),
    prefill_duty=np.array([0.1, 0.2, 0.3]),
    cached_tokens=np.array([30.0, 500.0, 0.0]),
    sm_clock_mhz=1_410.0,
    power_watts=np.array([300.0, NAN, NAN]),
    analytic_ttft_seconds=np.array([0.25, 0.5, NAN]),
    analytic_tpot_seconds=np.array([0.01, 0.02, NAN]),
    analytic_request_joules=np.array([110.0, 220.0, NAN]),
    analytic_prefill_joules=np.array([10.0, 20.0, NAN]),
    prefill_tokens_in_flight=np.array([11.0, 12.0, 13.0]),
    decode_tokens_in_flight=np.array([21.0, 22.0, 23.0]),
    seconds_since_piece=np.array([0.01, NAN, 0.03]),
    recent_running=np.array([3.5, 4.5, NAN]),
    recent_prompt_tokens_per_second=np.array([800.0, NAN, 900.0]),
    waiting_squared_tokens=np.array([1e4, 2e4, 0.0]),
    step_seconds=np.array([0.01, NAN, 0.02]),
    step_prefills=np.array([1.0, NAN, 0.0]),
)


def by_name(rows: np.ndarray) -> dict[str, list[float]]:
    return {feature.name: rows[:, i].tolist() for i, feature in enumerate(FEATURES)}


def test_every_column_holds_what_its_name_says() -> None:
    columns = by_name(request_rows(RequestInputs(200.0, 50.0, 1_000.0, 3.0), ENDPOINTS))
    code = code_of("h100")
    expected = {
        "prompt_tokens": [200.0] * 3,
        "cached_tokens": [30.0, 500.0, 0.0],
        "uncached_tokens": [170.0, 0.0, 200.0],
        "expected_output_tokens": [50.0] * 3,
        "reasoning_budget_tokens": [1_000.0] * 3,
        "reasoning_effort": [3.0] * 3,
        "running": [2.0, 7.0, 5.0],
        "waiting": [1.0, 30.0, NAN],
        "waiting_tokens": [100.0, 3_000.0, 0.0],
        "oldest_waiting_seconds": [0.5, 1.5, 0.0],
        "kv_tokens": [250.0, 1_000.0, 40.0],
        "kv_use": [0.25, 1.0, NAN],
        "prefill_tokens_in_flight": [11.0, 12.0, 13.0],
        "decode_tokens_in_flight": [21.0, 22.0, 23.0],
        "prefill_duty": [0.1, 0.2, 0.3],
        "batch": [4.0, 8.0, NAN],
        "seconds_since_piece": [0.01, NAN, 0.03],
        "recent_running": [3.5, 4.5, NAN],
        "recent_prompt_tokens_per_second": [800.0, NAN, 900.0],
        "waiting_squared_tokens": [1e4, 2e4, 0.0],
        "step_seconds": [0.01, NAN, 0.02],
        "step_prefills": [1.0, NAN, 0.0],
        "sm_clock_mhz": [1_410.0] * 3,
        "power_watts": [300.0, NAN, NAN],
        "analytic_ttft_seconds": [0.25, 0.5, NAN],
        "analytic_tpot_seconds": [0.01, 0.02, NAN],
        "analytic_request_joules": [110.0, 220.0, NAN],
        "analytic_prefill_joules": [10.0, 20.0, NAN],
        "accelerator": [code, code, NAN],
        "model": [code_of("llama")] * 2 + [NAN],
        "role": [code_of("both")] * 2 + [NAN],
        "tensor_parallel": [2.0, 2.0, NAN],
        "max_num_seqs": [8.0, 8.0, NAN],
        "max_num_batched_tokens": [2048.0, 2048.0, NAN],
        "kv_capacity_tokens": [1_000.0, 1_000.0, NAN],
        "prefill_base_seconds": [0.1, 0.1, NAN],
        "prefill_seconds_per_token": [0.2, 0.2, NAN],
        "decode_base_seconds": [0.3, 0.3, NAN],
        "decode_seconds_per_request": [0.4, 0.4, NAN],
        "prefill_joules_per_token": [0.5, 0.5, NAN],
        "decode_base_joules": [0.6, 0.6, NAN],
        "decode_joules_per_request": [0.7, 0.7, NAN],
        "idle_watts": [0.8, 0.8, NAN],
    }
    assert columns.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(columns[name], values, err_msg=name)


def test_a_batch_without_a_known_cap_is_not_capped() -> None:
    rows = request_rows(
        RequestInputs(10.0, 5.0), EndpointInputs(hardware_matrix([UNKNOWN_HARDWARE]), 900.0, 1.0, *(0.0,) * 5)
    )
    assert rows[0, column_of("batch")] == 902.0
    assert np.isnan(rows[0, column_of("kv_use")])
    assert np.isnan(rows[0, column_of("reasoning_budget_tokens")])
    assert np.isnan(rows[0, column_of("reasoning_effort")])


def test_no_endpoints_give_no_rows() -> None:
    endpoints = EndpointInputs(hardware_matrix([]), *(np.zeros(0),) * 7)
    assert request_rows(RequestInputs(10.0, 5.0), endpoints).shape == (0, FEATURE_COUNT)


def test_a_true_length_moves_decode_energy_and_leaves_prefill() -> None:
    rows = request_rows(RequestInputs(200.0, 50.0), ENDPOINTS)
    longer = with_output_tokens(rows, 100.0)
    assert longer[:, column_of("expected_output_tokens")].tolist() == [100.0] * 3
    np.testing.assert_allclose(longer[:, column_of("analytic_request_joules")], [210.0, 420.0, NAN])
    changed = np.flatnonzero(((longer != rows) & ~(np.isnan(longer) & np.isnan(rows))).any(axis=0))
    assert {FEATURES[i].name for i in changed} == {"expected_output_tokens", "analytic_request_joules"}


def test_steps_have_rows_of_their_own() -> None:
    inputs = StepInputs(
        hardware_matrix([DESCRIPTION.row()] * 2), np.array([3.0, 4.0]), 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0
    )
    rows = step_rows(inputs)
    assert rows.shape == (2, STEP_FEATURE_COUNT)
    assert rows[1, :8].tolist() == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
    np.testing.assert_array_equal(rows[0, 8:], DESCRIPTION.row())


@given(st.text(max_size=20))
def test_codes_are_small_whole_and_do_not_know_case(text: str) -> None:
    code = code_of(text)
    if not text:
        assert np.isnan(code)
        return
    assert code == int(code)
    assert 0 <= code < CATEGORIES
    assert code_of(text.lower()) == code


def test_codes_are_equal_in_every_process() -> None:
    program = "from heliotrope.predict.features import code_of; print(code_of('NVIDIA-H100-80GB-HBM3'))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{code_of('NVIDIA-H100-80GB-HBM3')}\n"}
    assert code_of("A100") != code_of("H100")
    assert np.isnan(code_of(None))


def test_names_are_unique_and_every_feature_says_its_unit() -> None:
    for features in (FEATURES, STEP_FEATURES):
        assert len({feature.name for feature in features}) == len(features)
        assert all(feature.unit for feature in features)
        assert features[-len(HARDWARE_FEATURES) :] == HARDWARE_FEATURES
    assert {feature.group for feature in FEATURES} == set(Group)
    assert [f.name for f in HARDWARE_FEATURES] == list(HardwareDescription.__dataclass_fields__)
    with pytest.raises(KeyError):
        column_of("prompt")
