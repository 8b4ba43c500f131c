"""Plans from what the operator knows: carbon moves replicas, unknown holds, held requests wake, grants and modes."""

import pytest
from tests.unit.operator.planning.fleet import BROWN, GREEN, Fleet

from heliotrope_operator.planning.controller import ALLOCATION

pytestmark = pytest.mark.slow


async def settled(fleet: Fleet, requests_per_second: float, minutes: int = 30) -> None:
    """Traffic and plans, each carried out at once."""
    for _ in range(minutes * 2):
        await fleet.run(30.0, requests_per_second)
        await fleet.controller.reconcile(ALLOCATION)
        for name in (GREEN, BROWN):
            wanted = fleet.wanted(name)
            if wanted is not None:
                fleet.scale(name, wanted)


async def test_the_clean_region_keeps_its_engines_and_the_other_gives_them_up() -> None:
    fleet = Fleet(replicas=3)
    await settled(fleet, 2.0)
    assert fleet.wanted(GREEN) >= 1  # type: ignore[operator]
    assert fleet.wanted(BROWN) == 0


async def test_without_fresh_signals_both_regions_are_alike() -> None:
    fleet = Fleet(replicas=3, green_g=30.0)
    fleet.region(GREEN, 30.0, freshness="Stale")
    await settled(fleet, 2.0)
    group = fleet.controller.groups["ns/pool/m"][1]
    assert group is not None
    assert "carbon" not in group.terms
    assert any("carbon" in each and GREEN in each for each in group.dropped)


async def test_unknown_demand_holds_and_the_policy_says_so() -> None:
    fleet = Fleet(replicas=3)
    fleet.starved = True
    await settled(fleet, 2.0, minutes=3)
    assert (fleet.wanted(GREEN), fleet.wanted(BROWN)) == (3, 3)
    assert fleet.reason(GREEN) == "DemandUnknown"


async def test_an_outage_in_the_middle_holds_and_never_goes_to_the_minimum() -> None:
    fleet = Fleet(replicas=3)
    await settled(fleet, 20.0, minutes=10)
    before = (fleet.wanted(GREEN), fleet.wanted(BROWN))
    fleet.starved = True
    await settled(fleet, 20.0, minutes=10)
    assert (fleet.wanted(GREEN), fleet.wanted(BROWN)) == before


async def test_more_traffic_brings_more_engines() -> None:
    fleet = Fleet(replicas=1)
    await settled(fleet, 1.0, minutes=10)
    few = fleet.wanted(GREEN) + fleet.wanted(BROWN)  # type: ignore[operator]
    await settled(fleet, 60.0, minutes=10)
    assert fleet.wanted(GREEN) + fleet.wanted(BROWN) > few  # type: ignore[operator]


async def test_requests_that_are_held_wake_an_engine_at_once() -> None:
    fleet = Fleet(replicas=0, actuation="Scale", scaleToZero=True)
    await fleet.run(30.0, 0.0)
    await fleet.controller.reconcile(ALLOCATION)
    assert (fleet.wanted(GREEN), fleet.wanted(BROWN)) == (0, 0)
    fleet.held = 1.0
    await fleet.run(5.0, 0.2)
    assert fleet.woken == 1
    await fleet.controller.reconcile(ALLOCATION)
    assert (fleet.wanted(GREEN), fleet.wanted(BROWN)) == (1, 0)
    assert fleet.reason(GREEN) == "Woken"


async def test_what_is_planned_is_not_done_without_a_grant_or_under_advise() -> None:
    fleet = Fleet(replicas=2)
    fleet.grant("false")
    await settled(fleet, 2.0, minutes=2)
    entry = fleet.tables.wanted.get(fleet.key(GREEN))
    assert entry is not None
    assert not entry.act
    fleet.grant()
    fleet.policy({"actuation": "Scale"}, enforcement="Advise")
    await settled(fleet, 2.0, minutes=2)
    entry = fleet.tables.wanted.get(fleet.key(GREEN))
    assert entry is not None
    assert not entry.act
    assert entry.replicas is not None


async def test_a_policy_that_goes_takes_its_wishes_along() -> None:
    fleet = Fleet()
    await settled(fleet, 2.0, minutes=2)
    assert len(fleet.tables.wanted) == 2
    fleet.queued.clear()
    fleet.policy({"actuation": "Scale"})
    policy = next(iter(fleet.cluster.policies))
    fleet.cluster.forget(policy)
    await fleet.controller.reconcile(ALLOCATION)
    assert len(fleet.tables.wanted) == 0
    assert fleet.key(GREEN) in fleet.queued


async def test_state_is_remembered_from_decision_to_decision_and_forgotten_after_a_long_absence() -> None:
    fleet = Fleet(replicas=1)
    await settled(fleet, 60.0, minutes=5)
    assert any(state.last_change_unix_s is not None for state in fleet.tables.scaling.values())
    fleet.now_s += 1_000.0
    await fleet.watch.round()
    await fleet.controller.reconcile(ALLOCATION)
    assert all(state.last_direction is None for state in fleet.tables.scaling.values())


async def test_a_longer_interval_is_kept_beside_a_shorter_one() -> None:
    fleet = Fleet(replicas=1, actuation="Scale", interval="5m")
    await fleet.run(60.0, 1.0)
    assert await fleet.controller.reconcile(ALLOCATION) == 300.0
    entry = fleet.tables.wanted.get(fleet.key(GREEN))
    await fleet.run(30.0, 1.0)
    await fleet.controller.reconcile(ALLOCATION)
    assert fleet.tables.wanted.get(fleet.key(GREEN)) is entry


@pytest.mark.parametrize("minutes", [2])
async def test_metrics_say_what_is_asked_and_what_is_carried(minutes: int) -> None:
    fleet = Fleet(replicas=2)
    await settled(fleet, 3.0, minutes=minutes)
    facts, plan = fleet.controller.groups["ns/pool/m"]
    assert facts.demand is not None
    assert facts.demand.expected[0] == pytest.approx(3.0, rel=0.3)
    assert plan is not None
    assert plan.capacity_requests_per_second is not None
    assert plan.capacity_requests_per_second > facts.demand.upper[0]
