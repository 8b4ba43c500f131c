"""Fleet allocation: what a plan must never do, what it does in known cases, and that it is the best there is."""

from dataclasses import replace
from itertools import product
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.core.scale.fleets import FREE, NOW, demand, fleet, group, region, scaled, variant

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.objective import Objective, ObjectiveMode, Term, Tolerances, Weights
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import SolverError
from heliotrope.scale import allocate as allocating
from heliotrope.scale.allocate import SearchLimit, allocate
from heliotrope.scale.facts import (
    Direction,
    FleetFacts,
    Load,
    ReplicaCapacity,
    ReplicaCounts,
    ScalingRules,
    ScalingState,
    Step,
)
from heliotrope.scale.plan import FleetPlan, Reason, SolverOutcome

STEPPED = ScalingRules(scale_up=Step(3, 0.0), scale_down=Step(2, 0.0))
EXACT_TIES = Tolerances(carbon=0, energy=0, cost=0)
CARBON_ONLY = Objective(order=(Term.CARBON,), tolerances_percent=EXACT_TIES)


def numbers(plan: FleetPlan) -> dict[str, int | None]:
    return {v.name: v.desired for v in plan.variants}


def reasons(plan: FleetPlan) -> dict[str, Reason]:
    return {v.name: v.reason for v in plan.variants}


# --- what must hold of every plan ---------------------------------------------------------------------------------


@st.composite
def fleets(draw: st.DrawFn, rules: ScalingRules = STEPPED) -> FleetFacts:
    places = [
        region(
            f"r{index}",
            draw(st.sampled_from([0.0, 30.0, 100.0, 400.0, None])),
            accelerators=draw(st.sampled_from([{}, {"H100": 6}, {"H100": 12, "A100": 8}])),
            max_watts=draw(st.sampled_from([None, None, 1_500.0])),
        )
        for index in range(draw(st.integers(1, 3)))
    ]
    groups = [
        group(
            draw(
                st.sampled_from([None, *(demand(low, high, low) for low in (0.0, 7.0, 60.0) for high in (0.0, 30.0))])
            ),
            replace(
                rules,
                scale_to_zero=draw(st.booleans()),
                warm_reserve_share=draw(st.sampled_from([0.0, 0.2])),
                largest_region_share=draw(st.sampled_from([1.0, 0.5])),
            ),
            name=f"g{index}",
        )
        for index in range(draw(st.integers(1, 2)))
    ]
    variants = []
    for index in range(draw(st.integers(1, 5))):
        current = draw(st.integers(0, 5))
        low = draw(st.integers(0, 2))
        measured = draw(st.sampled_from([None, 0.0, 0.5, 0.95]))
        rate = draw(st.sampled_from([4.0, 10.0, 10.0, None]))
        variants.append(
            variant(
                f"v{index}",
                current,
                rate,
                group=draw(st.sampled_from([g.name for g in groups])),
                region=draw(st.sampled_from([p.name for p in places])),
                role=draw(st.sampled_from([Role.BOTH, Role.BOTH, Role.PREFILL, Role.DECODE])),
                accelerator_type=draw(st.sampled_from(["H100", "A100"])),
                accelerators_per_replica=draw(st.sampled_from([1, 2, 4])),
                min_replicas=low,
                max_replicas=draw(st.sampled_from([None, low, low + 4, 20])),
                load=Load(None if measured is None else measured * current * (rate or 1.0)),
                managed=draw(st.sampled_from([True, True, True, False])),
                replicas=draw(
                    st.sampled_from([ReplicaCounts(current, current), ReplicaCounts(current, current // 2), None])
                ),
            )
        )
    return fleet(groups, places, variants)


def used(facts: FleetFacts, place: str, accelerator: str, counts: dict[str, int]) -> int:
    return sum(
        v.accelerators_per_replica * counts[v.name]
        for v in facts.variants
        if v.region == place and v.accelerator_type == accelerator and v.replicas is not None
    )


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets())
def test_no_plan_breaks_bounds_steps_or_quotas(facts: FleetFacts) -> None:
    plan = allocate(facts)
    desired = numbers(plan)
    current = {v.name: v.replicas.wanted for v in facts.variants if v.replicas is not None}
    for v in facts.variants:
        number = desired[v.name]
        if v.replicas is None:
            assert number is None
            continue
        assert number is not None
        if not v.managed or v.max_replicas is None or v.capacity is None:
            assert number == v.replicas.wanted
            continue
        assert v.min_replicas <= number <= v.max_replicas
        assert number - max(v.replicas.wanted, v.min_replicas) <= STEPPED.scale_up.max_replicas
        assert min(v.replicas.wanted, v.max_replicas) - number <= STEPPED.scale_down.max_replicas
    for place in facts.regions:
        for accelerator, most in place.accelerators.items():
            forced = {
                v.name: max(current[v.name], v.min_replicas if v.managed and v.max_replicas is not None else 0)
                for v in facts.variants
                if v.name in current
            }
            # Those that go hold their accelerators until they are gone.
            at_most = {name: max(current[name], desired[name] or 0) for name in current}
            assert used(facts, place.name, accelerator, at_most) <= max(
                most, used(facts, place.name, accelerator, forced)
            )
    assert all(len(v.explanation) <= 300 for v in plan.variants)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets(), st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(facts: FleetFacts, random: object) -> None:
    shuffled = []
    for items in (facts.groups, facts.regions, facts.variants):
        items = list(items)
        random.shuffle(items)  # type: ignore[attr-defined]
        shuffled.append(tuple(items))
    other = FleetFacts(facts.now_unix_s, facts.step_seconds, *shuffled)
    assert allocate(facts) == allocate(facts)
    assert allocate(other) == allocate(facts)


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.0, 200.0),
    st.floats(0.0, 200.0),
    st.lists(st.integers(0, 8), min_size=1, max_size=3),
    st.integers(1, 12),
)
def test_more_demand_never_lowers_capacity(one: float, other: float, current: list[int], most: int) -> None:
    """Of replicas of one kind; of several kinds fewer large ones that draw less when full may replace many."""
    low, high = sorted((one, other))
    places = [region(f"r{i}", 100.0 * (i + 1)) for i in range(len(current))]
    variants = [
        variant(f"v{i}", count, region=f"r{i}", max_replicas=most, load=Load(0.0)) for i, count in enumerate(current)
    ]
    less = numbers(allocate(fleet(group(demand(low)), places, variants)))
    more = numbers(allocate(fleet(group(demand(high)), places, variants)))
    assert sum(n or 0 for n in more.values()) >= sum(n or 0 for n in less.values())


