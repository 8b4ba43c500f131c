"""Agents that give no sign of life any more: noticed by the signs themselves, told once, and never by mistake."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from tests.unit.operator.memory import UNAVAILABLE
from tests.unit.operator.power.world import World

from heliotrope.api.v1alpha1.nodepower import HEARTBEAT_S, SILENT_S
from heliotrope_operator.errors import ApiError
from heliotrope_operator.power.metrics import PowerCollector
from heliotrope_operator.resources import RESOURCES, Kind

NODE_POWER = RESOURCES[Kind.NODE_POWER].path(name="n1")
MANAGED, SILENT = ("True", "PowerManaged"), ("False", "AgentSilent")


async def managed(**policy: object) -> World:
    """A node whose agent has just reported, and is known to have."""
    world = World()
    world.policy(**{"power": {"budget": {"watts": 800}}} | policy)
    await world.step()
    world.agent_beats()
    await world.step(1.0)
    return world


async def passes(world: World, seconds: float, *, every: float = 10.0) -> None:
    for _ in range(round(seconds / every)):
        await world.step(every)


def asked(world: World) -> int:
    return sum(request == ("GET", NODE_POWER) for request in world.api.requests)


async def test_three_missed_minutes_are_silence_which_is_told_once_and_ends_with_the_next_sign() -> None:
    world = await managed()
    assert world.said("PowerManaged") == MANAGED
    await passes(world, SILENT_S - 10.0)
    assert world.said("PowerManaged") == MANAGED
    await passes(world, 600.0)
    assert world.said("PowerManaged") == SILENT
    message = next(each["message"] for each in world.status()["conditions"] if each["type"] == "PowerManaged")
    assert "agents of n1:" in message
    assert world.told().count("AgentSilent") == 1
    world.agent_beats()
    await world.step(10.0)
    assert world.said("PowerManaged") == MANAGED


async def test_an_agent_that_beats_is_never_silent_whatever_its_clock_says() -> None:
    world = await managed()
    for number in range(30):
        if number == 15:
            world.beats = 0  # its clock is set back to 1970
        world.agent_beats()
        await passes(world, HEARTBEAT_S)
        assert world.said("PowerManaged") == MANAGED
    assert asked(world) == 0


async def test_a_watch_that_tells_nothing_is_not_an_agents_silence() -> None:
    world = await managed()
    for _ in range(20):
        world.agent_beats(seen=False)
        await passes(world, HEARTBEAT_S)
        assert world.said("PowerManaged") == MANAGED
    assert 1 <= asked(world) <= 20 * HEARTBEAT_S / SILENT_S + 1


async def test_time_in_which_nothing_could_be_heard_does_not_count() -> None:
    world = await managed()
    await world.step(3_600.0)
    await passes(world, SILENT_S - 20.0)
    assert world.said("PowerManaged") == MANAGED
    world.kube.denied["/apis/heliotrope.io/v1alpha1/nodepowers"] = UNAVAILABLE
    world.policy(power={"budget": {"watts": 900}}, version=70)
    for _ in range(60):
        try:
            await world.step(10.0)
        except ApiError:
            continue
        raise AssertionError("the API server is away")
    world.kube.denied.clear()
    world.policy(power={"budget": {"watts": 900}}, version=71)
    await world.step(10.0)
    assert world.said("PowerManaged") == MANAGED
    await passes(world, SILENT_S)
    assert world.said("PowerManaged") == SILENT


async def test_an_api_server_that_does_not_let_us_read_keeps_neither_the_lease_nor_calls_anybody_silent() -> None:
    world = await managed()
    get = world.kube.get

    async def refused(path: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        if path == NODE_POWER:
            raise UNAVAILABLE
        return await get(path, parameters)

    world.kube.get = refused  # type: ignore[method-assign]
    await passes(world, 2 * SILENT_S)
    assert world.said("PowerManaged") == MANAGED
    renewed = world.lease()["renewTime"]
    await passes(world, 30.0)
    assert world.lease()["renewTime"] > renewed
    world.kube.get = get  # type: ignore[method-assign]
    await world.step(10.0)
    assert world.said("PowerManaged") == SILENT


async def test_a_new_leader_says_what_the_one_before_it_said_until_it_knows_better() -> None:
    world = await managed()
    await passes(world, SILENT_S + 10.0)
    assert world.said("PowerManaged") == SILENT
    world.start()
    await passes(world, 2 * SILENT_S)
    assert world.said("PowerManaged") == SILENT
    assert world.told().count("AgentSilent") == 1
    world.start()
    await world.step()
    world.agent_beats()
    await world.step(10.0)
    assert world.said("PowerManaged") == MANAGED


async def test_agents_that_ended_or_never_say_when_they_worked_are_not_called_silent() -> None:
    world = await managed()
    world.agent_beats(reason="AgentStopped")
    await passes(world, 2 * SILENT_S)
    assert world.said("PowerManaged") == ("False", "NotApplied")
    world.agent_says("True", "Applied")
    await passes(world, 2 * SILENT_S)
    assert world.said("PowerManaged") == MANAGED
    advised = await managed(enforcement="Advise")
    await passes(advised, 2 * SILENT_S)
    assert advised.said("PowerManaged") == ("False", "AdviseOnly")


async def test_signs_of_life_cost_no_pass_and_changes_do() -> None:
    world = await managed()
    spec = world.cluster.table(Kind.NODE_POWER)
    (before,) = spec.values()
    world.agent_beats()
    (after,) = spec.values()
    assert before.heartbeat != after.heartbeat
    dependents = next(each for each in _kinds() if each.kind is Kind.NODE_POWER).dependents
    key = next(iter(spec))
    assert dependents(world.cluster, key, before, after) == set()
    world.agent_beats(reason="Denied")
    (changed,) = spec.values()
    assert dependents(world.cluster, key, after, changed) != set()
    assert dependents(world.cluster, key, None, after) != set()


def _kinds():  # type: ignore[no-untyped-def]
    from heliotrope_operator.kinds.catalog import watched
    from heliotrope_operator.settings import Parts

    return watched(Parts(power=True))


async def test_metrics_have_the_silent_agents_and_each_age() -> None:
    world = await managed()
    registry = CollectorRegistry()
    registry.register(PowerCollector(world.controller.decided, world.controller.agents))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"heliotrope_nodepower_{name}", labels)

    await passes(world, 60.0)
    assert (value("silent_agents"), value("agent_age_seconds", node="n1")) == (0.0, 60.0)
    await passes(world, 240.0)
    assert (value("silent_agents"), value("agent_age_seconds", node="n1")) == (1.0, 300.0)
    world.now += 61.0
    assert (value("silent_agents"), value("agent_age_seconds", node="n1")) == (None, None)
