"""A pass over all policies: clocks, budgets over time, events, turns, what is taken back, and the Lease."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.operator import objects
from tests.unit.operator.memory import UNAVAILABLE
from tests.unit.operator.power.world import START, World

from heliotrope.power.demand import Event, Ramps, limit_at
from heliotrope_operator.errors import ApiError, NotLeaderError
from heliotrope_operator.power.metrics import PowerCollector
from heliotrope_operator.power.sources import Heard
from heliotrope_operator.resources import RESOURCES, Key, Kind

FULL = 695 + 432


async def test_least_energy_where_load_is_known_and_nothing_before() -> None:
    world = World()
    world.policy(power={})
    await world.step()
    assert (world.node_power(), world.said("PowerManaged")) == (None, ("False", "NothingSet"))
    assert world.lease() == {}

    world.load("prefill", 3.0)
    world.load("decode", 3.0)
    await world.step(10.0)

    assert world.clocks() == {"prefill": 900, "decode": 900}
    assert world.said("PowerManaged") == ("False", "NoAgent")
    world.agent_answers()
    await world.step(10.0)
    assert world.said("PowerManaged") == ("True", "PowerManaged")
    chosen = world.chosen("decode")
    assert chosen is not None
    assert (chosen["smClockMhz"], chosen["reason"], chosen["since"]) == (900, "LeastEnergy", "2026-12-01T16:00:10Z")


async def test_a_load_that_grows_raises_the_clock_at_once_and_one_that_is_lost_leaves_it() -> None:
    world = World()
    world.policy(power={})
    for role in ("prefill", "decode"):
        world.load(role, 3.0)
    await world.step()
    world.agent_answers()

    world.load("prefill", 9.0)
    await world.step(1.0)
    assert (world.clocks()["prefill"] or 0) > 900
    assert (world.chosen("prefill") or {})["reason"] == "SloGuard"

    before = world.clocks()
    world.tables.loads.clear()
    for _ in range(3):
        await world.step(600.0)
    assert world.clocks() == before
    assert (world.chosen("prefill") or {})["reason"] == "LoadUnknown"


async def test_clocks_wait_while_replicas_have_their_turn() -> None:
    world = World()
    world.policy(power={})
    for role in ("prefill", "decode"):
        world.load(role, 3.0)
    world.put(world.pod("decode-1", "decode", ready=False))
    await world.step()
    assert world.clocks() == {"prefill": 900}
    assert (world.chosen("decode") or {}).get("reason") == "Held"

    world.put(world.pod("decode-1", "decode", version=2))
    for role in ("prefill", "decode"):
        world.load(role, 3.0)
    await world.step(10.0)
    assert "decode" not in world.clocks()
    world.load("decode", 3.0)
    await world.step(119.0)
    assert "decode" not in world.clocks()
    world.load("decode", 3.0)
    await world.step(2.0)
    assert world.clocks()["decode"] == 900


async def test_a_schedule_is_kept_from_its_start_to_its_end() -> None:
    world = World()
    window = {"name": "peak", "start": "17:00", "end": "18:00", "watts": 800}
    world.policy(power={"budget": {"schedule": [window]}})
    await world.step()
    assert world.node_power() is None

    found: dict[int, Any] = {}
    for minute in range(130):
        world.now = START + 60.0 * minute
        await world.step()
        found[minute] = world.clocks()
    assert found[58] == {}
    # A setting holds for a minute, so what will be too much within it is too much now.
    assert set(found[59]) == {"prefill", "decode"}
    assert found[60] == found[90] == found[119]
    assert found[121] == {}


async def test_an_event_ramps_down_and_comes_back_and_a_restart_measures_nothing_anew() -> None:
    world = World()
    event = {"name": "evening", "start": "2026-12-01T17:00:00Z", "end": "2026-12-01T18:00:00Z"}
    response = {"events": [event], "rampIn": "10m", "rampOut": "10m", "weights": {"energy": "1"}}
    world.policy(power={}, demandResponse=response)
    limits: dict[int, float | None] = {}
    for minute in range(150):
        if minute == 75:
            world.start()
        world.now = START + 60.0 * minute
        await world.step()
        (decided,) = world.controller.decided()
        limits[minute] = None if decided.limit is None else round(decided.limit.watts)
        assert decided.limit is None or decided.plan.projected_watts <= decided.limit.watts + 1e-6
        if minute in (60, 74, 76, 119):
            assert world.status()["demandResponse"]["baselineWatts"] == FULL
            assert world.said("DemandAnswered") == ("True", "EventAnswered")
    assert limits[49] is None
    assert limits[55] == pytest.approx(FULL * (1 - 0.3 * 0.6), abs=1)  # as it will be in a minute
    assert limits[60] == limits[90] == limits[119] == pytest.approx(FULL * 0.7, abs=1)
    assert limits[125] == pytest.approx(FULL * (1 - 0.3 * 0.5), abs=1)
    assert limits[131] is None
    assert world.clocks() == {}
    assert world.said("DemandAnswered") == ("False", "NoEvent")
    assert "demandResponse" not in world.status()
    assert [reason for reason in world.told() if reason in ("EventAnswered", "PowerReturns", "NoEvent")] == [
        "EventAnswered",
        "PowerReturns",
        "NoEvent",
    ]


async def test_an_event_without_power_changes_no_clock_and_is_told_to_the_picker() -> None:
    world = World()
    event = {"name": "now", "start": "2026-12-01T15:00:00Z", "end": "2026-12-01T18:00:00Z", "watts": 500}
    world.policy(demandResponse={"events": [event], "weights": {"energy": "1"}})
    await world.step()
    assert world.status()["demandResponse"]["event"] == "now"
    assert world.node_power() is None
    assert world.said("PowerManaged") is None


async def test_policies_under_advise_and_without_a_grant_share_a_node_with_one_that_acts() -> None:
    world = World()
    world.policy(power={"budget": {"watts": 800}})
    await world.step()
    found = world.node_power()
    assert found is not None
    assert found["spec"]["enforcement"] == "Enforce"

    world.policy(power={"budget": {"watts": 800}}, enforcement="Advise", version=7)
    await world.step(10.0)
    found = world.node_power()
    assert found is not None
    assert (found["spec"]["enforcement"], {each["enforcement"] for each in found["spec"]["intents"]}) == (
        "Advise",
        {"Advise"},
    )
    assert world.said("PowerManaged") == ("False", "AdviseOnly")
    assert (world.chosen("decode") or {})["enforcement"] == "Advise"

    closed = World(granted=False)
    closed.policy(power={"budget": {"watts": 800}})
    await closed.step()
    assert closed.said("PowerManaged") == ("False", "NotGranted")
    assert (closed.node_power() or {})["spec"]["enforcement"] == "Advise"


async def test_without_a_grant_no_source_is_asked() -> None:
    world = World(granted=False)
    world.policy(power={}, demandResponse={"http": {"url": "http://127.0.0.1:1/"}})
    await world.step()
    assert world.asked == []
    assert world.said("DemandAnswered") == ("Unknown", "NotGranted")
    granted = World()
    granted.policy(power={}, demandResponse={"http": {"url": "http://127.0.0.1:1/"}})
    await granted.step()
    assert granted.asked == [Key(Kind.DEMAND_RESPONSE, "ns", "green")]


async def test_what_is_governed_no_more_is_taken_back() -> None:
    world = World()
    world.policy(power={"budget": {"watts": 800}})
    await world.step()
    assert world.chosen("decode") is not None

    world.drop(Kind.CARBON_POLICY, "green")
    await world.step(10.0)
    assert (world.node_power(), world.chosen("decode")) == (None, None)

    world.policy(power={"budget": {"watts": 800}}, version=50)
    await world.step(10.0)
    world.policy(version=99, status=world.status())
    await world.step(10.0)
    assert (world.node_power(), world.said("PowerManaged")) == (None, None)


async def test_a_nodepower_of_somebody_else_is_left_alone_and_named() -> None:
    world = World()
    foreign = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "NodePower",
        "metadata": objects.metadata("n1", None),
        "spec": {"enforcement": "Advise"},
    }
    world.put(foreign)
    world.policy(power={"budget": {"watts": 800}})
    await world.step()
    assert world.said("PowerManaged") == ("False", "NodePowerConflict")
    assert (world.node_power() or {})["spec"] == {"enforcement": "Advise"}
    world.drop(Kind.CARBON_POLICY, "green")
    await world.step(10.0)
    assert world.node_power() is not None

    world.policy(power={"budget": {"watts": 800}}, version=60)
    world.drop(Kind.NODE_POWER, "n1", "")
    await world.step(10.0)
    assert set(world.clocks()) == {"prefill", "decode"}
    assert world.said("PowerManaged") == ("False", "NoAgent")


async def test_engines_at_rest_are_named_with_the_lowest_clock() -> None:
    world = World()
    activation = {"activation": {"depths": ["IdleClock"]}}
    world.policy(autoscaling=activation)
    world.tables.resting[Key(Kind.WORKLOAD_VARIANT, "ns", "decode")] = frozenset({"decode-0", "gone"})
    await world.step()
    (intent,) = (world.node_power() or {})["spec"]["intents"]
    assert intent == {
        "namespace": "ns",
        "variant": "decode",
        "role": "decode",
        "pods": [{"name": "decode-0", "uid": "uid-decode-0"}],
        "enforcement": "Enforce",
        "restingPods": ["decode-0"],
        "restingSmClockMhz": 900,
    }
    assert world.said("PowerManaged") is None


async def test_intents_name_the_pods_of_their_node_by_uid_in_a_steady_order() -> None:
    world = World()
    for name, node in (("decode-9", "n1"), ("decode-1", "n1"), ("decode-2", "n2")):
        world.put(world.pod(name, "decode", node=node))
    world.policy(power={"budget": {"watts": 800}})
    await world.step()
    intents = {each["role"]: each for each in (world.node_power() or {})["spec"]["intents"]}
    assert [(pod["name"], pod["uid"]) for pod in intents["decode"]["pods"]] == [
        ("decode-0", "uid-decode-0"),
        ("decode-1", "uid-decode-1"),
        ("decode-9", "uid-decode-9"),
    ]
    world.put(world.pod("decode-1", "decode", version=7))  # the same pod again is no news
    asked = len(world.api.requests)
    await world.step(1.0)
    assert not [path for method, path in world.api.requests[asked:] if method == "APPLY" and "nodepowers" in path]

    again = world.pod("decode-1", "decode", version=8)
    world.put(again | {"metadata": again["metadata"] | {"uid": "another"}})
    await world.step(1.0)
    pods = next(e for e in (world.node_power() or {})["spec"]["intents"] if e["role"] == "decode")["pods"]
    assert {"name": "decode-1", "uid": "another"} in pods


async def test_more_pods_than_an_intent_holds_leave_the_last_ones_out() -> None:
    world = World()
    for number in range(70):
        world.put(world.pod(f"decode-x{number:02}", "decode"))
    world.policy(power={"budget": {"watts": 20_000}})
    await world.step()
    pods = next(e for e in (world.node_power() or {})["spec"]["intents"] if e["role"] == "decode")["pods"]
    assert (len(pods), pods[0]["name"], pods[-1]["name"]) == (64, "decode-0", "decode-x62")


async def test_what_agents_cannot_apply_is_said_of_the_policy() -> None:
    world = World()
    world.policy(power={"budget": {"watts": 800}})
    await world.step()
    assert world.said("PowerManaged") == ("False", "NoAgent")
    for status, reason, said in (
        ("False", "Denied", ("False", "NotApplied")),
        ("False", "Dwell", ("True", "PowerManaged")),  # passes by itself
        ("False", "LeaseExpired", ("True", "PowerManaged")),  # as an agent says that has just started
        ("False", "AgentStopped", ("False", "NotApplied")),
        ("True", "Applied", ("True", "PowerManaged")),
        ("Unknown", "Starting", ("True", "PowerManaged")),
    ):
        world.agent_says(status, reason)
        await world.step(10.0)
        assert world.said("PowerManaged") == said, reason
    world.put(world.pod("decode-0", "decode", node="n2", version=9))  # from there nobody has reported
    await world.step(10.0)
    assert world.said("PowerManaged") == ("False", "NoAgent")


async def test_the_lease_is_renewed_after_passes_that_went_well_and_no_other() -> None:
    world = World()
    world.policy(power={"budget": {"watts": 800}})
    await world.step()
    first = world.lease()["renewTime"]
    assert (world.lease()["holderIdentity"], world.lease()["leaseDurationSeconds"]) == ("test", 60)

    await world.step(5.0)
    assert world.lease()["renewTime"] == first
    await world.step(10.0)
    second = world.lease()["renewTime"]
    assert second > first

    world.kube.denied["/apis/heliotrope.io/v1alpha1/nodepowers"] = UNAVAILABLE
    world.policy(power={"budget": {"watts": 900}}, version=70)
    with pytest.raises(ApiError):
        await world.step(20.0)
    assert world.lease()["renewTime"] == second

    world.kube.denied.clear()
    world.leader.held = False
    with pytest.raises(NotLeaderError):
        await world.step(20.0)
    assert world.lease()["renewTime"] == second


async def test_nothing_is_written_when_nothing_changes() -> None:
    world = World()
    world.policy(power={"budget": {"watts": 800}})
    for _ in range(3):
        await world.step(10.0)
    before = len(world.api.requests)
    for _ in range(5):
        await world.step(1.0)
    assert [path for method, path in world.api.requests[before:] if "leases" not in path] == []


async def test_a_status_that_lost_a_race_is_tried_again_and_holds_up_nothing() -> None:
    world = World()
    world.policy(power={"budget": {"watts": 800}})
    path = RESOURCES[Kind.CARBON_POLICY].path("ns", "green")
    world.api.put(path, world.api.objects[path])  # somebody wrote meanwhile
    assert await world.step() == 1.0
    assert world.lease() != {}
    assert await world.step(1.0) != 1.0
    assert world.said("PowerManaged") is not None


async def test_an_outage_of_the_source_keeps_the_event_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.policy(power={}, demandResponse={"http": {"url": "http://vtn/"}, "rampIn": "0s", "rampOut": "0s"})
    going = Heard((Event("vtn", START - 60.0, float("inf"), watts=800.0),), failure="down")
    monkeypatch.setattr(world.sources, "heard", lambda *_: going)
    await world.step()
    assert world.said("DemandAnswered") == ("True", "EventAnswered")
    end = world.status()["demandResponse"]["end"]
    await world.step(200.0)
    assert world.status()["demandResponse"]["end"] == end
    await world.step(200.0)
    assert world.status()["demandResponse"]["end"] > end


async def test_an_event_that_was_not_announced_is_answered_within_its_second() -> None:
    world = World()
    world.now += 0.7
    event = {"name": "now", "start": "2026-12-01T15:00:00Z", "end": "2026-12-01T18:00:00Z", "watts": 900}
    world.policy(power={}, demandResponse={"events": [event]})
    for _ in range(3):
        await world.step(0.1)
        assert world.said("DemandAnswered") == ("True", "EventAnswered")
    assert "PowerReturns" not in world.told()


async def test_metrics_tell_of_the_last_pass_from_any_thread_and_not_of_one_long_ago() -> None:
    world = World()
    world.policy(power={"budget": {"watts": 800}})
    await world.step()
    registry = CollectorRegistry()
    registry.register(PowerCollector(world.controller.decided, world.controller.agents))

    def value(metric: str, **labels: str) -> float | None:
        return registry.get_sample_value(metric, labels)

    of = {"namespace": "ns", "policy": "green"}
    assert await asyncio.to_thread(value, "heliotrope_power_budget_watts", **of, source="Budget", name="") == 800
    drawn = await asyncio.to_thread(value, "heliotrope_power_projected_watts", **of)
    assert drawn is not None
    assert 700 < drawn <= 800
    clock = value("heliotrope_power_sm_clock_mhz", **of, variant="decode", role="decode")
    assert clock == world.clocks()["decode"]
    world.now += 61.0
    assert value("heliotrope_power_projected_watts", **of) is None


async def test_clocks_follow_a_ramp_in_steps_of_the_dwell_time_and_never_draw_more_than_is_left() -> None:
    world = World()
    event = {"name": "evening", "start": "2026-12-01T16:20:00Z", "end": "2026-12-01T17:00:00Z"}
    world.policy(power={}, demandResponse={"events": [event], "rampIn": "10m", "rampOut": "0s"})
    changed = []
    for second in range(0, 1_500, 5):
        world.now = START + second
        before = world.clocks()
        await world.step()
        if world.clocks() != before:
            changed.append(second)
        (decided,) = world.controller.decided()
        if decided.answered is not None:
            limit = limit_at(decided.answered, world.now, Ramps(600.0, 0.0, 0.3))
            assert limit is not None
            assert decided.plan.projected_watts <= limit.watts + 1e-6
    assert 600 <= changed[0] <= 605
    assert all(later - earlier >= 60 for earlier, later in pairwise(changed))
    assert 5 <= len(changed) <= 11
