"""Numbers of replicas over time: they follow the load, and nothing makes them go to and fro."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.scale.fleets import NOW, demand, fleet, group, region, variant

from heliotrope.scale.allocate import allocate
from heliotrope.scale.facts import Direction, FleetFacts, Load, ReplicaCounts, ScalingRules, ScalingState, Step
from heliotrope.scale.stabilise import Reach, reach, settle

RULES = ScalingRules()
"""As a CarbonPolicy has them by itself: four up at once, one down after five minutes."""


def played(loads: list[float], told: list[float], start: int, rules: ScalingRules = RULES) -> list[int]:
    """Replicas after each decision of 30 s; what is asked for serves at the next."""
    v, numbers = variant("a", start), []
    for tick, (load, upper) in enumerate(zip(loads, told, strict=True)):
        v = replace(v, load=Load(load))
        facts = replace(fleet(group(demand(upper), rules), region("r"), v), now_unix_s=NOW + 30.0 * tick)
        plan = allocate(facts).variants[0]
        assert plan.desired is not None
        v = replace(v, replicas=ReplicaCounts(plan.desired, plan.desired), state=plan.state)
        numbers.append(plan.desired)
    return numbers


def turns(numbers: list[int]) -> int:
    """How often they change direction."""
    steps = [b - a for a, b in pairwise(numbers) if b != a]
    return sum(a * b < 0 for a, b in pairwise(steps))


@pytest.mark.slow
def test_noise_around_a_threshold_does_not_flip_numbers() -> None:
    """llm-d-autoscaling#1427: noisy queues flipped maxReplicas every 15 s."""
    rng = np.random.default_rng(3)
    for level in (65.0, 70.0, 80.0, 85.0):
        loads = (level * (1.0 + 0.15 * rng.standard_normal(240))).clip(0.0).tolist()
        numbers = played(loads, [1.1 * load for load in loads], 10)
        assert turns(numbers) <= 3
        assert numbers[-1] * 10.0 >= level


@pytest.mark.slow
def test_noisy_queues_do_not_flip_numbers() -> None:
    rng = np.random.default_rng(4)
    v, numbers = variant("a", 10), []
    for tick in range(200):
        v = replace(
            v, load=Load(78.0, waiting_requests=float(rng.integers(0, 500)), kv_usage=float(rng.uniform(0.3, 0.8)))
        )
        facts = replace(fleet(group(demand(78.0), RULES), region("r"), v), now_unix_s=NOW + 15.0 * tick)
        plan = allocate(facts).variants[0]
        assert plan.desired is not None
        v = replace(v, replicas=ReplicaCounts(plan.desired, plan.desired), state=plan.state)
        numbers.append(plan.desired)
    assert turns(numbers) <= 2


@pytest.mark.slow
def test_it_follows_a_day() -> None:
    loads = [50.0 + 40.0 * float(np.sin(2.0 * np.pi * tick / 480.0)) for tick in range(480)]
    numbers = played(loads, [1.05 * load for load in loads], 7)
    assert turns(numbers) <= 2
    assert all(10.0 * n >= load for n, load in zip(numbers, loads, strict=True))
    assert min(numbers) <= 3


def test_a_single_dip_takes_nothing_away() -> None:
    loads = [80.0] * 20 + [5.0] + [80.0] * 20
    assert set(played(loads, loads, 10)) == {10}


def test_what_starts_is_not_ordered_again_while_it_starts() -> None:
    """The guard sees 95 % for ten decisions until the new ones serve, and asks once."""
    v = variant("a", 4, load=Load(38.0))
    asked = []
    for tick in range(10):
        facts = replace(fleet(group(demand(38.0), RULES), region("r"), v), now_unix_s=NOW + 30.0 * tick)
        plan = allocate(facts).variants[0]
        assert plan.desired is not None
        asked.append(plan.desired)
        v = replace(v, replicas=ReplicaCounts(plan.desired, 4, plan.desired - 4), state=plan.state)
    assert set(asked) == {5}


def test_two_installs_do_not_drive_each_other_up() -> None:
    """llm-d-autoscaling#1044: each took the other's number as a reason for more."""
    v = variant("a", 4, load=Load(30.0))
    states = [ScalingState(), ScalingState()]
    numbers = []
    for tick in range(60):
        mine = tick % 2
        facts = replace(
            fleet(group(demand(30.0), RULES), region("r"), replace(v, state=states[mine])), now_unix_s=NOW + 15.0 * tick
        )
        plan = allocate(facts).variants[0]
        assert plan.desired is not None
        states[mine] = plan.state
        v = replace(v, replicas=ReplicaCounts(plan.desired, plan.desired))
        numbers.append(plan.desired)
    assert set(numbers) == {4}


def test_groups_of_pods_are_counted_as_groups() -> None:
    """llm-d-autoscaling#1302: units of groups and of pods were compared, which left all in transition."""
    place = region("r", accelerators={"H100": 64})
    group_of_eight = variant("a", 2, accelerators_per_replica=8, load=Load(19.0))
    plan = allocate(fleet(group(demand(60.0)), place, group_of_eight))
    assert plan.variants[0].desired == 8