@settings(max_examples=30, deadline=None)
@given(st.floats(0.0, 100.0), st.floats(0.0, 100.0), st.sampled_from([None, 20.0]))
def test_the_guard_only_raises_and_more_so_with_more_load(one: float, other: float, told: float | None) -> None:
    def plan(load: float | None) -> int:
        v = variant("a", 3, load=Load(load))
        n = numbers(allocate(fleet(group(None if told is None else demand(told)), region("r"), v)))["a"]
        assert n is not None
        return n

    low, high = sorted((one, other))
    assert plan(low) <= plan(high)
    assert plan(high) >= plan(None) or plan(None) == 3


# --- known cases ----------------------------------------------------------------------------------------------------


def test_capacity_follows_the_upper_quantile_and_the_reserve() -> None:
    plan = allocate(fleet(group(demand(40.0), replace(FREE, warm_reserve_share=0.2)), region("r"), variant("a", 1)))
    assert numbers(plan) == {"a": ceil(40.0 * 1.2 / 0.85 / 10.0)}
    assert plan.certificate.outcome is SolverOutcome.OPTIMAL


def test_the_cleaner_region_carries_the_load() -> None:
    places = [region("clean", 50.0), region("dirty", 600.0)]
    for names in (("a", "b"), ("b", "a")):
        variants = [
            variant(names[0], 0, region="clean", load=Load(0.0)),
            variant(names[1], 0, region="dirty", load=Load(0.0)),
        ]
        plan = numbers(allocate(fleet(group(demand(40.0)), places, variants)))
        assert plan == {names[0]: 5, names[1]: 0}


def test_swapped_intensities_swap_the_plan() -> None:
    variants = [variant("a", 2, region="x"), variant("b", 2, region="y")]
    one = numbers(allocate(fleet(group(demand(30.0)), [region("x", 50.0), region("y", 500.0)], variants)))
    other = numbers(allocate(fleet(group(demand(30.0)), [region("x", 500.0), region("y", 50.0)], variants)))
    assert one["a"] == other["b"]
    assert one["b"] == other["a"]
    assert one["a"] != one["b"]


