"""The measured anchors of paper carbon-slo-tension, §V-B, within wide margins; docs/engine-models.md has the figures.

Three Llama-3.1-8B engines on A100-40GB take turns. Nothing is tuned to the anchors.
"""

import pytest
from tests.unit.sim.fleet.single import one_site, settings

from heliotrope.engine.profiles import load
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.results import Line, Results
from heliotrope_sim.fleet.simulate import simulate

MODEL = load("llama-3.1-8b-a100-40gb")


def served_at(rate: float) -> Results:
    topology = one_site(MODEL, engines_per_node=3, batch_capacity=40)
    return simulate(topology, poisson(rate, 2_100 / rate, seed=841_071), settings())


def test_unloaded_engines_answer_as_measured() -> None:
    summary = served_at(2.0).summary()
    assert summary.tpot_seconds["mean"] == pytest.approx(0.0155, rel=0.15)
    assert summary.ttft_seconds["mean"] == pytest.approx(0.071, rel=0.15)


def test_saturated_engines_are_as_slow_and_as_fast_as_measured() -> None:
    results = served_at(50.0)
    summary = results.summary()
    assert summary.tpot_seconds["mean"] == pytest.approx(0.054, rel=0.15)
    assert results.ttft_seconds.max() > 20.0
    finished = sorted(results.finished_ns.tolist())
    first, last = len(finished) // 10, len(finished) * 9 // 10
    capacity = (last - first) / (finished[last] - finished[first]) * 1e9
    assert capacity == pytest.approx(27.58, rel=0.15)


def test_idle_engines_draw_what_was_measured() -> None:
    results = served_at(2.0)
    idle_seconds = (results.awake_engine_seconds - results.busy_engine_seconds).sum()
    assert results.energy_joules.sum(axis=(0, 1))[Line.IDLE] == pytest.approx(72.0 * idle_seconds)
