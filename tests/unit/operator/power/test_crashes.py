"""The operator is killed at every write of a pass: its successor brings about the same, and nothing stays half done."""

from typing import Any

import pytest
from tests.unit.operator.power.world import START, World

EVENT = {"name": "evening", "start": "2026-12-01T15:00:00Z", "end": "2026-12-01T18:00:00Z"}
SPEC: dict[str, Any] = {"power": {"budget": {"watts": 900}}, "demandResponse": {"events": [EVENT]}}
WRITES = ("APPLY", "DELETE", "PATCH", "POST", "PUT")


class Killed(BaseException):
    """As SIGKILL, nothing handles it."""


class Fuse:
    """Ends the process before its n-th write, which is after the one before."""

    def __init__(self, world: World, number: int) -> None:
        self.left, self._enter = number, world.kube._enter
        world.kube._enter = self.enter  # type: ignore[method-assign]
        self.world = world

    async def enter(self, method: str, path: str) -> None:
        await self._enter(method, path)
        if method in WRITES:
            if self.left == 0:
                raise Killed
            self.left -= 1

    def mend(self) -> None:
        self.world.kube._enter = self._enter  # type: ignore[method-assign]


def state(world: World) -> dict[str, Any]:
    """All that matters in the end: specs and statuses, not who wrote them when."""
    found = {}
    for path, document in world.api.objects.items():
        if document.get("kind") in ("NodePower", "CarbonPolicy", "WorkloadVariant"):
            found[path] = {
                "spec": document["spec"],
                "owner": document["metadata"].get("labels"),
                "demand": document.get("status", {}).get("demandResponse"),
                "power": document.get("status", {}).get("chosenPower"),
                "conditions": [
                    (each["type"], each["reason"]) for each in document.get("status", {}).get("conditions", ())
                ],
            }
    return found


async def run(world: World, passes: int = 3) -> None:
    for _ in range(passes):
        await world.step()


async def scenario(crash: int | None, phase: str) -> tuple[dict[str, Any], bool]:
    """A policy comes (phase `set`) and goes (phase `taken back`), with a crash at one write of one phase."""
    world, crashed = World(), False
    world.now = START
    for now in ("set", "taken back"):
        if now == "set":
            world.policy(**SPEC)
        else:
            world.policy(version=500, status=world.status())
        fuse = Fuse(world, crash) if crash is not None and phase == now else None
        try:
            await run(world)
        except Killed:
            crashed = True
        if fuse is not None:
            fuse.mend()
        if crashed:
            world.start()
            for document in list(world.api.objects.values()):  # it lists anew
                if document.get("kind") in ("NodePower", "CarbonPolicy", "WorkloadVariant"):
                    world.put(document)
            await run(world)
        if now == phase:
            return state(world), crashed
    raise AssertionError("no such phase")


@pytest.mark.parametrize("phase", ["set", "taken back"])
async def test_a_kill_at_any_write_changes_nothing_in_the_end(phase: str) -> None:
    expected, _ = await scenario(None, phase)
    crashes = 0
    for number in range(30):
        found, crashed = await scenario(number, phase)
        if not crashed:
            break
        crashes += 1
        assert found == expected, f"killed at write {number}"
    assert 3 <= crashes < 30
