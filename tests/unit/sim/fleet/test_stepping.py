"""The compiled kernel does what the emulator's engine does, to the nanosecond and the picojoule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sim.fleet.single import Arrival, emulated, one_site, workload_of
from tests.unit.sim.fleet.single import settings as run_settings

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine.fixed_point import joules
from heliotrope_sim.fleet.results import Line, Results
from heliotrope_sim.fleet.simulate import simulate

SHARED = 1000
"""Hashes of a family: this times its number, plus the position of the block."""


@st.composite
def arrivals(draw: st.DrawFn, shares: bool = False) -> list[Arrival]:
    """Bursts and pauses of requests that fit into 160 tokens; with `shares` they have prefixes in common."""
    now, made = 0, []
    for i in range(draw(st.integers(1, 24))):
        now += draw(st.sampled_from((0, 0, 1, 7_000_000, 60_000_000, 900_000_000)))
        prompt = draw(st.integers(1, 90))
        output = draw(st.integers(1, 160 - prompt if draw(st.booleans()) else 12))
        hashes: tuple[int, ...] = ()
        if shares and draw(st.booleans()):
            blocks = draw(st.integers(0, (prompt + output - 1) // 4))
            common = draw(st.integers(0, blocks))
            family = draw(st.integers(1, 3))
            own = range(100_000 + 100 * i + common, 100_000 + 100 * i + blocks)
            hashes = (*range(SHARED * family, SHARED * family + common), *own)
        made.append(Arrival(now, prompt, output, hashes))
    return made


def compare(model: EngineModel, requests: list[Arrival]) -> Results:
    """Run both and compare everything that they say."""
    results = simulate(one_site(model), workload_of(requests), run_settings())
    engine, sequences = emulated(model, requests)
    assert results.finished_ns.tolist() == [s.finished_ns for s in sequences]
    assert results.first_token_ns.tolist() == [s.first_token_ns for s in sequences]
    assert results.picojoules.tolist() == [s.picojoules for s in sequences]
    assert results.preemptions.tolist() == [s.preemptions for s in sequences]
    assert results.cached_tokens.tolist() == [s.cached_tokens for s in sequences]
    end_ns = int(results.interval_end_ns[-1])
    engine.energy.settle(end_ns)
    lines = results.energy_joules.sum(axis=(0, 1))
    assert lines[Line.PREFILL] + lines[Line.DECODE] == pytest.approx(joules(engine.energy.busy_picojoules), rel=1e-12)
    assert lines[Line.IDLE] == pytest.approx(joules(engine.energy.idle_picojoules), rel=1e-12)
    return results


@given(arrivals())
@settings(max_examples=60, deadline=None)
def test_it_is_the_emulators_engine(model: EngineModel, requests: list[Arrival]) -> None:
    compare(model, requests)


@given(arrivals(shares=True))
@settings(max_examples=60, deadline=None)
def test_its_prefix_cache_is_the_emulators(model: EngineModel, requests: list[Arrival]) -> None:
    compare(model, requests)


@given(arrivals())
@settings(max_examples=20, deadline=None)
def test_prompts_without_anything_in_common_are_as_prompts_without_hashes(
    model: EngineModel, requests: list[Arrival]
) -> None:
    unique = [
        Arrival(a.ns, a.prompt, a.output, tuple(range(1000 * i, 1000 * i + a.prompt // 4)))
        for i, a in enumerate(requests)
    ]
    plain = simulate(one_site(model), workload_of(requests), run_settings())
    cached = simulate(one_site(model), workload_of(unique), run_settings())
    if not plain.preemptions.any():
        # A preempted request may find its own blocks again.
        assert plain.trace_hash() == cached.trace_hash()


def test_the_examples_meet_preemption_eviction_and_split_prompts(model: EngineModel) -> None:
    crowd = [
        Arrival(i * 1_000_000, 20 + i % 7, 60, tuple(range(SHARED * (i % 3), SHARED * (i % 3) + 5))) for i in range(20)
    ]
    results = compare(model, crowd)
    assert results.preemptions.sum() > 0
    assert results.cached_tokens.sum() > 0
    assert results.served.all()


def test_a_batch_capacity_below_the_models_is_kept(model: EngineModel) -> None:
    requests = [Arrival(0, 10, 8) for _ in range(9)]
    narrow = simulate(one_site(model, batch_capacity=2), workload_of(requests), run_settings())
    same = simulate(one_site(replace(model, max_num_seqs=2)), workload_of(requests), run_settings())
    assert narrow.trace_hash() == same.trace_hash()
    assert np.unique(narrow.first_token_ns).size == 5