def test_where_grids_are_equal_energy_and_then_cost_decide() -> None:
    places = [region("x", 300.0), region("y", 300.0)]
    frugal = [variant("a", 0, region="x", watts=300.0), variant("b", 0, region="y", watts=100.0)]
    assert numbers(allocate(fleet(group(demand(40.0)), places, frugal))) == {"a": 0, "b": 5}
    cheap = [variant("a", 0, region="x", price_per_hour=3.0), variant("b", 0, region="y", price_per_hour=1.0)]
    assert numbers(allocate(fleet(group(demand(40.0)), places, cheap))) == {"a": 0, "b": 5}


def test_carbon_that_is_not_fresh_somewhere_counts_nowhere() -> None:
    variants = [variant("a", 0, region="x", watts=300.0), variant("b", 0, region="y", watts=100.0)]
    plan = allocate(fleet(group(demand(40.0)), [region("x", 10.0), region("y", None)], variants))
    assert numbers(plan) == {"a": 0, "b": 5}
    assert plan.groups[0].terms == ("energy", "cost")
    assert plan.groups[0].dropped == ("carbon: no Fresh signal in y",)
    assert "no Fresh signal in y" in plan.variants[1].explanation


def test_a_grid_without_carbon_is_clean_and_known() -> None:
    variants = [variant("a", 0, region="x", watts=300.0), variant("b", 0, region="y", watts=100.0)]
    plan = allocate(fleet(group(demand(40.0)), [region("x", 0.0), region("y", 300.0)], variants))
    assert numbers(plan) == {"a": 5, "b": 0}


def test_average_and_marginal_signals_are_not_compared() -> None:
    marginal = region("y", 10.0, signal=(SignalType.MARGINAL, EmissionFactor.DIRECT))
    variants = [variant("a", 0, region="x", watts=50.0), variant("b", 0, region="y")]
    plan = allocate(fleet(group(demand(40.0)), [region("x", 500.0), marginal], variants))
    assert numbers(plan)["b"] == 0
    assert "mean different things" in plan.groups[0].dropped[0]


def test_without_any_known_term_the_fewest_accelerators_are_used() -> None:
    unknown = ReplicaCapacity(10.0, None, None, None)
    variants = [
        replace(variant("a", 0, accelerators_per_replica=4, price_per_hour=None), capacity=unknown),
        replace(variant("b", 0, accelerators_per_replica=1, price_per_hour=None), capacity=unknown),
    ]
    plan = allocate(fleet(group(demand(40.0)), region("r"), variants))
    assert numbers(plan) == {"a": 0, "b": 5}
    assert plan.groups[0].terms == ("accelerators",)


def test_embodied_carbon_counts_where_the_policy_says_so() -> None:
    places = [region("x", 300.0), region("y", 310.0)]
    variants = [
        variant("a", 0, region="x", embodied_grams_per_hour=500.0),
        variant("b", 0, region="y", embodied_grams_per_hour=1.0),
    ]
    rules = replace(FREE, objective=CARBON_ONLY)
    assert numbers(allocate(fleet(group(demand(40.0), rules), places, variants)))["a"] == 5
    rules = replace(rules, embodied=True)
    assert numbers(allocate(fleet(group(demand(40.0), rules), places, variants)))["b"] == 5
    variants[1] = replace(variants[1], embodied_grams_per_hour=None)
    assert "unknown embodied" in allocate(fleet(group(demand(40.0), rules), places, variants)).groups[0].dropped[0]


@pytest.mark.parametrize(("carbon", "cost", "chosen"), [(1.0, 0.0, "a"), (0.0, 1.0, "b")])
def test_weights(carbon: float, cost: float, chosen: str) -> None:
    objective = Objective(mode=ObjectiveMode.WEIGHTED, weights=Weights(carbon=carbon, cost=cost))
    variants = [
        variant("a", 0, region="x", price_per_hour=4.0),
        variant("b", 0, region="y", price_per_hour=1.0),
    ]
    places = [region("x", 50.0), region("y", 500.0)]
    plan = allocate(fleet(group(demand(40.0), replace(FREE, objective=objective)), places, variants))
    assert numbers(plan)[chosen] == 5


def test_engines_start_before_the_ramp() -> None:
    """A start takes more than a step: what step 2 needs is asked for in step 0, and no sooner."""
    slow = variant("a", 1, start_seconds=550.0)
    soon = allocate(fleet(group(demand(8.0, 8.0, 80.0, 80.0)), region("r", steps=4), slow))
    later = allocate(fleet(group(demand(8.0, 8.0, 8.0, 80.0)), region("r", steps=4), slow))
    assert numbers(soon) == {"a": 10}
    assert reasons(soon) == {"a": Reason.START_AHEAD}
    assert numbers(later) == {"a": 1}


