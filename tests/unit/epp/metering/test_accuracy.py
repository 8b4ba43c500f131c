"""The meter on the simulator's engine, against the truth: how near it comes, and that each picker gets its own."""

import numpy as np
import pytest
from bench.metered_engine import Arrival, MeteredEngine, Outcome

from heliotrope.engine import profiles

pytestmark = pytest.mark.slow

ENGINE = profiles.load("llama-3.1-70b-h100-tp4")


def arrivals(rate: float, count: int, *, streamed: bool = True, pickers: tuple[int, ...] = (0,)) -> list[Arrival]:
    random = np.random.default_rng(5)
    now_s, load = 12.0, []
    for _ in range(count):
        now_s += float(random.exponential(1.0 / rate))
        prompt = int(np.clip(random.lognormal(6.3, 0.9), 8, 8_000))
        output = int(np.clip(random.lognormal(4.5, 0.7), 2, 1_000))
        believed = max(round(prompt * 1.15 * float(random.lognormal(0.0, 0.1))), 1)
        load.append(Arrival(now_s, prompt, output, believed, streamed, int(random.choice(pickers))))
    return load


def errors(outcomes: list[Outcome]) -> np.ndarray:
    return np.array(
        [outcome.energy.millijoules / 1_000.0 / outcome.true_joules - 1.0 for outcome in outcomes if outcome.energy]
    )


def claimed(engine: MeteredEngine, picker: int) -> float:
    return sum(energy.millijoules for energy in engine.pickers[picker].energies.values() if energy) / 1_000.0


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("rate", "most"), [(0.5, 0.03), (4.0, 0.06)], ids=["low", "high"])
def test_requests_get_about_what_they_drew(rate: float, most: float, streamed: bool) -> None:
    engine = MeteredEngine(ENGINE, known=ENGINE, counter_s=0.2)

    found = errors(engine.run(arrivals(rate, 120, streamed=streamed)))

    assert len(found) == 120
    assert np.median(np.abs(found)) < most
    assert abs(found.mean()) < most


def test_without_a_profile_it_learns() -> None:
    engine = MeteredEngine(ENGINE, known=None, counter_s=1.0)

    found = errors(engine.run(arrivals(2.0, 250)))

    assert np.median(np.abs(found[100:])) < 0.08


def test_idle_energy_is_the_engines_own() -> None:
    engine = MeteredEngine(ENGINE, known=ENGINE, counter_s=0.2)
    engine.run(arrivals(0.2, 40))

    (picker,) = engine.pickers
    idle = sum(interval.idle_millijoules for interval in picker.intervals) / 1_000.0
    busy = engine.engine.energy.busy_picojoules / 1e12
    assert claimed(engine, 0) == pytest.approx(busy, rel=0.02)
    assert idle == pytest.approx(engine.engine.energy.idle_picojoules / 1e12, rel=0.05)
    assert sum(interval.others_millijoules for interval in picker.intervals) / 1_000.0 < 0.01 * busy


def test_two_pickers_and_a_client_past_both_each_get_their_own() -> None:
    engine = MeteredEngine(ENGINE, known=ENGINE, counter_s=0.2, pickers=2)
    outcomes = engine.run(arrivals(3.0, 300, pickers=(0, 0, 1, -1)))

    true = {who: sum(o.true_joules for o in outcomes if o.arrival.picker == who) for who in (0, 1, -1)}
    busy = engine.engine.energy.busy_picojoules / 1e12
    assert claimed(engine, 0) == pytest.approx(true[0], rel=0.06)
    assert claimed(engine, 1) == pytest.approx(true[1], rel=0.12)
    assert claimed(engine, 0) + claimed(engine, 1) < busy
    for picker in engine.pickers:
        for interval in picker.intervals:
            assert interval.total_millijoules == (
                interval.requests_millijoules
                + interval.others_millijoules
                + interval.idle_millijoules
                + interval.unattributed_millijoules
            )


def test_accelerator_time_is_busy_time_shared() -> None:
    engine = MeteredEngine(ENGINE, known=ENGINE, counter_s=0.2)
    outcomes = engine.run(arrivals(1.0, 60))

    seconds = sum(outcome.energy.accelerator_seconds for outcome in outcomes if outcome.energy)
    host = sum(outcome.energy.host_joules for outcome in outcomes if outcome.energy)
    assert seconds == pytest.approx(engine.busy_seconds, rel=0.05)
    assert host == pytest.approx(engine.busy_seconds * ENGINE.host_watts, rel=0.05)
