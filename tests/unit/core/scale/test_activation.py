"""Which engines rest: the demand is always carried, nothing at work is touched, and no plan undoes the one before."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.scale.activation import MARGIN, ActivationPlan, ActivationRules, EngineFacts, Why, plan
from heliotrope.scale.depths import ORDER, Rest, RestTable
from heliotrope.scale.facts import DemandForecast

CLOCK, SLEEP, EXIT, OFF = ORDER
TABLE = RestTable(
    72.0,
    37.5,
    {
        CLOCK: Rest(60.0, 3.0, 216.0, loses_cache=False),
        SLEEP: Rest(55.0, 15.0, 1_080.0),
        EXIT: Rest(45.0, 120.0, 8_640.0),
        OFF: Rest(0.0, 420.0, 46_000.0),
    },
)
NOW = 1e9
LONG_AGO = NOW - 3_600.0
ALL = frozenset(ORDER)


def engine(name: str, **facts: object) -> EngineFacts:
    given = {"table": TABLE, "requests_per_second": 10.0, "busy": False, "idle_since_unix_s": LONG_AGO}
    return EngineFacts(name, **(given | facts))  # type: ignore[arg-type]


def ask(engines: list[EngineFacts], upper: tuple[float, ...], held: float = 0.0, **changes: object) -> ActivationPlan:
    rules = replace(ActivationRules(ALL, warm_reserve_share=0.0), **changes)  # type: ignore[arg-type]
    forecast = DemandForecast(upper, upper, None)
    return plan(engines, forecast, rules, step_seconds=300.0, now_unix_s=NOW, held_requests=held)


def depths(planned: ActivationPlan) -> list[ActivationDepth | None]:
    return [each.depth for each in planned.engines]


def test_the_deeper_the_longer_an_engine_is_not_needed() -> None:
    """One is needed now, the next in 5 minutes, the next in 20, the last not within two hours."""
    upper = (9.0, 15.0, 15.0, 15.0, 25.0, *[25.0] * 19)
    four = [engine(f"e{i}") for i in range(4)]
    planned = ask(four, upper)
    assert depths(planned) == [None, EXIT, EXIT, EXIT], "nodes are not known, so none goes off"
    assert [each.idle_seconds for each in planned.engines] == [0.0, 300.0, 1_200.0, inf]
    on_nodes = [replace(e, node=f"n{i}", node_ours=True) for i, e in enumerate(four)]
    planned = ask(on_nodes, upper)
    assert depths(planned) == [None, EXIT, OFF, OFF]
    assert planned.nodes_off == {"n2", "n3"}
    assert planned.saved_watts == pytest.approx(27.0 + 2 * 109.5)


def test_an_engine_is_woken_so_early_that_it_serves_when_it_is_needed() -> None:
    engines = [engine("a"), engine("b", depth=EXIT)]
    assert depths(ask(engines, (9.0, 15.0), interval_seconds=179.0)) == [None, EXIT]
    assert depths(ask(engines, (9.0, 15.0), interval_seconds=180.0)) == [None, None]


def test_idle_power_in_clean_regions_is_kept_and_in_dirty_ones_saved() -> None:
    dirty, clean = engine("a", grams_per_joule=2e-4), engine("b", grams_per_joule=1e-5)
    assert depths(ask([dirty, clean], (9.0,) * 12)) == [EXIT, None]
    unknown = replace(dirty, grams_per_joule=None)
    assert depths(ask([unknown, clean], (9.0,) * 12)) == [None, EXIT], "carbon drops out for both: the first by name"


def test_whole_nodes_fall_idle_rather_than_engines_here_and_there() -> None:
    engines = [engine(f"{node}{i}", node=node, node_ours=True) for i in range(2) for node in "xyz"]
    planned = ask(engines, (18.0,) * 24)
    assert planned.nodes_off == {"y", "z"}
    shared = [replace(e, node_ours=e.node != "z") for e in engines]
    planned = ask(shared, (18.0,) * 24)
    assert planned.nodes_off == {"y"}
    assert planned.by_name["z0"].depth is EXIT


def test_the_engine_whose_cache_is_worth_most_stays() -> None:
    assert depths(ask([engine("a"), engine("b", cache_watts=20.0)], (9.0,) * 12)) == [EXIT, None]


def test_a_place_is_taken_over_before_it_is_given_up() -> None:
    """A much cleaner engine is to serve instead; the dirty one stays until that one is awake."""
    dirty, clean = engine("a", grams_per_joule=2e-4), engine("b", grams_per_joule=1e-6, depth=EXIT)
    planned = ask([dirty, clean], (9.0,) * 24)
    assert [(e.depth, e.why) for e in planned.engines] == [(None, Why.NEEDED), (None, Why.LEAST_AWAKE)]
    assert depths(ask([dirty, replace(clean, depth=None)], (9.0,) * 24)) == [EXIT, None]


def test_unknown_demand_moves_nothing_but_requests_that_wait_wake_the_quickest() -> None:
    rules = ActivationRules(ALL)
    asleep = [engine("a", depth=EXIT), engine("b", depth=SLEEP)]
    unknown = plan(asleep, None, rules, step_seconds=300.0, now_unix_s=NOW)
    assert depths(unknown) == [EXIT, SLEEP]
    held = plan(asleep, None, rules, step_seconds=300.0, now_unix_s=NOW, held_requests=1.0)
    assert depths(held) == [EXIT, None]
    assert held.by_name["b"].why is Why.HELD_REQUESTS


def test_before_it_is_known_what_engines_carry_requests_that_wait_wake_one_and_not_all() -> None:
    asleep = [engine(f"e{i}", depth=SLEEP, requests_per_second=None) for i in range(3)]
    assert depths(ask(asleep, (5.0,) * 12, held=1.0, least_awake=0)) == [None, SLEEP, SLEEP]


def test_nothing_is_awake_without_demand_where_that_is_allowed_until_requests_wait() -> None:
    engines = [engine("a"), engine("b")]
    assert depths(ask(engines, (0.0,) * 12, least_awake=0)) == [EXIT, EXIT]
    asleep = [replace(e, depth=EXIT) for e in engines]
    assert depths(ask(asleep, (0.0,) * 12, least_awake=0)) == [EXIT, EXIT]
    assert depths(ask(asleep, (0.0,) * 12, held=3.0, least_awake=0)) == [None, EXIT]


def test_an_engine_at_rest_that_has_requests_all_the_same_wakes() -> None:
    assert depths(ask([engine("a", depth=CLOCK, busy=True)], (0.0,) * 12, least_awake=0)) == [None]


def test_an_engine_that_can_be_drained_rests_once_it_has_been_surplus_for_long_enough() -> None:
    busy = engine("b", busy=True, idle_since_unix_s=None, drains=True)
    first = ask([engine("a"), busy], (9.0,) * 12)
    assert (first.by_name["b"].why, first.by_name["b"].surplus) == (Why.DWELL, True)
    assert depths(ask([engine("a"), replace(busy, surplus_since_unix_s=LONG_AGO)], (9.0,) * 12)) == [None, EXIT]


def test_dwell_and_reasons() -> None:
    young = engine("b", idle_since_unix_s=NOW - 30.0)
    planned = ask([engine("a"), young, engine("c", busy=None), engine("d", busy=True)], (19.0,) * 12)
    whys = [each.why for each in planned.engines]
    assert whys == [Why.SURPLUS, Why.DWELL, Why.UNKNOWN, Why.BUSY]


ENGINE = st.builds(
    EngineFacts,
    name=st.just("?"),
    table=st.just(TABLE),
    requests_per_second=st.sampled_from([None, 2.0, 10.0, 10.0]),
    busy=st.sampled_from([None, False, False, False, True]),
    drains=st.booleans(),
    surplus_since_unix_s=st.sampled_from([None, NOW - 5.0, LONG_AGO]),
    depth=st.sampled_from([None, None, *ORDER]),
    idle_since_unix_s=st.sampled_from([None, NOW - 5.0, LONG_AGO, LONG_AGO]),
    node=st.sampled_from([None, "x", "y"]),
    node_ours=st.booleans(),
    grams_per_joule=st.sampled_from([None, 1e-5, 1e-4]),
    cache_watts=st.sampled_from([0.0, 0.0, 30.0]),
)
FLEET = st.lists(ENGINE, max_size=7).map(lambda es: [replace(e, name=f"e{i}") for i, e in enumerate(es)])
UPPER = st.lists(st.sampled_from([0.0, 3.0, 9.0, 25.0, 60.0]), min_size=1, max_size=24).map(tuple)
RULES = st.builds(
    ActivationRules,
    depths=st.frozensets(st.sampled_from(ORDER)),
    warm_reserve_share=st.sampled_from([0.0, 0.2, 1.0]),
    least_awake=st.integers(0, 3),
    interval_seconds=st.sampled_from([1.0, 10.0, 60.0]),
)


def planned(engines: list[EngineFacts], upper: tuple[float, ...], rules: ActivationRules) -> ActivationPlan:
    return plan(engines, DemandForecast(upper, upper, None), rules, step_seconds=300.0, now_unix_s=NOW)


@given(FLEET, UPPER, RULES)
@settings(max_examples=300)
def test_whatever_the_fleet_the_promises_hold(
    engines: list[EngineFacts], upper: tuple[float, ...], rules: ActivationRules
) -> None:
    decided = planned(engines, upper, rules)
    assert [each.name for each in decided.engines] == [each.name for each in engines]
    for facts, todo in zip(engines, decided.engines, strict=True):
        if facts.depth in (None, CLOCK) and (facts.busy is None or (facts.busy and not facts.drains)):
            assert todo.depth is None, "what is at work, or may be, is awake"
        if todo.depth is not None and todo.depth is not facts.depth:
            assert todo.depth in rules.depths
            assert facts.depth is None or ORDER.index(todo.depth) > ORDER.index(facts.depth) or facts.depth is OFF
            if facts.depth is None:
                assert LONG_AGO in (facts.idle_since_unix_s, facts.surplus_since_unix_s if facts.drains else None)
            if facts.depth is not OFF:
                reach = min(todo.idle_seconds, 300.0 * len(upper))
                assert reach >= MARGIN * TABLE.break_even_seconds(todo.depth)
        if todo.depth is not None and todo.why is Why.SURPLUS and not (facts.depth is OFF and todo.depth is EXIT):
            assert TABLE.wake_seconds(todo.depth) + rules.interval_seconds < todo.idle_seconds
    for node in decided.nodes_off:
        there = [e for e in engines if e.node == node]
        assert all(e.node_ours and decided.by_name[e.name].depth is OFF for e in there)
    assert decided.awake >= min(rules.least_awake, len(engines))
    # Of what serves now, nothing is given up that the demand until the next plan needs.
    need = upper[0] * (1.0 + rules.warm_reserve_share)
    serves = [e for e in engines if e.depth is None]
    stays = [e for e in serves if decided.by_name[e.name].depth is None]
    carried, before = (sum(e.requests_per_second or 0.0 for e in each) for each in (stays, serves))
    assert carried * (1.0 + 1e-6) >= min(need, before)
    assert decided.saved_watts >= 0.0


@given(FLEET, UPPER, RULES)
def test_once_a_plan_is_carried_out_the_next_one_changes_nothing(
    engines: list[EngineFacts], upper: tuple[float, ...], rules: ActivationRules
) -> None:
    seen = []
    for _ in range(4):
        decided = planned(engines, upper, rules)
        seen.append(depths(decided))
        engines = [replace(e, depth=todo.depth) for e, todo in zip(engines, decided.engines, strict=True)]
    assert seen[-1] == seen[-2]


@given(st.integers(1, 8), st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_more_demand_never_leaves_fewer_awake(count: int, one: float, other: float) -> None:
    fleet = [engine(f"e{i}") for i in range(count)]
    low, high = sorted((one, other))
    assert ask(fleet, (low,) * 12).awake <= ask(fleet, (high,) * 12).awake
