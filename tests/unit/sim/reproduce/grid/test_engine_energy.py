import numpy as np
import pytest

from heliotrope.engine.profiles import load
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.reproduce.grid.engine_energy import curve, hourly_joules, joules_per_token
from heliotrope_sim.reproduce.grid.replay import PROFILE

ENGINE = load(PROFILE)
CURVE = curve(ENGINE, 700.0)


def test_a_full_batch_draws_near_what_the_paper_takes_for_saturation() -> None:
    assert CURVE.joules_per_token[-1] == pytest.approx(0.104, rel=0.15)
    assert CURVE.joules_per_token[-1] == pytest.approx(ENGINE.decode_joules(64.0, 64.0 * 700.0) / 64.0)


def test_larger_batches_draw_less_per_token() -> None:
    assert (np.diff(CURVE.joules_per_token) < 0.0).all()
    assert (np.diff(CURVE.tokens_per_second) > 0.0).all()
    loads = np.array([0.0, CURVE.tokens_per_second[9], CURVE.most_tokens_per_second * 2.0])
    assert joules_per_token(CURVE, loads) == pytest.approx(CURVE.joules_per_token[[0, 9, -1]])


def test_standing_power_is_drawn_without_load() -> None:
    nothing = np.zeros(1)
    assert hourly_joules(CURVE, nothing, standing=False) == pytest.approx([0.0])
    standing = (ENGINE.idle_watts + ENGINE.host_watts) * SECONDS_PER_HOUR
    assert hourly_joules(CURVE, nothing, standing=True) == pytest.approx([standing])
    busy = np.array([CURVE.tokens_per_second[0]])
    difference = hourly_joules(CURVE, busy, standing=True) - hourly_joules(CURVE, busy, standing=False)
    assert difference == pytest.approx([ENGINE.host_watts * SECONDS_PER_HOUR])