def test_what_starts_already_is_not_started_again() -> None:
    starting = variant("a", 5, replicas=ReplicaCounts(5, 1, 4), load=Load(9.5))
    assert numbers(allocate(fleet(group(demand(40.0)), region("r"), starting))) == {"a": 5}


def test_a_dirty_hour_ahead_is_not_a_reason_to_start_there_now() -> None:
    """Look-ahead in carbon: the region that is clean for one step only is not where replicas are started."""
    places = [region("x", (50.0, 900.0, 900.0, 900.0)), region("y", (300.0, 100.0, 100.0, 100.0))]
    variants = [variant("a", 0, region="x", load=Load(0.0)), variant("b", 0, region="y", load=Load(0.0))]
    assert numbers(allocate(fleet(group(demand(40.0, steps=4)), places, variants))) == {"a": 0, "b": 5}


def test_residency_and_quality_keep_load_away() -> None:
    places = [region("eu", 400.0), region("us", 20.0)]
    variants = [variant("a", 1, region="eu", quality=0.8), variant("b", 1, region="us", quality=0.8, min_replicas=1)]
    plan = allocate(fleet(group(demand(40.0), replace(FREE, allowed_regions=frozenset({"eu"}))), places, variants))
    assert numbers(plan) == {"a": 5, "b": 1}
    assert reasons(plan)["b"] is Reason.NOT_ALLOWED
    variants = [variant("a", 1, region="eu", quality=0.8), variant("b", 1, region="us", quality=None)]
    plan = allocate(fleet(group(demand(40.0), replace(FREE, quality_floor=0.7)), places, variants))
    assert numbers(plan) == {"a": 5, "b": 0}


def test_no_region_carries_more_than_its_share_unless_it_is_the_only_one() -> None:
    places = [region("x", 20.0, largest_share=0.5), region("y", 500.0)]
    variants = [variant("a", 5, region="x"), variant("b", 5, region="y")]
    plan = allocate(fleet(group(demand(80.0)), places, variants))
    assert numbers(plan) == {"a": 5, "b": 5}
    assert reasons(plan)["a"] is Reason.REGION_SHARE
    alone = allocate(fleet(group(demand(80.0)), places[0], variants[0]))
    assert numbers(alone) == {"a": 10}


def test_quotas_count_accelerators_and_what_others_have() -> None:
    place = region("r", accelerators={"H100": 16}, foreign_accelerators={"H100": 3})
    plan = allocate(fleet(group(demand(80.0)), place, variant("a", 1, accelerators_per_replica=4)))
    assert numbers(plan) == {"a": 3}
    assert reasons(plan)["a"] is Reason.QUOTA
    assert plan.groups[0].unmet_requests_per_second > 0.0
    draining = variant("a", 1, accelerators_per_replica=4, replicas=ReplicaCounts(1, 1, draining=2))
    assert numbers(allocate(fleet(group(demand(80.0)), place, draining))) == {"a": 1}


def test_region_power_is_kept() -> None:
    # A replica under full load draws 100 W idle, 50 W of its host and 20 J × 10/s.
    plan = allocate(fleet(group(demand(80.0)), region("r", max_watts=1_500.0), variant("a", 1)))
    assert numbers(plan) == {"a": 4}
    assert reasons(plan)["a"] is Reason.REGION_WATTS


def test_groups_share_a_quota_by_what_it_saves() -> None:
    places = [region("clean", 20.0, accelerators={"H100": 10}), region("dirty", 500.0)]
    groups = [group(demand(40.0), name="g1"), group(demand(40.0), name="g2")]
    variants = [
        variant(f"{g.name}-{p.name}", 0, group=g.name, region=p.name, joules=20.0 if g.name == "g1" else 80.0)
        for g in groups
        for p in places
    ]
    assert numbers(allocate(fleet(groups, places, variants))) == {
        "g1-clean": 5,
        "g1-dirty": 0,
        "g2-clean": 5,
        "g2-dirty": 0,
    }
    tight = [replace(places[0], accelerators={"H100": 5}), places[1]]
    plan = numbers(allocate(fleet(groups, tight, variants)))
    assert plan["g2-clean"] == 5
    assert plan["g1-dirty"] == 5


