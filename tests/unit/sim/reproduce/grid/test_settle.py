import numpy as np
import pytest

from heliotrope.units import JOULES_PER_KWH
from heliotrope_sim.reproduce.grid.replay import Placed
from heliotrope_sim.reproduce.grid.settle import (
    JOULES_PER_OUTPUT_TOKEN,
    TOKENS_PER_HOUR,
    fixed_joules,
    gained,
    hourly_grams,
    saving,
    stepped_grams,
)
from heliotrope_sim.reproduce.grid.tranches import Tranches


def test_energy_follows_load_and_demand() -> None:
    loads = np.array([[1, 3], [4, 0]], np.int16)
    placed = Placed(loads, np.zeros_like(loads), 0, np.ones(2, np.bool_))
    joules = fixed_joules(placed, np.array([1.0, 2.0]))
    assert joules / (TOKENS_PER_HOUR * JOULES_PER_OUTPUT_TOKEN) == pytest.approx(np.array([[0.25, 0.75], [2.0, 0.0]]))


def test_an_hour_with_an_unknown_rate_counts_for_nobody() -> None:
    joules = np.full((2, 2), JOULES_PER_KWH)
    grams = hourly_grams(joules, np.array([[100.0, 200.0], [100.0, np.nan]]))
    assert grams.tolist() == [300.0, 0.0]


def test_load_beyond_the_headroom_has_the_usual_rate() -> None:
    steps = Tranches(2, np.array([[4, 10, 6, 0]]), np.array([500.0, 600.0]))
    joules = np.array([[8.0, 2.0]]) * JOULES_PER_KWH
    grams = stepped_grams(joules, np.array([[8.0, 2.0]]), steps, np.array([[0.0, 600.0]]))
    assert grams == pytest.approx([4.0 * 500.0 + 2.0 * 600.0])
    # Pinned load beyond all of a zone's room is priced by its only tranche.
    grams = stepped_grams(joules * 10.0, np.array([[0.0, 20.0]]), steps, np.array([[0.0, 600.0]]))
    assert grams == pytest.approx([80.0 * 0.0 + 20.0 * 600.0])


def test_savings_have_intervals_of_blocks() -> None:
    rng = np.random.default_rng(1)
    baseline = rng.uniform(1.0, 2.0, 24 * 60)
    found = saving(baseline * 0.6, baseline, 7)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.4, 0.4, 0.4))
    noisy = baseline * rng.uniform(0.2, 1.0, len(baseline))
    found = saving(noisy, baseline, 7)
    assert found.low < found.estimate < found.high
    assert gained(noisy, baseline * 0.9, baseline, 7).estimate == pytest.approx(found.estimate - 0.1)
