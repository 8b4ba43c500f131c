"""The endpoint tier: the real `decide` on simulated engines, transfers that end, and pickers that err."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sim.fleet.single import Arrival, one_site, to_site, workload_of
from tests.unit.sim.fleet.single import settings as at_once

from heliotrope.cache.action import KvAction
from heliotrope.cache.links import Link, LinkClass, Links
from heliotrope.carbon.series import Point, Series
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import load
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine import Engine, ExternalKv, Request
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.endpoints import EndpointSettings, EndpointTier
from heliotrope_sim.fleet.lengths import Lengths
from heliotrope_sim.fleet.results import Ending, Line
from heliotrope_sim.fleet.settings import Command, Depth, Pick, RunSettings
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.fleet.topology import SchedulerSite, Site, Topology
from heliotrope_sim.fleet.view import SiteEngines
from heliotrope_sim.fleet.workload import Workload, workload

LLAMA = load("llama-3.1-8b-a100-40gb")
POLICY = DecisionPolicy("test", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1)


def grids(*intensities: float, engines: int = 2, model: EngineModel = LLAMA) -> Topology:
    sites = tuple(
        Site(
            f"g{i}",
            "z",
            model,
            1,
            engines,
            carbon=Series.from_points([Point(0.0, intensity)], last_holds_s=1e9),
        )
        for i, intensity in enumerate(intensities)
    )
    return Topology(sites, (SchedulerSite("s", "z"),), np.zeros((1, len(sites))))


def tier(topology: Topology, arrivals: Workload, **changes: object) -> EndpointTier:
    given = {"policy": POLICY, "keep_decisions": True, **changes}
    return EndpointTier(topology, arrivals, EndpointSettings(**given))  # type: ignore[arg-type]


def test_decide_sends_requests_to_the_clean_grid_until_its_engines_are_too_slow() -> None:
    topology = grids(500.0, 30.0)
    few = poisson(1.0, 20.0, seed=1)
    picker = tier(topology, few)
    results = simulate(topology, few, RunSettings(picker=picker))
    assert results.served.all()
    assert (results.site == 1).all()
    assert picker.outcomes["within-slo"] == len(few)
    crowd = poisson(30.0, 10.0, seed=1)
    crowded = simulate(topology, crowd, RunSettings(picker=tier(topology, crowd)))
    assert np.bincount(crowded.site, minlength=2).min() > 20
    assert crowded.summary().violation < 0.1


def test_candidates_are_the_engines_as_they_are() -> None:
    topology = grids(100.0, 100.0, engines=1)
    arrivals = workload([0.0, 0.001, 0.5], [800, 3000, 100], [200, 200, 5])
    picker = tier(topology, arrivals)
    results = simulate(topology, arrivals, RunSettings(picker=picker))
    first, second, third = (decision.candidates for decision in picker.decisions)
    assert first.running.tolist() == first.waiting.tolist() == [0.0, 0.0]
    assert second.running.sum() + second.waiting.sum() == 1.0
    busy = int(results.site[0])
    assert third.kv_tokens[busy] > 800.0
    assert third.prefill_duty[busy] == pytest.approx(
        (results.first_token_ns[0] - results.queued_ns[0]) / 0.5e9, rel=1e-3
    )
    assert third.endpoints == ("g0/0", "g1/0")
    readings = [view.signal.reading for view in third.region_views.values()]
    assert [reading.intensity_g_per_kwh for reading in readings if reading is not None] == [100.0, 100.0]


def test_what_an_engine_caches_draws_requests_to_it() -> None:
    topology = grids(100.0, 100.0, engines=2)
    prefix = tuple(range(200))
    arrivals = workload([0.0, 2.0, 4.0, 6.0], 3300, 4, block_hashes=[(*prefix, 1000 + i) for i in range(4)])
    picker = tier(topology, arrivals)
    results = simulate(topology, arrivals, RunSettings(picker=picker))
    assert len(set(results.engine.tolist())) == 1
    assert results.cached_tokens.tolist() == [0, 3200, 3200, 3200]
    assert picker.actions[KvAction.ROUTE_TO_OWNER.value] == 3


def test_engines_that_sleep_are_no_candidates() -> None:
    topology = grids(30.0, 500.0, engines=1)
    arrivals = workload([1.0], 100, 5)
    asleep = [(0.0, Command(0, [0], depth=Depth.SLEEP))]
    results = simulate(topology, arrivals, RunSettings(picker=tier(topology, arrivals), commands=asleep))
    assert results.site.tolist() == [1]
    both = [*asleep, (0.0, Command(1, [0], depth=Depth.SLEEP))]
    nowhere = simulate(topology, arrivals, RunSettings(picker=tier(topology, arrivals), commands=both))
    assert nowhere.ending.tolist() == [Ending.NOWHERE]


FAST = Links(between={kind: Link(1e12, 1e-4, 0.0, 0.0, 0.0) for kind in LinkClass})


def test_pairs_and_pulls_of_decide_are_carried_out() -> None:
    """One site is clean and slow to decode for the crowd there; prefills move where plans say so."""
    topology = grids(400.0, 20.0, engines=2)
    prefix = tuple(range(180))
    arrivals = poisson(14.0, 8.0, seed=2, lengths=Lengths(3000.0, 30.0))
    shared = replace(
        arrivals,
        block_offsets=np.arange(len(arrivals) + 1) * len(prefix),
        block_hashes=np.tile(np.array(prefix), len(arrivals)),
    )
    shared = replace(shared, prompt_tokens=np.maximum(shared.prompt_tokens, 2900))
    picker = tier(topology, shared, links=FAST, pairs=True)
    results = simulate(topology, shared, RunSettings(picker=picker))
    assert results.served.all()
    chosen = [d.candidates.kv_actions[d.winner] for d in picker.decisions if d.winner is not None]
    assert KvAction.PEER_TRANSFER in chosen or any(
        d.winner is not None and d.winner >= d.candidates.aggregated_count for d in picker.decisions
    )
    lines = results.energy_joules.sum(axis=(0, 1))
    steps = lines[Line.PREFILL] + lines[Line.DECODE] + lines[Line.TRANSFER]
    assert results.request_joules.sum() == pytest.approx(steps, rel=1e-9)


class Fixed:
    """A picker that always says the same."""

    def __init__(self, pick: Pick | None) -> None:
        self.pick = pick

    def __call__(self, _request: int, _seconds: float, _sites: Sequence[SiteEngines]) -> Pick | None:
        return self.pick


def test_a_prefill_elsewhere_is_the_emulators_with_a_transfer_on_the_grid(model: EngineModel) -> None:
    requests = [Arrival(i * 3_000_000_000 + 12_345, 17 + 3 * i, 9) for i in range(4)]
    pick = Pick(0, 0, prefill=(0, 1), transfer_seconds=0.02, transfer_joules=2.5)
    topology = one_site(model, engines_per_node=2)
    results = simulate(topology, workload_of(requests), RunSettings(picker=Fixed(pick)))
    for i, a in enumerate(requests):
        prefills, decodes = Engine(model, now_ns=a.ns), Engine(model, now_ns=a.ns)
        prefills.submit(Request("p", a.prompt, 1), a.ns)
        step = prefills.step(a.ns)
        assert step is not None
        moved_ns = (step.end_ns + 20_000_000) // 1_000_000 * 1_000_000 + 1_000_000
        second = decodes.submit(Request("d", a.prompt, a.output, external=ExternalKv(a.prompt, 0, 0)), moved_ns)
        now = moved_ns
        while (decode := decodes.step(now)) is not None:
            now = decode.end_ns
        assert results.first_token_ns[i] == second.first_token_ns
        assert results.finished_ns[i] == second.finished_ns
    assert results.engine.tolist() == [0] * 4
    assert results.energy_joules.sum(axis=(0, 1))[Line.TRANSFER] == pytest.approx(10.0)


def test_fetched_tokens_need_no_prefill(model: EngineModel) -> None:
    pick = Pick(0, 0, fetched_tokens=40, transfer_seconds=0.05, transfer_joules=1.0)
    results = simulate(one_site(model), workload_of([Arrival(0, 60, 3)]), RunSettings(picker=Fixed(pick)))
    assert results.cached_tokens.tolist() == [40]
    assert results.queued_ns.tolist() == [50_000_000]
    prefill = float(model.prefill_seconds(20.0, 1.0, 60.0**2 - 40.0**2))
    assert results.first_token_ns[0] / 1e9 == pytest.approx(0.05 + prefill)


def test_a_picker_may_find_nothing_and_must_not_invent_engines(model: EngineModel) -> None:
    requests = workload_of([Arrival(0, 10, 2)])
    nothing = simulate(one_site(model), requests, RunSettings(picker=Fixed(None)))
    assert nothing.ending.tolist() == [Ending.NOWHERE]
    with pytest.raises(InvalidInputError, match="none is 1"):
        simulate(one_site(model), requests, RunSettings(picker=Fixed(Pick(0, 1))))
    with pytest.raises(InvalidInputError, match="no site 2"):
        simulate(one_site(model), requests, RunSettings(picker=Fixed(Pick(2, 0))))


def test_a_refused_prefill_ends_the_request(model: EngineModel) -> None:
    small = replace(model, kv_capacity_tokens=40)
    a, b = one_site(model).sites[0], replace(one_site(small).sites[0], name="b")
    topology = replace(one_site(model), sites=(a, b), rtt_seconds=np.zeros((1, 2)))
    pick = Pick(0, 0, prefill=(1, 0), transfer_seconds=0.01)
    results = simulate(topology, workload_of([Arrival(0, 60, 2)]), RunSettings(picker=Fixed(pick)))
    assert results.ending.tolist() == [Ending.REFUSED]


def test_somebody_decides() -> None:
    with pytest.raises(InvalidInputError, match="must decide"):
        RunSettings()


def test_below_a_scheduler_a_picker_chooses_engines_of_the_site(model: EngineModel) -> None:
    topology = grids(500.0, 30.0, 400.0)
    arrivals = poisson(4.0, 10.0, seed=1)
    both = tier(topology, arrivals)
    results = simulate(topology, arrivals, RunSettings(scheduler=to_site(2), picker=both))
    assert results.served.all()
    assert (results.site == 2).all()
    assert set(results.engine.tolist()) <= {4, 5}
    assert all(decision.candidates.endpoint_count == 2 for decision in both.decisions)
    assert (results.window_ns > 0).any()
    requests = workload_of([Arrival(0, 10, 2)])
    nothing = simulate(one_site(model), requests, at_once(picker=Fixed(None)))
    assert nothing.ending.tolist() == [Ending.NOWHERE]
    site = one_site(model).sites[0]
    elsewhere = replace(one_site(model), sites=(site, replace(site, name="b")), rtt_seconds=np.zeros((1, 2)))
    with pytest.raises(InvalidInputError, match="was sent to site 1"):
        simulate(elsewhere, requests, at_once(scheduler=to_site(1), picker=Fixed(Pick(0, 0))))