def test_prefill_and_decode_are_balanced_within_regions() -> None:
    places = [region("x", 50.0), region("y", 500.0)]
    variants = [
        variant("p-x", 1, 10.0, role=Role.PREFILL, region="x"),
        variant("d-x", 1, 4.0, role=Role.DECODE, region="x", max_replicas=5),
        variant("p-y", 1, 10.0, role=Role.PREFILL, region="y"),
        variant("d-y", 1, 4.0, role=Role.DECODE, region="y"),
    ]
    plan = numbers(allocate(fleet(group(demand(34.0)), places, variants)))
    # Decoders in the clean region carry half of it; the other half is computed and decoded in the other one.
    assert plan == {"d-x": 5, "p-x": 2, "d-y": 5, "p-y": 2}


def test_a_hub_may_lower_but_not_below_what_the_demand_needs() -> None:
    half = Load(20.0)
    variants = [variant("a", 5, region="x", ceiling=2, load=half), variant("b", 5, region="y", load=half)]
    places = [region("x", 20.0), region("y", 500.0)]
    plan = allocate(fleet(group(demand(42.5)), places, variants))
    assert numbers(plan) == {"a": 2, "b": 5}
    assert reasons(plan)["a"] is Reason.HUB_CEILING
    assert numbers(allocate(fleet(group(demand(42.5)), places[0], variants[0]))) == {"a": 5}


def test_the_guard_does_not_pass_the_users_maximum() -> None:
    full = Load(20.0)
    for most in (0, 1, 3):
        plan = allocate(fleet(group(None), region("r"), variant("a", 2, max_replicas=most, load=full)))
        assert numbers(plan) == {"a": most}


# --- to and from zero -------------------------------------------------------------------------------------------------


def test_the_last_replica_goes_only_where_that_is_allowed() -> None:
    idle = variant("a", 1, load=Load(0.0))
    assert numbers(allocate(fleet(group(demand(0.0)), region("r"), idle))) == {"a": 1}
    to_zero = replace(FREE, scale_to_zero=True)
    assert numbers(allocate(fleet(group(demand(0.0), to_zero), region("r"), idle))) == {"a": 0}
    assert numbers(allocate(fleet(group(demand(0.5), to_zero), region("r"), idle))) == {"a": 1}


def test_no_variant_of_a_model_needs_a_replica_of_its_own() -> None:
    variants = [variant("a", 1, region="x", load=Load(0.0)), variant("b", 1, region="y", load=Load(0.0))]
    plan = allocate(fleet(group(demand(0.0)), [region("x", 20.0), region("y", 500.0)], variants))
    assert numbers(plan) == {"a": 1, "b": 0}
    assert reasons(plan) == {"a": Reason.MINIMUM, "b": Reason.OBJECTIVE}


def test_held_requests_wake_the_cheapest_engine_and_only_that() -> None:
    to_zero = replace(FREE, scale_to_zero=True)
    variants = [variant("a", 0, region="x"), variant("b", 0, region="y")]
    places = [region("x", 500.0), region("y", 20.0)]
    plan = allocate(fleet(group(demand(0.0), to_zero, held=2.0), places, variants))
    assert numbers(plan) == {"a": 0, "b": 1}
    assert reasons(plan)["b"] is Reason.WOKEN


def test_a_start_from_zero_takes_both_phases() -> None:
    to_zero = replace(FREE, scale_to_zero=True)
    variants = [variant("p", 0, role=Role.PREFILL), variant("d", 0, role=Role.DECODE)]
    plan = allocate(fleet(group(demand(0.0), to_zero, held=1.0), region("r"), variants))
    assert numbers(plan) == {"d": 1, "p": 1}


def test_held_requests_wake_an_engine_although_the_demand_is_unknown() -> None:
    plan = allocate(fleet(group(None, held=3.0), region("r"), variant("a", 0)))
    assert numbers(plan) == {"a": 1}
    assert reasons(plan)["a"] is Reason.WOKEN


# --- what is unknown or fails -------------------------------------------------------------------------------------


def test_unknown_demand_holds_and_never_goes_to_the_minimum() -> None:
    """kedacore/keda#3065: an outage of Prometheus read as zero."""
    plan = allocate(fleet(group(None), region("r"), variant("a", 7, min_replicas=1, load=Load())))
    assert numbers(plan) == {"a": 7}
    assert reasons(plan)["a"] is Reason.DEMAND_UNKNOWN
    nan = demand(float("nan"))
    assert numbers(allocate(fleet(group(nan), region("r"), variant("a", 7, load=Load())))) == {"a": 7}


