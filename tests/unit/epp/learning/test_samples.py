from typing import Any

import numpy as np
import pytest
from tests.unit.epp.learning.builders import NOW_UNIX, energy, finished, row

from heliotrope.predict.features import FloatColumn, column_of
from heliotrope.predict.sample import Refusal, Sample
from heliotrope_epp.learning.samples import sample_of
from heliotrope_epp.outcomes.energy import RequestEnergy
from heliotrope_epp.transport.interface import Cause

ROW = row(np.random.default_rng(1))


def labels(outcome: Sample | Refusal) -> list[float | None]:
    assert isinstance(outcome, Sample), outcome
    return [None if np.isnan(label) else round(float(label), 6) for label in outcome.labels]


def test_a_streamed_answer_teaches_latency_energy_and_its_true_length() -> None:
    outcome = sample_of(finished(ROW), energy(), NOW_UNIX + 1.0)
    assert labels(outcome) == [0.2, 0.05, 42.0]
    assert isinstance(outcome, Sample)
    assert outcome.row[column_of("expected_output_tokens")] == 11
    assert (outcome.key, outcome.at_unix_s) == ("r1", NOW_UNIX + 0.7)


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
    assert labels(sample_of(finished(ROW, **changes), measured, NOW_UNIX + 1.0)) == expected


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
    assert sample_of(finished(features, **changes), None, NOW_UNIX + 1.0) is reason


def test_requests_without_an_id_are_still_told_apart() -> None:
    keys = set()
    for when in (NOW_UNIX, NOW_UNIX + 0.5):
        outcome = sample_of(finished(ROW, request_id="", dispatched_unix_s=when), None, NOW_UNIX + 1.0)
        assert isinstance(outcome, Sample)
        keys.add(outcome.key)
    assert len(keys) == 2
