from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heliotrope.predict.features import FEATURE_COUNT, STEP_FEATURE_COUNT, column_of
from heliotrope.predict.sample import Refusal, RequestObservation, Sample, request_sample, step_sample
from heliotrope.predict.targets import BOUNDS, Target

NAN, INF = float("nan"), float("inf")
NOW = 1_000_100.0


def row() -> np.ndarray:
    values = np.ones(FEATURE_COUNT)
    values[column_of("expected_output_tokens")] = 50.0
    values[column_of("analytic_request_joules")] = 60.0
    values[column_of("analytic_prefill_joules")] = 10.0
    return values


GOOD = RequestObservation(
    key="r-1",
    row=row(),
    complete=True,
    output_tokens=100,
    dispatched_s=5.0,
    ended_s=7.0,
    dispatched_unix_s=1_000_000.0,
    ended_unix_s=1_000_002.0,
    ttft_seconds=0.2,
    tpot_seconds=0.02,
    request_joules=80.0,
)


def test_a_good_observation_teaches_at_its_true_length() -> None:
    sample = request_sample(GOOD, NOW)
    assert isinstance(sample, Sample)
    assert sample.labels.tolist() == [0.2, 0.02, 80.0]
    assert sample.at_unix_s == 1_000_002.0
    assert sample.row[column_of("expected_output_tokens")] == 100.0
    assert sample.row[column_of("analytic_request_joules")] == 110.0
    assert GOOD.row is not None
    assert GOOD.row[column_of("expected_output_tokens")] == 50.0  # the decision's own row is left alone


def test_labels_that_do_not_apply_are_unknown_and_not_zero() -> None:
    sample = request_sample(replace(GOOD, ttft_seconds=None, tpot_seconds=None), NOW)
    assert isinstance(sample, Sample)
    np.testing.assert_array_equal(sample.labels, [NAN, NAN, 80.0])


def test_energy_that_was_not_metered_throughout_is_not_learned_from() -> None:
    sample = request_sample(replace(GOOD, energy_coverage=0.9), NOW)
    assert isinstance(sample, Sample)
    np.testing.assert_array_equal(sample.labels, [0.2, 0.02, NAN])


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"complete": False}, Refusal.INCOMPLETE),
        ({"output_tokens": None}, Refusal.USAGE_MISSING),
        ({"output_tokens": -1}, Refusal.NEGATIVE),
        ({"output_tokens": 10**9}, Refusal.ABSURD),
        ({"tpot_seconds": 3e-5}, Refusal.ABSURD),  # held back on its way, then 98 tokens within 3 ms
        ({"row": None}, Refusal.NO_FEATURES),
        ({"row": np.ones(FEATURE_COUNT - 1)}, Refusal.MALFORMED),
        ({"row": np.full(FEATURE_COUNT, INF)}, Refusal.MALFORMED),
        ({"ended_s": 4.0, "ended_unix_s": 999_999.0}, Refusal.CLOCK_JUMP),
        ({"ended_unix_s": 1_003_600.0}, Refusal.CLOCK_JUMP),
        ({"ended_unix_s": 999_000.0}, Refusal.CLOCK_JUMP),
        ({"dispatched_unix_s": NAN}, Refusal.CLOCK_JUMP),
        ({"dispatched_unix_s": NOW + 50.0, "ended_unix_s": NOW + 52.0}, Refusal.CLOCK_JUMP),
        ({"ttft_seconds": NAN}, Refusal.NOT_FINITE),
        ({"tpot_seconds": INF}, Refusal.NOT_FINITE),
        ({"ttft_seconds": -0.1}, Refusal.NEGATIVE),
        ({"request_joules": 0.0}, Refusal.NEGATIVE),
        ({"ttft_seconds": 1e-7}, Refusal.ABSURD),
        ({"ttft_seconds": 1e5}, Refusal.ABSURD),
        ({"tpot_seconds": 100.0}, Refusal.ABSURD),
        ({"request_joules": 1e12}, Refusal.ABSURD),
        ({"ttft_seconds": None, "tpot_seconds": None, "request_joules": None}, Refusal.NO_LABEL),
        ({"ttft_seconds": None, "tpot_seconds": None, "energy_coverage": 0.5}, Refusal.NO_LABEL),
        ({"ttft_seconds": None, "tpot_seconds": None, "energy_coverage": NAN}, Refusal.NO_LABEL),
    ],
)
def test_whatever_cannot_be_believed_is_refused_with_its_reason(change: dict[str, Any], refusal: Refusal) -> None:
    assert request_sample(replace(GOOD, **change), NOW) is refusal


def test_steps_are_judged_alike() -> None:
    features = np.ones(STEP_FEATURE_COUNT)
    sample = step_sample("s", NOW - 1.0, features, 12.0, NOW)
    assert isinstance(sample, Sample)
    assert sample.labels.tolist() == [12.0]
    assert step_sample("s", NOW + 60.0, features, 12.0, NOW) is Refusal.CLOCK_JUMP
    assert step_sample("s", NOW - 1.0, features[:-1], 12.0, NOW) is Refusal.MALFORMED
    assert step_sample("s", NOW - 1.0, features, -1.0, NOW) is Refusal.NEGATIVE
    assert step_sample("s", NOW - 1.0, features, NAN, NOW) is Refusal.NOT_FINITE


def test_every_target_has_bounds_that_leave_room() -> None:
    assert BOUNDS.keys() == set(Target)
    assert all(0.0 < low * 1e4 < high for low, high in BOUNDS.values())