def test_unmeasured_engines_are_not_idle_ones() -> None:
    """llm-d-autoscaling#360: missing metrics became 0, so that saturated pods looked idle."""
    plan = allocate(fleet(group(demand(5.0)), region("r"), variant("a", 7, load=Load())))
    assert numbers(plan) == {"a": 7}
    assert reasons(plan)["a"] is Reason.METRICS_UNKNOWN
    nan = variant("a", 7, load=Load(float("nan")))
    assert numbers(allocate(fleet(group(demand(5.0)), region("r"), nan))) == {"a": 7}


def test_unknown_metrics_do_not_stop_what_the_demand_needs() -> None:
    assert numbers(allocate(fleet(group(demand(80.0)), region("r"), variant("a", 2, load=Load())))) == {"a": 10}


def test_what_may_be_more_than_it_seems_takes_nothing_away_and_still_adds() -> None:
    """Of served requests: those that wait in engines' queues are asked for, too."""
    keeps = replace(group(demand(5.0)), keeps=True, told_by="Prometheus")
    plan = allocate(fleet(keeps, region("r"), variant("a", 7, load=Load(5.0))))
    assert numbers(plan) == {"a": 7}
    assert reasons(plan)["a"] is Reason.UNSERVED
    told = plan.variants[0].explanation
    assert told.startswith("Keep 7 replicas: the plan's 1 would carry what is served, but requests wait")
    assert "requests/s by Prometheus" in told
    assert numbers(allocate(fleet(replace(keeps, keeps=False), region("r"), variant("a", 7, load=Load(5.0))))) != {
        "a": 7
    }

    more = replace(keeps, demand=demand(80.0))
    assert numbers(allocate(fleet(more, region("r"), variant("a", 2, load=Load(5.0))))) == {"a": 10}


@pytest.mark.parametrize("load", [Load(), Load(5.0)])
@pytest.mark.parametrize("keeps", [False, True])
def test_the_users_own_maximum_holds_at_once_and_takes_nothing_more_along(load: Load, keeps: bool) -> None:
    """What is below the maximum waits for its dwell, for measured load and for queues, as from any other number."""
    rules = replace(group(demand(5.0)), keeps=keeps)
    assert numbers(allocate(fleet(rules, region("r"), variant("a", 7, max_replicas=3, load=load)))) == {"a": 3}


def test_zero_traffic_is_planned_like_any_other() -> None:
    """ai-dynamo/dynamo#6985: at zero traffic planning was skipped and seven prefill engines stayed."""
    variants = [
        variant("p", 7, role=Role.PREFILL, load=Load(0.0)),
        variant("d", 3, role=Role.DECODE, load=Load(0.0)),
    ]
    assert numbers(allocate(fleet(group(demand(0.0)), region("r"), variants))) == {"d": 1, "p": 1}


def test_unknown_replicas_hold_their_group_but_no_other() -> None:
    groups = [group(demand(40.0), name="g"), group(demand(40.0), name="other")]
    variants = [variant("a", 1, replicas=None), variant("b", 1), variant("c", 1, group="other")]
    assert numbers(allocate(fleet(groups, region("r"), variants))) == {"a": None, "b": 1, "c": 5}


def test_unknown_capacity_that_serves_holds_unless_its_load_is_known() -> None:
    unknown = variant("a", 2, None, load=Load())
    assert numbers(allocate(fleet(group(demand(60.0)), region("r"), [unknown, variant("b", 2)]))) == {"a": 2, "b": 2}
    measured = replace(unknown, load=Load(17.0))
    plan = allocate(fleet(group(demand(60.0)), region("r"), [measured, variant("b", 2)]))
    # 60 / 0.85 less the 17 that the other one carries.
    assert numbers(plan) == {"a": 2, "b": 6}
    assert reasons(plan)["a"] is Reason.METRICS_UNKNOWN


def test_an_slo_out_of_reach_holds() -> None:
    plan = allocate(fleet(group(demand(60.0)), region("r"), variant("a", 4, 0.0)))
    assert numbers(plan) == {"a": 4}
    assert reasons(plan)["a"] is Reason.SLO_OUT_OF_REACH


