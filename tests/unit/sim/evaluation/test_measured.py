"""Published measurements as points and as rows."""

import numpy as np
import pytest

from heliotrope.predict.features import column_of
from heliotrope_sim.evaluation.measured import Label, load_points
from heliotrope_sim.evaluation.measured_study import HELD_OUT, point_rows

POINTS = load_points()


def test_every_source_has_its_labels() -> None:
    counts: dict[str, set[Label]] = {}
    for point in POINTS:
        counts.setdefault(point.source, set()).update(point.labels)
    assert counts == {
        "ml-energy/chat": {Label.TPOT, Label.REQUEST_JOULES},
        "ml-energy/code": {Label.TPOT, Label.REQUEST_JOULES},
        "argonne/latency": {Label.GENERATION_PACE},
        "argonne/power": {Label.REQUEST_JOULES},
        "splitwise": {Label.TTFT, Label.TPOT, Label.REQUEST_JOULES},
    }
    assert all(value > 0.0 for point in POINTS for value in point.labels.values())


def test_units() -> None:
    """The first rows of the files, worked by hand."""
    power = next(p for p in POINTS if p.source == "argonne/power")
    # 222.1222711864407 W for 13.976857989095151 s, one request of one GPU.
    assert power.labels[Label.REQUEST_JOULES] == pytest.approx(222.1222711864407 * 13.976857989095151)
    splitwise = next(p for p in POINTS if p.source == "splitwise")
    assert splitwise.labels[Label.TTFT] == pytest.approx(0.1962532191531737)
    # 0.73599375 of 400 W on each of two GPUs for 7.168983697891235 s.
    assert splitwise.labels[Label.REQUEST_JOULES] == pytest.approx(0.73599375 * 400 * 2 * 7.168983697891235)


def test_rows_say_what_ran() -> None:
    point = next(p for p in POINTS if p.source == "argonne/latency")
    row = point_rows([point])[0]
    assert row[column_of("batch")] == point.batch
    assert row[column_of("prompt_tokens")] == point.prompt_tokens
    assert row[column_of("tensor_parallel")] == point.hardware.accelerators
    assert np.isnan(row[column_of("analytic_tpot_seconds")])


def test_wider_groups_hold_more_out() -> None:
    counts = [len({group(point) for point in POINTS}) for _, group in HELD_OUT]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] >= 4
