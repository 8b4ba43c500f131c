import math
from dataclasses import replace

import numpy as np
import pytest

from heliotrope.cache.ccar import TokenRatios
from heliotrope.cache.gate_features import FEATURES
from heliotrope.cache.links import DEFAULT_LINKS, LinkClass
from heliotrope_sim.reproduce.context.branches import Collect, collect
from heliotrope_sim.reproduce.context.measures import Ground, change
from heliotrope_sim.reproduce.context.policies import (
    CARBON_AFFINITY,
    CCAR,
    FAIR_CARBON,
    GAR,
    POLICIES,
    SESSION_AFFINITY,
    Ccar,
)
from heliotrope_sim.reproduce.context.profiles import DEPLOYMENTS, MODEL_OF, REGION_OF
from heliotrope_sim.reproduce.context.replay import Choice, Log, Replay, View
from heliotrope_sim.reproduce.context.system import System, Transfers
from heliotrope_sim.reproduce.context.tasks import Hour, Run, play, workload_of
from heliotrope_sim.reproduce.context.workload import Episode, Workload

SMALL = Episode(450, 1.0, 120.0, 3)
FEW = Episode(450, 1.0, 60.0, 3)
EVERY = (*POLICIES, CCAR)


@pytest.fixture(scope="module")
def logs() -> dict[str, Log]:
    return {name: play(Run(SMALL, name)) for name in EVERY}


def test_the_same_seed_gives_the_same_emissions(logs: dict[str, Log]) -> None:
    """Golden: whoever changes a figure here changes what the page on reproducing says."""
    grams = {name: float(np.nansum(log.grams_co2e)) for name, log in logs.items()}
    assert grams == {name: pytest.approx(value, rel=1e-6) for name, value in GOLDEN.items()}
    again = play(Run(SMALL, CCAR))
    np.testing.assert_array_equal(again.grams_co2e, logs[CCAR].grams_co2e)
    np.testing.assert_array_equal(again.deployment, logs[CCAR].deployment)


GOLDEN = {
    SESSION_AFFINITY: 127.535337972,
    CARBON_AFFINITY: 88.115672763,
    GAR: 97.512419183,
    FAIR_CARBON: 88.981268207,
    CCAR: 82.469931619,
}


@pytest.mark.parametrize("name", EVERY)
def test_every_turn_runs_on_a_model_that_suffices_and_energy_is_what_equation_4_says(
    name: str, logs: dict[str, Log]
) -> None:
    w, log = workload_of(SMALL), logs[name]
    rows = np.arange(len(w))
    assert (log.deployment >= 0).all()
    assert (log.deployment < DEPLOYMENTS).all()
    assert (w.quality[rows, MODEL_OF[log.deployment]] >= 0.85 * w.quality.max(axis=1) - 1e-12).all()
    assert (log.cached_tokens <= w.history_tokens + 1e-9).all()
    assert (log.cached_tokens[w.turn == 1] == 0.0).all()
    assert (log.joules > 0.0).all()
    assert (log.recomputed_joules <= log.joules).all()
    late = log.ttft_seconds > 5.0
    assert (log.best_effort[late]).all()


def test_gar_stays_in_its_region_where_that_has_anything(logs: dict[str, Log]) -> None:
    w = workload_of(SMALL)
    inside = REGION_OF[logs[GAR].deployment] == w.home_region[w.session]
    assert inside.mean() > 0.95


def test_affinity_moves_only_when_it_must(logs: dict[str, Log]) -> None:
    w = workload_of(SMALL)
    same = w.session[1:] == w.session[:-1]
    moves = {n: int((same & (log.deployment[1:] != log.deployment[:-1])).sum()) for n, log in logs.items()}
    assert moves[SESSION_AFFINITY] <= moves[CARBON_AFFINITY] < moves[CCAR] < moves[FAIR_CARBON]


def test_a_session_sticks_the_more_the_less_a_cached_token_costs() -> None:
    w = workload_of(SMALL)
    same = w.session[1:] == w.session[:-1]
    moves = []
    for cached in (0.01, 0.3, 0.9, 1.0):
        log = play(Run(SMALL, CCAR, System(TokenRatios(cached, 6.0))))
        moves.append(int((same & (log.deployment[1:] != log.deployment[:-1])).sum()))
    assert moves[0] < moves[2] <= moves[3]
    assert moves[0] <= moves[1] <= moves[2]


def test_where_a_cache_is_worth_nothing_pricing_changes_nothing() -> None:
    """With γ = 1 a cached token costs as much as another, and CCAR is FairCarbon."""
    system = System(TokenRatios(1.0, 6.0))
    np.testing.assert_array_equal(
        play(Run(SMALL, CCAR, system)).deployment, play(Run(SMALL, FAIR_CARBON, system)).deployment
    )