@pytest.mark.parametrize("where", ["search", "solve_part"])
def test_when_the_solver_fails_numbers_hold_and_the_guard_acts(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise SolverError("no")

    if where == "search":
        monkeypatch.setattr(allocating, "search", fails)
    else:
        monkeypatch.setattr("heliotrope.scale.search.solve_part", fails)
    calm = allocate(fleet(group(demand(80.0)), region("r"), variant("a", 4, load=Load(20.0))))
    assert numbers(calm) == {"a": 4}
    assert reasons(calm)["a"] is Reason.SOLVER_HELD
    assert calm.certificate.outcome is SolverOutcome.FAILED
    assert calm.certificate.failed_groups == ("g",)
    full = allocate(fleet(group(demand(80.0)), region("r"), variant("a", 4, load=Load(39.0))))
    assert numbers(full) == {"a": 5}
    assert reasons(full)["a"] is Reason.SATURATION


def test_a_solver_without_time_holds() -> None:
    facts = fleet(group(demand(80.0)), region("r"), variant("a", 4, load=Load(20.0)))
    plan = allocate(facts, SearchLimit(seconds=0.0))
    assert numbers(plan) in ({"a": 4}, {"a": 10})
    if plan.certificate.outcome is SolverOutcome.FAILED:
        assert numbers(plan) == {"a": 4}


# --- what is taken away, and when ------------------------------------------------------------------------------------


def test_between_the_two_thresholds_nothing_moves() -> None:
    for load in (71.0, 78.0, 84.0):
        assert numbers(allocate(fleet(group(demand(load)), region("r"), variant("a", 10)))) == {"a": 10}
    assert numbers(allocate(fleet(group(demand(86.0)), region("r"), variant("a", 10)))) == {"a": 11}
    assert numbers(allocate(fleet(group(demand(60.0)), region("r"), variant("a", 10, load=Load(50.0))))) == {"a": 9}


def test_one_less_only_if_the_others_carry_what_is_measured() -> None:
    """ai-dynamo/dynamo#9294: at N → N - 1 the others carry its load as well."""
    facts = fleet(group(demand(6.0)), region("r"), variant("a", 2, load=Load(14.1)))
    plan = allocate(facts)
    assert numbers(plan) == {"a": 2}
    assert reasons(plan)["a"] is Reason.CONSOLIDATION
    assert numbers(allocate(fleet(group(demand(6.0)), region("r"), variant("a", 2, load=Load(6.9))))) == {"a": 1}


def test_a_replica_goes_after_its_replacement_serves() -> None:
    places = [region("x", 900.0), region("y", 20.0)]
    old = variant("a", 4, region="x", load=Load(24.0))
    starting = variant("b", 4, region="y", replicas=ReplicaCounts(4, 0, 4), load=Load(0.0))
    assert numbers(allocate(fleet(group(demand(26.0)), places, [old, starting])))["a"] == 4
    serving = variant("b", 4, region="y", load=Load(0.0))
    assert numbers(allocate(fleet(group(demand(26.0)), places, [old, serving])))["a"] == 0


def test_a_quota_that_is_full_is_never_exceeded_on_the_way() -> None:
    """ai-dynamo/dynamo#12428: a rebalance of which one leg went first exceeded the budget, and then was stuck."""
    place = region("r", accelerators={"H100": 8})
    facts = fleet(
        group(demand(20.0)),
        place,
        [variant("a", 8, watts=900.0, load=Load(20.0)), variant("b", 0, watts=50.0, load=Load(0.0))],
    )
    seen = []
    for _ in range(6):
        plan = allocate(facts)
        desired = numbers(plan)
        current = {v.name: v.replicas.wanted for v in facts.variants if v.replicas}
        assert sum(max(current[name], desired[name] or 0) for name in current) <= 8
        facts = scaled(facts, desired)
        seen.append(desired)
    assert seen[-1]["a"] == 0
    assert seen[-1]["b"] == 3


def test_down_waits_for_the_dwell_of_the_last_change_and_of_the_wish() -> None:
    rules = replace(FREE, scale_down=Step(1, 300.0))
    idle = variant("a", 5, load=Load(5.0))
    facts = fleet(group(demand(6.0), rules), region("r"), idle)
    first = allocate(facts).variants[0]
    assert (first.desired, first.reason) == (5, Reason.DWELL)
    assert first.state == ScalingState(lower_since_unix_s=NOW, lower_peak=4)
    later = allocate(replace(facts, now_unix_s=NOW + 300.0, variants=(replace(idle, state=first.state),))).variants[0]
    assert later.desired == 4
    assert later.state.last_direction is Direction.DOWN


# --- the best there is ----------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([3.0, 7.0, 10.0]),  # requests per second
            st.floats(20.0, 300.0),  # idle watts
            st.floats(1.0, 40.0),  # joules per request
            st.integers(1, 4),  # maximum
            st.sampled_from(["x", "y"]),
            st.integers(1, 2),  # accelerators
        ),
        min_size=1,
        max_size=3,
    ),
    st.floats(0.1, 60.0),
    st.tuples(st.floats(1.0, 800.0), st.floats(1.0, 800.0)),
    st.integers(1, 6),
)
def test_no_combination_of_replicas_emits_less(
    kinds: list[tuple[float, float, float, int, str, int]], load: float, grids: tuple[float, float], quota: int
) -> None:
    """Against all combinations, with the cheapest replicas filled first."""
    places = [region("x", grids[0], steps=1, accelerators={"H100": quota}), region("y", grids[1], steps=1)]
    variants = [
        variant(
            f"v{i}",
            0,
            rate,
            watts=watts,
            joules=joules,
            max_replicas=most,
            region=place,
            accelerators_per_replica=count,
            start_seconds=0.0,
        )
        for i, (rate, watts, joules, most, place, count) in enumerate(kinds)
    ]
    rules = replace(FREE, objective=CARBON_ONLY)
    facts = fleet(group(demand(load, steps=1, expected=1.0), rules), places, variants)
    intensity = dict(zip("xy", grids, strict=True))

    def grams(counts: tuple[int, ...]) -> float | None:
        left, total = load, 0.0
        if sum(c * n for (_, _, _, _, place, c), n in zip(kinds, counts, strict=True) if place == "x") > quota:
            return None
        if not any(counts):
            return None
        flows = []
        for (rate, watts, joules, _, place, _), n in zip(kinds, counts, strict=True):
            total += n * (watts + 50.0) * intensity[place]
            flows.append((joules * intensity[place], n * rate * 0.85))
        for price, most in sorted(flows):
            carried = min(left, most)
            total += carried * price
            left -= carried
        return total if left <= 1e-9 * load else None

    values = [grams(counts) for counts in product(*(range(kind[3] + 1) for kind in kinds))]
    best = min((value for value in values if value is not None), default=None)
    plan = allocate(facts)
    desired = tuple(v.desired or 0 for v in plan.variants)
    if best is None:
        assert plan.groups[0].unmet_requests_per_second > 0.0
        return
    found = grams(desired)
    assert found is not None
    assert found <= best * (1.0 + 2e-4) + 1e-6
    assert plan.certificate.gap is not None
    assert plan.certificate.gap <= 2e-4


