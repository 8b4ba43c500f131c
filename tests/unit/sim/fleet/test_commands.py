"""Engines that sleep, wake and change their clocks, and sites that prefill and decode on engines of their own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sim.fleet.single import Arrival, one_site, settings, to_site, workload_of

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine import Engine, ExternalKv, Request
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.lengths import Lengths
from heliotrope_sim.fleet.results import Ending, Line
from heliotrope_sim.fleet.settings import Command, Depth
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.fleet.topology import Dispatch, PrefillDecode, Wake
from heliotrope_sim.fleet.view import FleetView
from heliotrope_sim.fleet.workload import workload

SHORT = Lengths(40.0, 12.0, most_prompt_tokens=100, most_output_tokens=50)


def at(seconds: float, engines: Sequence[int], **changes: object) -> tuple[float, Command]:
    return seconds, Command(site=0, engines=engines, **changes)  # type: ignore[arg-type]


def test_an_engine_finishes_what_it_has_before_it_sleeps(model: EngineModel) -> None:
    topology = one_site(model, engines_per_node=2)
    requests = workload_of([Arrival(0, 10, 60), Arrival(0, 10, 60), Arrival(2_000_000_000, 10, 2)])
    results = simulate(topology, requests, settings(commands=[at(0.5, [0], depth=Depth.SLEEP)]))
    # Nothing new comes to engine 0 after the command, though it has the next turn.
    assert results.engine.tolist() == [0, 1, 1]
    assert results.served.all()
    end = results.interval_end_ns[-1] / 1e9
    slept = end - results.finished_ns[0] / 1e9
    total = results.energy_joules.sum(axis=(0, 1))
    assert total[Line.ASLEEP] == pytest.approx(model.sleep_watts * slept)
    assert results.awake_engine_seconds.sum() == pytest.approx(2 * end - slept)
    idle = (results.awake_engine_seconds - results.busy_engine_seconds).sum()
    assert total[Line.IDLE] == pytest.approx(model.idle_watts * idle)


@pytest.mark.parametrize(
    ("depth", "watts"),
    [(Depth.SLEEP, 40.0), (Depth.EXIT, 20.0), (Depth.NODE_OFF, 0.0)],
)
def test_every_depth_has_its_power_and_its_time_to_wake(model: EngineModel, depth: Depth, watts: float) -> None:
    wake = Wake(sleep_seconds=1.0, exit_seconds=2.0, node_off_seconds=3.0)
    commands = [at(0.0, [0], depth=depth), at(10.0, [0], depth=Depth.AWAKE)]
    requests = workload_of([Arrival(10_000_000_001, 10, 2)], duration_seconds=14.0)
    # The last poll says that the site is down; this scheduler does not mind.
    run = settings(commands=commands, scheduler=to_site(0))
    results = simulate(one_site(model, wake=wake), requests, run)
    woken = {Depth.SLEEP: 11.0, Depth.EXIT: 12.0, Depth.NODE_OFF: 13.0}[depth]
    prefill_ns = round(float(model.prefill_seconds(10.0)) * 1e9)
    assert results.first_token_ns[0] == pytest.approx(woken * 1e9 + prefill_ns, abs=2)
    total = results.energy_joules.sum(axis=(0, 1))
    # While it wakes it draws what it draws when it is idle.
    assert total[Line.ASLEEP] == pytest.approx(10.0 * watts + (woken - 10.0) * model.idle_watts)
    end = results.interval_end_ns[-1] / 1e9
    on = end - (10.0 if depth is Depth.NODE_OFF else 0.0)
    assert total[Line.HOST] == pytest.approx(300.0 * on)


def test_a_node_is_off_when_its_last_engine_is(model: EngineModel) -> None:
    commands = [at(1.0, [0], depth=Depth.NODE_OFF), at(3.0, [1], depth=Depth.NODE_OFF)]
    requests = workload_of([Arrival(0, 10, 2)], duration_seconds=9.5)
    results = simulate(one_site(model, nodes=2, engines_per_node=2), requests, settings(commands=commands))
    assert results.energy_joules.sum(axis=(0, 1))[Line.HOST] == pytest.approx(300.0 * (3.0 + 10.0))


def test_at_the_idle_clock_an_engine_draws_less_and_takes_requests(model: EngineModel) -> None:
    requests = workload_of([Arrival(5_000_000_000, 10, 20)], duration_seconds=9.5)
    fast = simulate(one_site(model), requests, settings())
    low = simulate(one_site(model), requests, settings(commands=[at(0.0, [0], depth=Depth.IDLE_CLOCK)]))
    assert low.finished_ns.tolist() == fast.finished_ns.tolist()
    ratio = model.at_clock(model.clock.min_mhz).idle_watts / model.idle_watts
    idle = [r.energy_joules.sum(axis=(0, 1))[Line.IDLE] for r in (low, fast)]
    assert idle[0] == pytest.approx(idle[1] * ratio)


def test_requests_wait_for_an_engine_that_wakes_and_are_stranded_where_none_does(model: EngineModel) -> None:
    requests = workload_of([Arrival(500_000_000, 10, 2)])
    asleep = at(0.0, [0], depth=Depth.SLEEP)
    # The scheduler has seen the site awake before the first command.
    stranded = simulate(one_site(model), requests, settings(commands=[asleep]))
    assert stranded.ending.tolist() == [Ending.STRANDED]
    assert stranded.violated.all()
    woken = simulate(one_site(model), requests, settings(commands=[asleep, at(30.0, [0], depth=Depth.AWAKE)]))
    assert woken.served.all()
    assert woken.queued_ns.tolist() == [30_000_000_000]
    assert woken.first_token_ns[0] > 32_000_000_000


@pytest.mark.parametrize("dispatch", [Dispatch.ROUND_ROBIN, Dispatch.LEAST_LOADED])
def test_an_engine_that_wakes_gets_requests_when_it_is_awake(model: EngineModel, dispatch: Dispatch) -> None:
    topology = one_site(model, engines_per_node=2, dispatch=dispatch, wake=Wake(sleep_seconds=2.0))
    commands = [at(0.0, [1], depth=Depth.SLEEP), at(4.0, [1], depth=Depth.AWAKE)]
    # Three a second, each longer than a third of a second.
    requests = workload_of([Arrival(i * 333_000_000, 10, 40) for i in range(30)])
    results = simulate(topology, requests, settings(commands=commands))
    at_once = results.first_token_ns - results.queued_ns
    assert at_once.max() < 1e9
    on_other = results.queued_ns[results.engine == 1]
    assert len(on_other) > 2
    assert on_other.min() >= 6_000_000_000


def test_a_clock_holds_from_the_next_step_on(model: EngineModel) -> None:
    requests = [Arrival(0, 10, 40), Arrival(1000, 60, 30)]
    results = simulate(one_site(model), workload_of(requests), settings(commands=[at(0.3, [0], clock_mhz=600)]))
    engine = Engine(model)
    sequences = [engine.submit(Request(str(i), a.prompt, a.output), a.ns) for i, a in enumerate(requests)]
    now, slow = 0, False
    while (step := engine.step(now)) is not None:
        now = step.end_ns
        if now >= 300_000_000 and not slow:
            engine.set_clock(600, 300_000_000)
            slow = True
    assert results.finished_ns.tolist() == [s.finished_ns for s in sequences]
    assert results.picojoules.tolist() == [s.picojoules for s in sequences]


def test_a_controller_sees_engines_and_is_obeyed(model: EngineModel) -> None:
    seen: list[tuple[float, int, int]] = []
    first_tokens: list[tuple[float, list[int]]] = []

    def controller(seconds: float, view: FleetView) -> list[Command]:
        site = view.sites[0]
        first_tokens.append((seconds, view.first_token_ns(5, 15).tolist()))
        seen.append((seconds, int((site.running + site.waiting).sum()), int(view.arrived_since[0])))
        idle = np.flatnonzero((site.running + site.waiting == 0) & (site.depth == Depth.AWAKE))
        return [Command(0, idle[1:].tolist(), depth=Depth.SLEEP)]

    topology = one_site(model, engines_per_node=4)
    run = settings(controller=controller, control_seconds=1.0)
    results = simulate(topology, workload_of([Arrival(100_000_000 * i, 10, 30) for i in range(30)]), run)
    assert results.served.all()
    assert seen[0] == (0.0, 0, 0)
    assert seen[1][2] == 10
    for seconds, known in first_tokens:
        truth = results.first_token_ns[5:15].tolist()
        # A step in progress has told its end.
        assert all(told in (-1, true) for told, true in zip(known, truth, strict=True))
        assert all(told == true for told, true in zip(known, truth, strict=True) if true < seconds * 1e9)
    # At the start all but one went to sleep.
    assert set(results.engine.tolist()) == {0}
    assert results.energy_joules.sum(axis=(0, 1))[Line.ASLEEP] > 0.0


def test_commands_name_what_does_not_exist(model: EngineModel) -> None:
    requests = workload_of([Arrival(10, 10, 2)])
    with pytest.raises(InvalidInputError, match="none is 3"):
        simulate(one_site(model), requests, settings(commands=[at(0.0, [3], depth=Depth.SLEEP)]))
    with pytest.raises(InvalidInputError, match="no site 1"):
        simulate(one_site(model), requests, settings(commands=[(0.0, Command(site=1, engines=[0]))]))


LINK = PrefillDecode(
    prefill_engines=1, link_bytes_per_second=1e6, link_latency_seconds=0.001, link_joules_per_byte=1e-6
)


def test_prefill_and_decode_apart_are_two_engines_and_a_transfer(model: EngineModel) -> None:
    requests = [Arrival(i * 5_000_000_000, 17 + 3 * i, 9) for i in range(4)]
    topology = one_site(model, engines_per_node=2, prefill_decode=LINK)
    results = simulate(topology, workload_of(requests), settings())
    prefills, decodes = Engine(model), Engine(model)
    drawn = []
    for i, a in enumerate(requests):
        first = prefills.submit(Request(str(i), a.prompt, 1), a.ns)
        step = prefills.step(max(a.ns, prefills.energy.settled_ns))
        assert step is not None
        moved_ns = step.end_ns + 1_000_000 + a.prompt * 1000 * 1000
        second = decodes.submit(Request(str(i), a.prompt, a.output, external=ExternalKv(a.prompt, 0, 0)), moved_ns)
        now = moved_ns
        while (decode := decodes.step(now)) is not None:
            now = decode.end_ns
        assert results.queued_ns[i] == a.ns
        assert results.first_token_ns[i] == second.first_token_ns
        assert results.finished_ns[i] == second.finished_ns
        drawn.append(first.picojoules + second.picojoules + a.prompt * 1000 * 1_000_000)
    assert results.picojoules.tolist() == drawn
    assert results.engine.tolist() == [1] * 4
    kv_bytes = sum(a.prompt for a in requests) * 1000
    assert results.energy_joules.sum(axis=(0, 1))[Line.TRANSFER] == pytest.approx(kv_bytes * 1e-6)


@pytest.mark.parametrize("dispatch", [Dispatch.ROUND_ROBIN, Dispatch.LEAST_LOADED])
def test_a_crowd_at_a_split_site_ends_and_adds_up(model: EngineModel, dispatch: Dispatch) -> None:
    topology = one_site(model, nodes=2, engines_per_node=3, prefill_decode=LINK, dispatch=dispatch)
    arrivals = poisson(40.0, 4.0, seed=3, lengths=SHORT)
    results = simulate(topology, arrivals, settings())
    assert results.served.all()
    assert set(results.engine.tolist()) <= {1, 2, 4, 5}
    lines = results.energy_joules.sum(axis=(0, 1))
    assert results.request_joules.sum() == pytest.approx(
        lines[Line.PREFILL] + lines[Line.DECODE] + lines[Line.TRANSFER], rel=1e-9
    )
    assert results.trace_hash() == simulate(topology, arrivals, settings()).trace_hash()


def test_a_split_site_shares_prefixes_on_its_prefill_engines(model: EngineModel) -> None:
    prefix = tuple(range(10))
    requests = [Arrival(i * 2_000_000_000, 45, 4, prefix) for i in range(3)]
    topology = one_site(model, engines_per_node=2, prefill_decode=LINK)
    results = simulate(topology, workload_of(requests), settings())
    assert results.cached_tokens.tolist() == [0, 40, 40]


def test_sites_may_differ(model: EngineModel) -> None:
    split = one_site(model, engines_per_node=2, prefill_decode=LINK)
    other = replace(one_site(model).sites[0], name="b", nodes=3)
    topology = replace(split, sites=(split.sites[0], other), rtt_seconds=np.zeros((1, 2)))
    arrivals = workload(np.linspace(0.0, 2.0, 40), 20, 6)
    results = simulate(topology, arrivals, settings())
    assert results.served.all()
    assert np.bincount(results.site).tolist() == [20, 20]