def test_a_branch_that_chooses_the_same_repeats_what_happened() -> None:
    workload = workload_of(SMALL)
    scratch = Log.empty(len(workload))
    seen: list[tuple[int, float, float]] = []

    def watch(replay: Replay, view: View, choice: Choice) -> None:
        if view.row % 17 == 0 and not workload.last[view.row]:
            twin = replay.branch(scratch)
            twin.dispatch(view, choice)
            twin.run(until_row=view.row + 1)
            seen.append((view.row, float(scratch.grams_co2e[view.row]), float(scratch.grams_co2e[view.row + 1])))

    log = Replay(workload, System(), Ccar(), watch).run()
    np.testing.assert_array_equal(log.grams_co2e, play(Run(SMALL, CCAR)).grams_co2e)
    assert len(seen) > 20
    for row, this, following in seen:
        assert (this, following) == (log.grams_co2e[row], log.grams_co2e[row + 1])


def test_branching_finds_both_outcomes_of_switches() -> None:
    switches = collect(Collect(FEW, 0.5, 1))
    assert len(switches) > 10
    assert all(len(s.features.values) == len(FEATURES) for s in switches)
    assert all(s.moved_grams > 0.0 and s.stayed_grams > 0.0 and s.scale_grams > 0.0 for s in switches)
    assert {s.advantage > 0.0 for s in switches} == {True, False}
    again = collect(Collect(FEW, 0.5, 1))
    assert [s.advantage for s in again] == [s.advantage for s in switches]


def test_nothing_is_rejected_when_the_regions_together_hold_the_peak() -> None:
    log = play(Run(SMALL, FAIR_CARBON, System(capacity=0.25)))
    assert (log.deployment >= 0).all()


def test_without_places_turns_are_rejected_and_their_sessions_go_on() -> None:
    log = play(Run(SMALL, FAIR_CARBON, System(capacity=0.01)))
    rejected = log.deployment < 0
    assert rejected.any()
    assert not rejected.all()
    assert np.isnan(log.grams_co2e[rejected]).all()


def test_queues_only_add_waiting() -> None:
    hour = Hour(438, 3, 5.0)
    log = play(Run(hour, FAIR_CARBON, System(sessions_per_replica=1_000.0)))
    assert log.wait_seconds.max() > 0.0
    assert (log.wait_seconds >= 0.0).all()
    assert (play(Run(hour, FAIR_CARBON)).wait_seconds == 0.0).all()


def test_a_pull_happens_only_where_it_emits_less_than_recomputing() -> None:
    def transfers(joules_per_bit: float) -> Transfers:
        links = (DEFAULT_LINKS[LinkClass.WAN], DEFAULT_LINKS[LinkClass.REGION])
        wan, region = (replace(link, network_joules_per_bit=joules_per_bit) for link in links)
        return Transfers(wan=wan, region=region)

    none = play(Run(SMALL, FAIR_CARBON, System(transfers=transfers(1.0))))
    assert (none.pulled_tokens == 0.0).all()
    np.testing.assert_array_equal(none.grams_co2e, play(Run(SMALL, FAIR_CARBON)).grams_co2e)
    cheap = play(Run(SMALL, FAIR_CARBON, System(transfers=transfers(0.0))))
    assert cheap.pulled_tokens.sum() > 0.0
    assert (cheap.pulled_tokens <= cheap.cached_tokens).all()


def test_a_policy_that_has_nothing_feasible_says_so() -> None:
    workload: Workload = workload_of(SMALL)
    views: list[View] = []
    Replay(workload, System(), Ccar(), lambda _, view, __: views.append(view)).run()
    nothing = replace(views[0], feasible=np.zeros(DEPLOYMENTS, dtype=bool))
    for policy in (*POLICIES.values(), Ccar()):
        assert policy(workload, nothing).deployment == -1
    assert math.isnan(views[0].session.ended_seconds)


def test_replays_of_one_session_at_several_hours_are_drawn_together() -> None:
    hours = (Hour(438, 3, 2.0), Hour(450, 3, 2.0))
    ground = Ground.of((SMALL, *hours))
    n, trace = workload_of(SMALL).sessions, workload_of(hours[0]).sessions
    assert ground.sessions == n + 2 * trace
    assert len(set(ground.drawn.tolist())) == n + trace
    np.testing.assert_array_equal(ground.drawn[n : n + trace], ground.drawn[n + trace :])
    twice = np.ones(len(ground.session))
    found = change(ground, 2.0 * twice, twice, 1)
    assert (found.estimate, found.blocks) == (1.0, n + trace)