# --- what is no amount ----------------------------------------------------------------------------------------------

NONE = [float("nan"), float("inf"), -1.0, 1e300]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("broken", NONE)
@pytest.mark.parametrize("field", ["price_per_hour", "embodied_grams_per_hour", "start_seconds", "quality"])
def test_one_variants_broken_number_stops_no_plan(field: str, broken: float) -> None:
    """A NaN among costs has HiGHS run for ever, and then nobody has a plan."""
    rules = replace(FREE, embodied=True)
    groups = [group(demand(40.0), rules), group(demand(40.0), rules, name="other")]
    first = replace(variant("a", 1), **{field: broken})
    plan = allocate(fleet(groups, region("r"), [first, variant("b", 1, group="other")]))
    assert numbers(plan)["b"] == 5
    assert numbers(plan)["a"] == 5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("broken", NONE)
@pytest.mark.parametrize("field", ["requests_per_second", "joules_per_request", "idle_watts", "host_watts"])
def test_one_engines_broken_model_stops_no_plan(field: str, broken: float) -> None:
    groups = [group(demand(40.0)), group(demand(40.0), name="other")]
    first = variant("a", 5)
    assert first.capacity is not None
    first = replace(first, capacity=replace(first.capacity, **{field: broken}))
    plan = allocate(fleet(groups, region("r"), [first, variant("b", 1, group="other")]))
    assert numbers(plan) == {"a": 5, "b": 5}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("broken", NONE)
@pytest.mark.parametrize("field", ["pue", "electricity_price_per_kwh", "max_watts", "intensity_g_per_kwh"])
def test_one_regions_broken_number_stops_no_plan(field: str, broken: float) -> None:
    value = (broken,) * 3 if field == "intensity_g_per_kwh" else broken
    place = replace(region("r"), **{field: value})
    assert numbers(allocate(fleet(group(demand(40.0)), place, variant("a", 1)))) == {"a": 5}


@pytest.mark.parametrize("broken", NONE)
def test_a_load_that_is_no_amount_takes_nothing_away(broken: float) -> None:
    plan = allocate(fleet(group(demand(5.0)), region("r"), variant("a", 7, load=Load(broken))))
    assert numbers(plan) == {"a": 7}
    assert reasons(plan)["a"] is Reason.METRICS_UNKNOWN
