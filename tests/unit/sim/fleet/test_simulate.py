"""A whole run: what it conserves, where requests wait, what schedulers see, that it is the same every time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sim.fleet.single import AT_ONCE, Arrival, one_site, to_site, workload_of
from tests.unit.sim.fleet.single import settings as at_once

from heliotrope.carbon.series import Point, Series
from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope.place.assignment import Assignment
from heliotrope.place.policy import PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.registry import shipped
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.place.schedulers.round_robin import round_robin
from heliotrope.place.window import Window
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.lengths import Lengths
from heliotrope_sim.fleet.results import Ending, Line, Results
from heliotrope_sim.fleet.settings import DecisionTime, RunSettings
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.fleet.topology import Dispatch, SchedulerSite, Site, Topology
from heliotrope_sim.fleet.workload import RequestClass, Workload, workload

SHORT = Lengths(40.0, 12.0, most_prompt_tokens=100, most_output_tokens=50)


def constant(intensity: float) -> Series:
    return Series.from_points([Point(0.0, intensity)], last_holds_s=1e9)


def two_zones(model: EngineModel, dispatch: Dispatch = Dispatch.ROUND_ROBIN) -> Topology:
    """Two zones of two sites of 2 × 2 engines; the second zone is clean."""
    grid = {"n0": 500.0, "n1": 400.0, "s0": 40.0, "s1": 50.0}
    sites = tuple(
        Site(name, name[0], model, 2, 2, carbon=constant(value), dispatch=dispatch) for name, value in grid.items()
    )
    rtt = np.array([[0.002, 0.002, 0.2, 0.2], [0.2, 0.2, 0.002, 0.002]])
    return Topology(sites, (SchedulerSite("north", "n"), SchedulerSite("south", "s")), rtt)


def check_conservation(results: Results) -> None:
    """Everybody ends once, at one engine, in order; energy of requests is that of the steps."""
    served = results.served
    engines = results.topology.engines
    assert ((results.engine[served] >= 0) & (results.engine[served] < engines)).all()
    assert (results.sent_ns[served] >= results.workload.arrival_ns[served]).all()
    assert (results.queued_ns[served] >= results.sent_ns[served]).all()
    assert (results.first_token_ns[served] > results.queued_ns[served]).all()
    assert (results.finished_ns[served] >= results.first_token_ns[served]).all()
    assert results.finished_ns.max() <= results.interval_end_ns[-1]
    lines = results.energy_joules.sum(axis=(0, 1))
    busy = lines[Line.PREFILL] + lines[Line.DECODE] + lines[Line.TRANSFER]
    assert results.request_joules.sum() == pytest.approx(busy, rel=1e-9)
    seconds = results.interval_end_ns[-1] / 1e9
    assert (results.awake_engine_seconds.sum() + 0.0) <= engines * seconds * (1 + 1e-12)
    assert results.busy_engine_seconds.sum() <= results.awake_engine_seconds.sum() * (1 + 1e-12)


@given(
    st.integers(0, 1000), st.sampled_from([20.0, 120.0]), st.sampled_from([Dispatch.ROUND_ROBIN, Dispatch.LEAST_LOADED])
)
@settings(max_examples=8, deadline=None)
def test_every_request_ends_once_and_every_joule_has_a_line(
    model: EngineModel, seed: int, rate: float, dispatch: Dispatch
) -> None:
    arrivals = poisson(rate, 3.0, seed=seed, schedulers=2, lengths=SHORT)
    results = simulate(two_zones(model, dispatch), arrivals, RunSettings(scheduler=greedy))
    check_conservation(results)
    assert results.served.all()
    total = results.energy_joules.sum(axis=(0, 1))
    seconds = results.interval_end_ns[-1] / 1e9
    assert total[Line.HOST] == pytest.approx(8 * 300.0 * seconds)
    idle_seconds = (results.awake_engine_seconds - results.busy_engine_seconds).sum()
    assert total[Line.IDLE] == pytest.approx(model.idle_watts * idle_seconds)


def test_equal_runs_are_equal_and_other_seeds_are_not(model: EngineModel) -> None:
    def digest(seed: int) -> str:
        arrivals = poisson(60.0, 4.0, seed=seed, schedulers=2, lengths=SHORT)
        return simulate(two_zones(model), arrivals, RunSettings(scheduler=greedy)).trace_hash()

    assert digest(1) == digest(1) != digest(2)


def test_golden_runs(model: EngineModel) -> None:
    """A change of these digests is a change of every figure: say so in the changelog."""
    arrivals = poisson(60.0, 4.0, seed=5, schedulers=2, lengths=SHORT)
    topology = two_zones(model)
    found = {
        "round robin": simulate(topology, arrivals, RunSettings(scheduler=round_robin)).trace_hash()[:16],
        "greedy": simulate(topology, arrivals, RunSettings(scheduler=greedy)).trace_hash()[:16],
        "one engine": simulate(one_site(model), arrivals_of_one(arrivals), at_once()).trace_hash()[:16],
    }
    assert found == GOLDEN


def arrivals_of_one(arrivals: Workload) -> Workload:
    return replace(arrivals, origin=np.zeros_like(arrivals.origin))


GOLDEN = {"round robin": "cf0dd81579005cf3", "greedy": "219724c091f377af", "one engine": "baf1d16a8a0e39a4"}


def test_a_request_waits_in_its_window_and_in_that_of_the_other_region(model: EngineModel) -> None:
    one = workload([0.05], [10], [2], origin=[0])
    decision = DecisionTime(base_seconds=0.01, seconds_per_request=0.0, seconds_per_work=0.0)
    run = RunSettings(scheduler=to_site(2), decision_time=decision)  # type: ignore[arg-type]
    results = simulate(two_zones(model), one, run)
    # At 50 ms, window to 150, decided at 160; at the other scheduler at 260, its window to 360; 1 ms to the site.
    assert results.window_ns.tolist() == [100_000_000]
    assert results.sent_ns.tolist() == [160_000_000]
    assert results.queued_ns.tolist() == [361_000_000]
    prefill_ns = int(results.first_token_ns[0] - results.queued_ns[0])
    assert results.ttft_seconds[0] == pytest.approx(0.311 + prefill_ns / 1e9 + 0.1)
    direct = simulate(two_zones(model), one, replace(run, forwards_wait=False))
    assert direct.queued_ns.tolist() == [260_000_000]
    near = simulate(two_zones(model), one, replace(run, scheduler=to_site(1)))  # type: ignore[arg-type]
    assert near.queued_ns.tolist() == [161_000_000]


def test_a_full_window_closes_early(model: EngineModel) -> None:
    times = np.linspace(0.0, 0.05, 10)
    run = RunSettings(scheduler=round_robin, window_requests=4, decision_time=AT_ONCE)
    results = simulate(two_zones(model), workload(times, 10, 2), run)
    closes = results.window_ns + results.workload.arrival_ns
    ns = results.workload.arrival_ns
    assert closes.tolist() == [ns[3]] * 4 + [ns[7]] * 4 + [ns[8] + 100_000_000] * 2
    assert results.decisions.requests.tolist() == [4, 4, 2]


def test_a_window_waits_for_the_decision_before_it(model: EngineModel) -> None:
    slow = DecisionTime(base_seconds=0.24, seconds_per_request=0.0, seconds_per_work=0.0)
    results = simulate(
        two_zones(model), workload([0.0, 0.12, 0.23], 10, 2), RunSettings(scheduler=round_robin, decision_time=slow)
    )
    assert results.decisions.closed_ns.tolist() == [100_000_000, 220_000_000, 330_000_000]
    assert results.decisions.decided_ns.tolist() == [340_000_000, 580_000_000, 820_000_000]


def seen_by(model: EngineModel, arrivals: Workload, **changes: object) -> list[tuple[float, Regions, Window]]:
    """What a scheduler is shown at each of its decisions."""
    seen: list[tuple[float, Regions, Window]] = []

    def scheduler(
        window: Window, regions: Regions, p: PlacementPolicy, now: float, memory: object = None
    ) -> Assignment:
        seen.append((now, regions, window))
        return to_site(0)(window, regions, p, now, memory)  # type: ignore[operator, no-any-return]

    given = {"scheduler": scheduler, "decision_time": AT_ONCE, "project": False, **changes}
    simulate(two_zones(model), arrivals, RunSettings(**given))  # type: ignore[arg-type]
    return seen


def test_schedulers_see_the_last_poll(model: EngineModel) -> None:
    # 24 long answers fill four engines; the next decision before the poll sees none of them, the one after it does.
    times = [0.0] * 24 + [0.5, 1.5]
    seen = seen_by(model, workload(times, 20, 100))
    (_, before, _), (now, after, window) = seen[1], seen[2]
    assert before.running.tolist() == [0.0] * 4
    assert before.engines.tolist() == [4.0] * 4
    assert before.idle_engines.tolist() == [4.0] * 4
    assert (after.running + after.waiting).tolist() == [6.25, 0.0, 0.0, 0.0]
    assert after.kv_tokens[0] > 20.0
    assert after.waiting_tokens[0] > 20.0
    assert after.prefill_duty[0] > 0.0
    assert after.idle_engines.tolist() == [0.0, 4.0, 4.0, 4.0]
    assert after.intensity_g_per_kwh.tolist() == [500.0, 400.0, 40.0, 50.0]
    assert after.age_seconds.tolist() == pytest.approx([0.6] * 4)
    assert after.rtt_seconds.tolist() == [0.002, 0.002, 0.2, 0.2]
    assert after.dispatch_seconds.tolist() == [0.0, 0.0, 0.05, 0.05]
    assert now == pytest.approx(1.6)
    assert window.waited_seconds.tolist() == pytest.approx([0.1])


def test_a_projection_shows_what_was_sent_since(model: EngineModel) -> None:
    seen = seen_by(model, workload([0.0] * 24 + [0.5], 20, 100), project=True, peers=0.0)
    _, projected, _ = seen[1]
    assert projected.running[0] + projected.waiting[0] == pytest.approx(6.0)
    assert projected.idle_engines[0] < 4.0
    with_peers = seen_by(model, workload([0.0] * 24 + [0.5], 20, 100), project=True)
    assert with_peers[1][1].running[0] + with_peers[1][1].waiting[0] == pytest.approx(12.0)


def test_staggered_polls_have_different_ages(model: EngineModel) -> None:
    seen = seen_by(model, workload([0.0, 1.9], 10, 2), staggered_polls=True)
    assert seen[-1][1].age_seconds.tolist() == pytest.approx([0.75, 0.5, 0.25, 0.0])


def test_data_residency_is_hard(model: EngineModel) -> None:
    classes = (
        RequestClass("north only", allowed_sites=frozenset({"n0", "n1"})),
        RequestClass("nowhere", allowed_sites=frozenset()),
    )
    arrivals = workload(np.linspace(0.0, 1.0, 20), 10, 3, class_index=[0] * 15 + [1] * 5, classes=classes)
    results = simulate(two_zones(model), arrivals, RunSettings(scheduler=greedy))
    assert set(results.site[:15].tolist()) <= {0, 1}
    assert (results.ending[15:] == Ending.NOWHERE).all()
    assert results.violated[15:].all()
    assert results.summary().served == 15


def test_a_request_that_could_never_fit_is_refused(model: EngineModel) -> None:
    arrivals = workload([0.0, 0.1], [200, 10], 4)
    results = simulate(one_site(model), arrivals, at_once(scheduler=to_site(0)))
    assert results.ending.tolist() == [Ending.REFUSED, Ending.SERVED]
    assert results.ttft_violated.tolist() == [True, False]
    # Schedulers of `heliotrope.place` know that it fits nowhere.
    assert simulate(one_site(model), arrivals, at_once()).ending.tolist() == [Ending.NOWHERE, Ending.SERVED]


def test_grams_are_joules_times_pue_times_the_hours_intensity(model: EngineModel) -> None:
    hours = Series.from_points([Point(0.0, 100.0), Point(3600.0, 300.0)], last_holds_s=3600.0)
    # Half an hour before the change to half an hour after it.
    arrivals = workload([0.0, 3599.0], 10, 2, duration_seconds=3600.0)
    run = at_once(start_unix_s=1800.0)
    results = simulate(one_site(model, carbon=hours, pue=1.5), arrivals, run)
    assert results.interval_end_ns[:2].tolist() == [1_800_000_000_000, 3_600_000_000_000]
    assert results.intensity_g_per_kwh[:2, 0].tolist() == [100.0, 300.0]
    expected = (results.energy_joules[:, 0].sum(axis=1) * results.intensity_g_per_kwh[:, 0]).sum() / 3.6e6 * 1.5
    assert results.grams().sum() == pytest.approx(expected)
    first, second = (results.request_joules * [100.0, 300.0] * 1.5 / 3.6e6).tolist()
    assert results.request_grams.tolist() == pytest.approx([first, second])
    assert results.summary(drained=False).grams == pytest.approx(
        (results.energy_joules[:2, 0].sum(axis=1) * [100.0, 300.0]).sum() / 3.6e6 * 1.5
    )


def test_an_intensity_that_is_unknown_leaves_the_grams_unknown(model: EngineModel) -> None:
    results = simulate(one_site(model, carbon=None), workload([0.0], 10, 2), at_once())
    assert np.isnan(results.summary().grams)
    assert results.summary().joules["total"] > 0.0


def test_a_site_without_a_signal_takes_carbon_out_of_greedy(model: EngineModel) -> None:
    topology = two_zones(model)
    dark = replace(topology, sites=(*topology.sites[:3], replace(topology.sites[3], carbon=None)))
    results = simulate(dark, poisson(30.0, 2.0, seed=1, schedulers=2, lengths=SHORT), RunSettings(scheduler=greedy))
    assert not results.decisions.carbon_counts.any()
    assert results.served.all()


def test_origins_must_exist(model: EngineModel) -> None:
    with pytest.raises(InvalidInputError, match="origin"):
        simulate(one_site(model), workload([0.0], 10, 2, origin=[1]), at_once())


def test_sites_take_turns_over_nodes_first(model: EngineModel) -> None:
    arrivals = workload_of([Arrival(i * 1_000_000_000, 5, 1) for i in range(6)])
    results = simulate(one_site(model, nodes=2, engines_per_node=2), arrivals, at_once())
    assert results.engine.tolist() == [0, 2, 1, 3, 0, 2]


def test_least_loaded_goes_to_the_engine_with_the_fewest(model: EngineModel) -> None:
    long, short = Arrival(0, 10, 100), Arrival(0, 10, 1)
    late = [Arrival(500_000_000 + i, 5, 50) for i in range(3)]
    topology = one_site(model, engines_per_node=2, dispatch=Dispatch.LEAST_LOADED)
    results = simulate(topology, workload_of([long, short, *late]), at_once())
    # Both were empty for the first two; later only the first one's engine is busy.
    assert results.engine.tolist() == [0, 1, 1, 0, 1]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_scheduler_serves_everybody_and_does_so_again(model: EngineModel, name: str) -> None:
    policy = PlacementPolicy(limit=WorkLimit(seconds=None, nodes=200))
    run = RunSettings(scheduler=shipped()[name], policy=policy, staggered_polls=True)
    arrivals = poisson(50.0, 3.0, seed=9, schedulers=2, lengths=SHORT)
    results = simulate(two_zones(model), arrivals, run)
    assert results.served.all()
    check_conservation(results)
    assert simulate(two_zones(model), arrivals, run).trace_hash() == results.trace_hash()


def test_a_session_is_at_home_where_its_last_turn_went(model: EngineModel) -> None:
    hashes = [range(10), range(15), (), range(10)]
    arrivals = workload(
        [0.0, 1.0, 1.5, 2.0],
        [42, 62, 10, 42],
        3,
        session=[7, 7, -1, 8],
        block_hashes=hashes,
    )
    seen = seen_by(model, arrivals)
    windows = [window for _, _, window in seen]
    assert [window.home.tolist() for window in windows] == [[-1], [0], [-1], [-1]]
    assert windows[1].cached_tokens.tolist() == [[45.0, 0.0, 0.0, 0.0]]
    assert windows[2].cached_tokens.tolist() == [[0.0] * 4]


def test_solvers_never_stop_by_the_clock(model: EngineModel) -> None:
    limits: list[WorkLimit] = []

    def scheduler(window: Window, regions: Regions, p: PlacementPolicy, now: float, memory: object = None) -> object:
        limits.append(p.limit)
        return to_site(0)(window, regions, p, now, memory)  # type: ignore[operator]

    for limit in (WorkLimit(seconds=0.25), WorkLimit(seconds=0.1, nodes=7)):
        run = at_once(scheduler=scheduler, policy=PlacementPolicy(limit=limit))
        simulate(one_site(model), workload([0.0], 10, 2), run)
    assert limits == [WorkLimit(seconds=None, nodes=400), WorkLimit(seconds=None, nodes=7)]


def test_intervals_end_at_multiples_of_the_step_whenever_a_run_starts(model: EngineModel) -> None:
    arrivals = workload([0.0, 1500.0], 10, 2, duration_seconds=1500.0)
    results = simulate(one_site(model), arrivals, at_once(start_unix_s=1_640_995_200.3, carbon_step_seconds=300.0))
    ends = (results.interval_end_ns / 1e9).tolist()
    assert ends == pytest.approx([299.7, 599.7, 899.7, 1199.7, 1499.7, 1500.0, 1501.0], abs=1e-6)
