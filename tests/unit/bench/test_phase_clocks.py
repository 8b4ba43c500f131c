"""The simulated day: it is the simulator's own, equal seeds give equal figures, and clocks are asked for as told."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from bench.clocks.anchors import anchors
from bench.clocks.days import Day, run
from bench.clocks.fleet_day import run_day
from bench.clocks.planner import Seen
from bench.clocks.setups import FLEETS, PROMISES, capacity, day, topology, typical_work
from bench.clocks.study import Extent, study

from heliotrope.place.schedulers.round_robin import round_robin
from heliotrope_sim.fleet.settings import DecisionTime, RunSettings
from heliotrope_sim.fleet.simulate import simulate

A100 = FLEETS[0]
TINY = Extent(
    fleets=(A100,), promises=PROMISES[:1], loads=(0.7,), cut_loads=(0.7,), seeds=(0,), hour_seconds=60.0, hours=3
)
GOLDEN = "0e21759af4193a5a34defad231c64fd5beca3c22f056c10717eb3958410b05e9"


def test_a_day_is_that_of_the_fleet_simulator() -> None:
    requests = day(4.0, seed=1, hour_seconds=10.0, hours=6)
    ours = run_day(topology(A100), requests, None, control_seconds=7.0, interval_seconds=10.0)
    settings = RunSettings(
        scheduler=round_robin,
        window_seconds=0.0,
        poll_seconds=3_600.0,
        carbon_step_seconds=10.0,
        decision_time=DecisionTime(0.0, 0.0, 0.0),
    )
    theirs = simulate(topology(A100), requests, settings)
    assert ours.trace_hash() == theirs.trace_hash()
    assert ours.energy_joules.sum() == pytest.approx(theirs.energy_joules.sum(), rel=1e-12)


@pytest.mark.slow
def test_equal_seeds_give_equal_figures_on_every_machine() -> None:
    text = json.dumps(study(TINY, processes=1), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN


def test_requests_follow_the_hours_and_keep_the_pattern_of_the_trace() -> None:
    first, again, other = (day(5.0, seed=seed, hour_seconds=100.0) for seed in (0, 0, 1))
    assert np.array_equal(first.arrival_ns, again.arrival_ns)
    assert not np.array_equal(first.arrival_ns[:100], other.arrival_ns[:100])
    by_hour = np.bincount(first.arrival_ns // 100_000_000_000, minlength=24)
    assert by_hour.max() == pytest.approx(500.0, rel=0.15)
    assert by_hour.min() < 0.6 * by_hour.max()
    gaps = np.diff(first.arrival_ns[: by_hour[0]]) / 1e9
    assert 0.5 < gaps.std() / gaps.mean() < 3.0


def test_one_clock_is_one_clock_and_phases_have_their_own() -> None:
    base = Day(A100, 0.7, 0, 60.0, 6, promised=PROMISES[0], seen=Seen.MEASURED)
    shared = run(replace(base, shared=True), PROMISES)
    apart = run(base, PROMISES)
    assert shared["changes"] > 0
    assert all(len(set(chosen.values())) == 1 for _, chosen in shared["clocks"])
    assert any(len(set(chosen.values())) == 2 for _, chosen in apart["clocks"])


def test_a_cut_is_kept_by_both_ways_of_sharing_it() -> None:
    cut = Day(A100, 0.7, 0, 60.0, 3, promised=PROMISES[0], seen=Seen.MEASURED, saves=False, cut=0.3)
    alone = run(Day(A100, 0.7, 0, 60.0, 3), PROMISES)
    for task in (cut, replace(cut, capped=True)):
        row = run(task, PROMISES)
        assert row["joules"] < alone["joules"]
        assert all(min(chosen.values()) < 1410 for _, chosen in row["clocks"])


def test_the_model_is_anchored_where_the_page_says() -> None:
    for row, (measured, saved) in zip(anchors(), ((810, 37.0), (840, 19.0)), strict=True):
        assert row["measured_mhz"] == measured
        assert row["model"]["decode of 1"]["saving_percent"] == pytest.approx(saved, abs=1.0)
        assert row["model"]["prefill"]["more_time_percent"] > 50.0


def test_capacity_is_that_of_the_weaker_phase() -> None:
    work, (server, interactive) = typical_work(), (each.promise for each in PROMISES)
    assert capacity(A100, work, server) == capacity(A100, work, interactive), "decode is the weaker one"
    two_decode = replace(A100, engines=3)
    assert capacity(A100, work, server) < capacity(two_decode, work, server) < 2.0 * capacity(A100, work, server)
    assert capacity(two_decode, work, interactive) < capacity(two_decode, work, server), "prefill is the weaker one"
