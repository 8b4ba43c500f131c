from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.learning.builders import NOW_UNIX, energy, finished, metered, row, step_row

from heliotrope.predict.features import FloatColumn, column_of
from heliotrope.predict.sample import Refusal, Sample
from heliotrope.predict.targets import STEPS
from heliotrope_epp.learning.samples import (
    MIN_BUSY_SHARE,
    MIN_STEPS,
    Positions,
    believable_steps,
    sample_of,
    step_sample_of,
)
from heliotrope_epp.outcomes.energy import MeteredSteps, NoSteps, RequestEnergy
from heliotrope_epp.transport.interface import Cause

ROW = row(np.random.default_rng(1))


def labels(outcome: Sample | Refusal) -> list[float | None]:
    assert isinstance(outcome, Sample), outcome
    return [None if np.isnan(label) else round(float(label), 6) for label in outcome.labels]


def test_a_streamed_answer_teaches_latency_energy_and_its_true_length() -> None:
    outcome = sample_of(finished(ROW), energy(), 0, NOW_UNIX + 1.0)
    assert labels(outcome) == [0.2, 0.05, 42.0]
    assert isinstance(outcome, Sample)
    assert outcome.row[column_of("expected_output_tokens")] == 11
    assert (outcome.key, outcome.at_unix_s) == ("pod-1 0", NOW_UNIX + 0.7)


@pytest.mark.parametrize(
    ("changes", "measured", "expected"),
    [
        ({"streaming": False}, energy(), [None, None, 42.0]),
        ({"output_tokens": 1}, energy(), [0.2, None, 42.0]),
        ({}, None, [0.2, 0.05, None]),
        ({}, energy(coverage=0.5), [0.2, 0.05, None]),
    ],
)
def test_only_what_was_measured_is_taught(
    changes: dict[str, Any], measured: RequestEnergy | None, expected: list[float | None]
) -> None:
    assert labels(sample_of(finished(ROW, **changes), measured, 0, NOW_UNIX + 1.0)) == expected


@pytest.mark.parametrize(
    ("features", "changes", "reason"),
    [
        (ROW, {"cause": Cause.DISCONNECTED}, Refusal.INCOMPLETE),
        (ROW, {"status": 503}, Refusal.INCOMPLETE),
        (ROW, {"output_tokens": None}, Refusal.USAGE_MISSING),
        (ROW, {"output_tokens": -4}, Refusal.NEGATIVE),
        (ROW, {"first_s": 99.0}, Refusal.NEGATIVE),
        (ROW, {"ended_unix_s": NOW_UNIX + 900.0}, Refusal.CLOCK_JUMP),
        (ROW, {"dispatched_unix_s": NOW_UNIX + 900.0, "ended_unix_s": NOW_UNIX + 900.7}, Refusal.CLOCK_JUMP),
        (None, {}, Refusal.NO_FEATURES),
        (ROW[:3], {}, Refusal.MALFORMED),
        (ROW, {"streaming": False}, Refusal.NO_LABEL),
    ],
)
def test_what_must_not_be_learned_has_a_reason(
    features: FloatColumn | None, changes: dict[str, Any], reason: Refusal
) -> None:
    assert sample_of(finished(features, **changes), None, 0, NOW_UNIX + 1.0) is reason


def test_neighbours_at_an_endpoint_are_learned_from_or_held_out_together() -> None:
    positions = Positions()
    keys = []
    for endpoint in ("ns/a", "ns/b") * 25:
        outcome = sample_of(finished(ROW, endpoint=endpoint), None, positions.next(endpoint), NOW_UNIX + 1.0)
        assert isinstance(outcome, Sample)
        keys.append(outcome.key)
    assert Counter(keys[::2]) == {"ns/a 0": 10, "ns/a 1": 10, "ns/a 2": 5}
    assert set(keys[1::2]) == {"ns/b 0", "ns/b 1", "ns/b 2"}


def test_positions_are_bounded_and_the_idle_ones_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliotrope_epp.learning.samples.MAX_ENDPOINTS", 2)
    positions = Positions()
    assert [positions.next(name) for name in ("a", "b", "a", "c", "a", "b")] == [0, 0, 1, 0, 2, 0]


STEP_ROW = step_row(np.random.default_rng(1))


def steps(count: float = 100.0, joules: float = 2_500.0, busy_share: float = 0.9) -> MeteredSteps:
    return MeteredSteps(count, joules, busy_share, STEP_ROW)


def test_an_interval_teaches_the_mean_energy_of_its_steps() -> None:
    outcome = step_sample_of(metered(), steps(), 0, NOW_UNIX + 1.0)
    assert labels(outcome) == [25.0]
    assert isinstance(outcome, Sample)
    assert outcome.table is STEPS
    assert (outcome.key, outcome.at_unix_s) == ("pod-1 0", NOW_UNIX)
    np.testing.assert_array_equal(outcome.row, STEP_ROW)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (steps(busy_share=MIN_BUSY_SHARE), None),
        (steps(count=MIN_STEPS), None),
        (steps(busy_share=MIN_BUSY_SHARE - 0.01), NoSteps.MOSTLY_IDLE),
        (steps(count=MIN_STEPS - 0.5), NoSteps.TOO_FEW),
        *((reason, reason) for reason in NoSteps),
    ],
)
def test_only_intervals_full_of_work_are_believed(of: MeteredSteps | NoSteps, expected: NoSteps | None) -> None:
    assert believable_steps(metered(steps=of)) is (of if expected is None else expected)


@pytest.mark.parametrize(
    ("of", "changes", "reason"),
    [
        (steps(joules=0.0), {}, Refusal.NEGATIVE),
        (steps(joules=float("nan")), {}, Refusal.NOT_FINITE),
        (steps(joules=1e12), {}, Refusal.ABSURD),
        (steps(), {"end_unix_s": NOW_UNIX + 900.0}, Refusal.CLOCK_JUMP),
        (MeteredSteps(100.0, 1.0, 0.9, STEP_ROW[:3]), {}, Refusal.MALFORMED),
    ],
)
def test_steps_that_cannot_be_true_have_a_reason(of: MeteredSteps, changes: dict[str, Any], reason: Refusal) -> None:
    assert step_sample_of(metered(**changes), of, 0, NOW_UNIX + 1.0) is reason


@given(
    count=st.floats(0.0, 1e9),
    joules=st.floats(allow_nan=True, allow_infinity=True),
    busy_share=st.floats(0.0, 1.0),
)
def test_whatever_an_interval_says_its_label_can_be_true_or_there_is_none(
    count: float, joules: float, busy_share: float
) -> None:
    interval = metered(steps=steps(count, joules, busy_share))
    found = believable_steps(interval)
    if isinstance(found, NoSteps):
        assert count < MIN_STEPS or busy_share < MIN_BUSY_SHARE
        return
    outcome = step_sample_of(interval, found, 0, NOW_UNIX + 1.0)
    if isinstance(outcome, Sample):
        assert 1e-4 <= outcome.labels[0] <= 1e6