@pytest.mark.slow
def test_intensity_that_wobbles_does_not_move_replicas() -> None:
    rng = np.random.default_rng(6)
    variants = [variant("a", 3, region="x", load=Load(15.0)), variant("b", 3, region="y", load=Load(15.0))]
    numbers: list[tuple[int | None, ...]] = []
    for tick in range(120):
        places = [region("x", float(300.0 + rng.normal(0.0, 6.0))), region("y", float(300.0 + rng.normal(0.0, 6.0)))]
        facts = replace(fleet(group(demand(36.0), RULES), places, variants), now_unix_s=NOW + 30.0 * tick)
        plan = allocate(facts)
        numbers.append(tuple(p.desired for p in plan.variants))
        variants = [
            replace(
                v,
                replicas=ReplicaCounts(p.desired or 0, p.desired or 0),
                state=p.state,
                load=Load(5.0 * (p.desired or 0)),
            )
            for v, p in zip(variants, plan.variants, strict=True)
        ]
    changes = sum(one != other for one, other in pairwise(numbers))
    assert changes <= 6


# --- steps and dwell themselves ----------------------------------------------------------------------------------

states = st.builds(
    ScalingState,
    st.none() | st.floats(NOW - 1_000.0, NOW + 1_000.0),
    st.none() | st.sampled_from(Direction),
    st.none() | st.floats(NOW - 1_000.0, NOW + 1_000.0),
    st.none() | st.integers(0, 20),
)


@settings(max_examples=300)
@given(st.integers(0, 20), st.integers(0, 20), states, st.integers(1, 5), st.integers(1, 5), st.floats(0.0, 600.0))
def test_settled_numbers_stay_within_steps_and_bounds(
    wished: int, current: int, state: ScalingState, up: int, down: int, dwell: float
) -> None:
    rules = ScalingRules(scale_up=Step(up, dwell), scale_down=Step(down, dwell))
    v = variant("a", current, min_replicas=2, max_replicas=15, state=state)
    bounds = reach(v, rules, NOW)
    settled = settle(wished, current, bounds, rules, state, NOW)
    assert 2 <= settled.desired <= 15
    assert settled.desired <= max(current + up, 2)
    assert settled.desired >= min(current - down, 15)
    assert settled.desired >= min(wished, current, 15)
    assert settled.waits is (min(max(wished, bounds.low), bounds.high) < settled.desired == min(max(current, 2), 15))


def test_the_users_own_bounds_hold_at_once() -> None:
    rules = ScalingRules(scale_up=Step(1, 600.0), scale_down=Step(1, 600.0))
    recent = ScalingState(NOW - 1.0, Direction.UP)
    assert reach(variant("a", 9, max_replicas=3, state=recent), rules, NOW) == Reach(3, 3, up_waits=True)
    assert reach(variant("a", 0, min_replicas=4, state=recent), rules, NOW) == Reach(4, 4, up_waits=True)
    settled = settle(3, 9, Reach(3, 3), rules, recent, NOW)
    assert settled.desired == 3


def test_up_waits_for_its_dwell_but_not_for_the_guard() -> None:
    rules = replace(RULES, scale_up=Step(4, 600.0))
    recent = ScalingState(NOW - 10.0, Direction.UP)
    calm = variant("a", 4, load=Load(20.0), state=recent)
    assert allocate(fleet(group(demand(80.0), rules), region("r"), calm)).variants[0].desired == 4
    full = replace(calm, load=Load(39.0))
    assert allocate(fleet(group(demand(80.0), rules), region("r"), full)).variants[0].desired == 5


def test_a_window_of_wishes_ends_at_the_highest_of_them() -> None:
    rules = ScalingRules(scale_down=Step(10, 100.0))
    state, current = ScalingState(), 10
    for time, wished in ((0.0, 3), (30.0, 6), (60.0, 4), (90.0, 2)):
        settled = settle(wished, current, Reach(0, 20), rules, state, NOW + time)
        assert settled.desired == 10
        assert settled.waits
        state = settled.state
    assert settle(2, current, Reach(0, 20), rules, state, NOW + 100.0).desired == 6


def test_a_wish_for_more_ends_the_window() -> None:
    rules = ScalingRules(scale_down=Step(10, 100.0))
    state = settle(3, 10, Reach(0, 20), rules, ScalingState(), NOW).state
    state = settle(10, 10, Reach(0, 20), rules, state, NOW + 50.0).state
    assert state.lower_since_unix_s is None
    assert settle(3, 10, Reach(0, 20), rules, state, NOW + 120.0).desired == 10


def test_a_restart_without_memory_only_starts_the_dwell_over() -> None:
    rules = ScalingRules(scale_down=Step(1, 300.0))
    assert settle(2, 5, Reach(0, 9), rules, ScalingState(), NOW).desired == 5


@pytest.mark.parametrize("ahead", [10.0, 1e9])
def test_a_clock_that_was_wrong_holds_back_for_two_dwells_at_most(ahead: float) -> None:
    rules = ScalingRules(scale_down=Step(1, 300.0))
    state = ScalingState(NOW + ahead, Direction.UP, NOW + ahead, 2)
    first = settle(2, 5, Reach(4, 9), rules, state, NOW)
    assert settle(2, 5, Reach(4, 9), rules, first.state, NOW + 600.0).desired == 4


def test_facts_are_frozen() -> None:
    facts: FleetFacts = fleet(group(demand(1.0)), region("r"), variant("a"))
    with pytest.raises(AttributeError):
        facts.now_unix_s = 0.0  # type: ignore[misc]
