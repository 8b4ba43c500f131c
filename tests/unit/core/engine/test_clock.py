"""The clock model: what lower clocks cost in time and save in power, and where decode is cheapest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel

SHIPPED = [profiles.load(name) for name in profiles.available()]
shipped = pytest.mark.parametrize("engine", SHIPPED, ids=lambda engine: engine.name)


def clocks(engine: EngineModel) -> list[int]:
    return list(range(engine.clock.min_mhz, engine.clock.max_mhz + 1, engine.clock.step_mhz))


def decode_watts(engine: EngineModel, batch: float = 8.0) -> float:
    return float(engine.decode_joules(batch, batch * 500) / engine.decode_seconds(batch, batch * 500))


def prefill_watts(engine: EngineModel, tokens: float = 4096.0) -> float:
    return float(engine.prefill_joules(tokens) / engine.prefill_seconds(tokens))


def test_half_the_clock_by_hand(model: EngineModel) -> None:
    half = model.at_clock(500)
    # Prefill takes twice as long, decode 2^0.1 as long: the knee is just reached.
    assert half.prefill_seconds(1000.0) == pytest.approx(2 * model.prefill_seconds(1000.0))
    assert half.decode_seconds(8.0, 800.0) == pytest.approx(2**0.1 * model.decode_seconds(8.0, 800.0))
    # Idle halfway between 60 W without a process and 100 W.
    assert half.idle_watts == pytest.approx(80.0)
    assert half.sleep_watts == pytest.approx(75.0)
    assert half.unloaded_watts == 60.0
    # A decode step's base: 8 J in 20 ms, of which 2 J idle; 6 J × 1/2 above idle, 1.6 J idle, × 2^0.1 time.
    assert half.energy.decode_base_joules == pytest.approx((3.0 + 1.6) * 2**0.1)
    # A prompt token above the knee: 50 mJ in 100 µs, of which 10 mJ idle; 40 mJ × 1/4, 8 mJ idle, × 2.
    assert half.energy.prefill_joules_per_token == pytest.approx((0.010 + 0.008) * 2)
    # The base with one request takes 11 ms, so 1.1 J of 5 J are idle.
    assert half.energy.prefill_base_joules == pytest.approx((3.9 / 4 + 0.88) * 2)


def test_below_the_knee_decode_starves(model: EngineModel) -> None:
    quarter = model.at_clock(250)
    assert quarter.decode_seconds(1.0, 0.0) == pytest.approx(4**0.1 * 2 * model.decode_seconds(1.0, 0.0))


def test_idle_power_stays_where_power_without_a_process_is_unknown(model: EngineModel) -> None:
    assert replace(model, unloaded_watts=None).at_clock(500).idle_watts == 100.0


def test_the_nominal_clock_is_the_model_itself(model: EngineModel) -> None:
    assert model.at_clock(1000) is model


def test_clocks_are_clamped_to_the_device(model: EngineModel) -> None:
    assert model.at_clock(5000) is model
    assert model.at_clock(1).clock_mhz == 200


@settings(deadline=None)
@given(first=st.integers(200, 1000), second=st.integers(200, 1000))
def test_the_way_to_a_clock_does_not_matter(model: EngineModel, first: int, second: int) -> None:
    direct, detour = model.at_clock(second), model.at_clock(first).at_clock(second)
    assert detour.decode_seconds(8.0, 800.0) == pytest.approx(direct.decode_seconds(8.0, 800.0))
    assert detour.prefill_joules(500.0) == pytest.approx(direct.prefill_joules(500.0))
    assert detour.decode_joules(8.0, 800.0) == pytest.approx(direct.decode_joules(8.0, 800.0))
    assert detour.idle_watts == pytest.approx(direct.idle_watts)


@shipped
def test_lower_clocks_are_slower_and_draw_less(engine: EngineModel) -> None:
    models = [engine.at_clock(mhz) for mhz in clocks(engine)]
    for measure, sign in (
        (lambda m: m.prefill_seconds(1024.0), -1),
        (lambda m: m.decode_seconds(16.0, 16_000.0), -1),
        (decode_watts, 1),
        (prefill_watts, 1),
        (lambda m: m.idle_watts, 1),
    ):
        assert (sign * np.diff([measure(m) for m in models]) > 0).all()


@shipped
def test_no_clock_draws_less_than_idle(engine: EngineModel) -> None:
    for mhz in clocks(engine):
        slow = engine.at_clock(mhz)
        for batch in (1.0, 8.0, 64.0):
            assert decode_watts(slow, batch) > slow.idle_watts
        for tokens in (1.0, 64.0, 512.0, 8192.0):
            assert prefill_watts(slow, tokens) > slow.idle_watts


# The measured best clock for Llama over the maximum clock, and what it saved (data/mertside-dvfs).
ANCHORS = {"A100": (810 / 1410, 0.3707), "H100": (840 / 1785, 0.19)}


@shipped
def test_the_best_clock_for_decode_is_the_measured_one(engine: EngineModel) -> None:
    share, saved = ANCHORS[engine.accelerator[:4]]
    cost = {mhz: engine.at_clock(mhz).decode_joules(1.0, 0.0) for mhz in clocks(engine)}
    best = min(cost, key=lambda mhz: cost[mhz])
    assert best == pytest.approx(share * engine.clock.max_mhz, abs=engine.clock.step_mhz)
    assert 1 - cost[best] / engine.decode_joules(1.0, 0.0) == pytest.approx(saved, abs=0.02)
    slowdown = engine.at_clock(best).decode_seconds(1.0, 0.0) / engine.decode_seconds(1.0, 0.0)
    assert slowdown < 1.05


@shipped
@pytest.mark.parametrize("batch", [1.0, 16.0, 64.0])
def test_below_the_knee_decode_costs_more_energy(engine: EngineModel, batch: float) -> None:
    knee = engine.clock.decode_knee_mhz
    at_knee = engine.at_clock(knee).decode_joules(batch, batch * 1000)
    assert engine.at_clock(knee - 150).decode_joules(batch, batch * 1000) > at_knee
    assert engine.decode_joules(batch, batch * 1000) > at_knee
