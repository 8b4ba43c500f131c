"""Questions to sources beside the queue: one per policy, a slow one holds up nothing, none without a grant."""

import asyncio

from tests.unit.operator import objects
from tests.unit.operator.power.world import World

from heliotrope_operator.kinds.nodepowers import POWER
from heliotrope_operator.resources import Key, Kind

KEY = Key(Kind.DEMAND_RESPONSE, "ns", "green")
RESPONSE = {"http": {"url": "http://vtn/"}}


class Slow:
    """A source that answers when it is told to."""

    def __init__(self, world: World) -> None:
        self.asked, self.answer = 0, asyncio.Event()
        world.sources.ask = self.ask  # type: ignore[method-assign,assignment]

    async def ask(self, *_: object) -> float:
        self.asked += 1
        await self.answer.wait()
        return 30.0


async def test_a_slow_source_holds_up_no_worker_and_is_asked_once_at_a_time() -> None:
    world = World()
    world.policy(power={}, demandResponse=RESPONSE)
    slow = Slow(world)
    for _ in range(3):
        async with asyncio.timeout(1.0):
            assert await world.demand.reconcile(KEY) is None
        await asyncio.sleep(0)
    assert slow.asked == 1

    world.asked.clear()
    slow.answer.set()
    while KEY not in world.asked:
        await asyncio.sleep(0)
    assert await world.demand.reconcile(KEY) == 30.0
    assert world.asked == [KEY, POWER]
    assert await world.demand.reconcile(KEY) is None
    await asyncio.sleep(0)
    assert slow.asked == 2
    await world.demand.close()


async def test_a_grant_that_is_taken_back_ends_the_questions() -> None:
    world = World()
    world.policy(power={}, demandResponse=RESPONSE)
    slow = Slow(world)
    world.put({"kind": "Namespace", "metadata": objects.metadata("ns", None, version=400) | {"labels": {}}})
    assert await world.demand.reconcile(KEY) is None
    await asyncio.sleep(0)
    assert slow.asked == 0
    world.drop(Kind.CARBON_POLICY, "green")
    assert await world.demand.reconcile(KEY) is None


async def test_closing_ends_what_is_going_on() -> None:
    world = World()
    world.policy(power={}, demandResponse=RESPONSE)
    Slow(world)
    await world.demand.reconcile(KEY)
    await asyncio.sleep(0)
    world.asked.clear()
    async with asyncio.timeout(1.0):
        await world.demand.close()
    assert world.asked == []
