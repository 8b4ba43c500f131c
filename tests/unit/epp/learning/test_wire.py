import json

import numpy as np
import pytest
from tests.unit.epp.learning.builders import NOW_UNIX, metered, samples

from heliotrope.predict.features import FEATURE_COUNT
from heliotrope.predict.sample import Refusal, Sample
from heliotrope_epp.learning import wire
from heliotrope_epp.learning.samples import step_sample_of
from heliotrope_epp.outcomes.energy import MeteredSteps


def body(**changes: object) -> bytes:
    entry = json.loads(wire.encode(samples(1)))["entries"][0]
    return json.dumps({"entries": [entry | changes]}).encode()


def test_samples_arrive_as_they_left_with_unknowns() -> None:
    sent = samples(3)
    sent[1].labels[2] = np.nan
    received = wire.decode(wire.encode(sent), NOW_UNIX)
    assert not received.refused
    for before, after in zip(sent, received.samples, strict=True):
        assert (after.table, after.key, after.at_unix_s) == (before.table, before.key, before.at_unix_s)
        np.testing.assert_array_equal(after.row, before.row)
        np.testing.assert_array_equal(after.labels, before.labels)


def test_steps_travel_with_requests() -> None:
    interval = metered()
    assert isinstance(interval.steps, MeteredSteps)
    step = step_sample_of(interval, interval.steps, 0, NOW_UNIX)
    assert isinstance(step, Sample)
    received = wire.decode(wire.encode([*samples(2), step]), NOW_UNIX)
    assert [sample.table.name for sample in received.samples] == ["requests", "requests", "steps"]
    np.testing.assert_array_equal(received.samples[2].row, step.row)
    assert received.samples[2].labels.tolist() == [25.0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"table": "answers"}, Refusal.MALFORMED),
        ({"key": ""}, Refusal.MALFORMED),
        ({"key": "k" * 300}, Refusal.MALFORMED),
        ({"row": [1.0]}, Refusal.MALFORMED),
        ({"labels": [1.0]}, Refusal.MALFORMED),
        ({"at_unix_s": NOW_UNIX + 60.0}, Refusal.CLOCK_JUMP),
        ({"at_unix_s": -1.0}, Refusal.CLOCK_JUMP),
        ({"labels": [None, None, None]}, Refusal.NO_LABEL),
        ({"labels": [0.1, -0.5, None]}, Refusal.NEGATIVE),
        ({"labels": [1e9, None, None]}, Refusal.ABSURD),
    ],
)
def test_what_cannot_be_true_is_refused_and_counted(changes: dict[str, object], reason: Refusal) -> None:
    received = wire.decode(body(**changes), NOW_UNIX)
    assert received.samples == ()
    assert received.refused == {reason.value: 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a list of samples"),
        (b"\xff", "not a list of samples"),
        (b'{"entries": [{"key": 1}]}', "not a list of samples"),
        (b'{"entries": [], "more": 1}', "more"),
        (body(row=["x"] * FEATURE_COUNT), "row"),
        (body(row=[1e999] * FEATURE_COUNT), "not a list of samples"),
        (b'{"entries": [], "features": {"requests": ["prompt_tokens"]}}', "features.requests"),
        (b'{"entries": [], "features": {"answers": []}}', "features.answers"),
    ],
)
def test_a_body_that_is_not_ours_is_refused_as_a_whole(text: bytes, says: str) -> None:
    with pytest.raises(wire.WireError, match=says):
        wire.decode(text, NOW_UNIX)


def test_a_body_has_a_largest_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_ENTRIES", 2)
    assert len(wire.decode(wire.encode(samples(2)), NOW_UNIX).samples) == 2
    with pytest.raises(wire.WireError, match="smaller batches"):
        wire.decode(wire.encode(samples(3)), NOW_UNIX)


def test_rows_to_predict() -> None:
    table, rows = wire.matrix(json.dumps({"rows": [[None] * FEATURE_COUNT, [1] * FEATURE_COUNT]}).encode())
    assert table.name == "requests"
    assert rows.shape == (2, FEATURE_COUNT)
    assert np.isnan(rows[0]).all()
    for text, says in (
        (b'{"rows": [[1]]}', r"rows\[0\]: has 1 columns"),
        (b'{"rows": [], "table": "x"}', "table: must be one of requests, steps"),
        (b"[]", "not a list of rows"),
    ):
        with pytest.raises(wire.WireError, match=says):
            wire.matrix(text)
    assert wire.matrix(b'{"rows": []}')[1].shape == (0, FEATURE_COUNT)
