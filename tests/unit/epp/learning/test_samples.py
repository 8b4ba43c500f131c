from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.unit.epp.learning.builders import NOW_UNIX, energy, finished, row

from heliotrope.predict.features import FloatColumn, column_of
from heliotrope.predict.sample import Refusal, Sample
from heliotrope_epp.learning.samples import Positions, sample_of
from heliotrope_epp.outcomes.energy import RequestEnergy
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
