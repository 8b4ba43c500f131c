"""Whether the picker's books of energy add up, held against the engines' own counters."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from heliotrope_sim.demo.fleet import NAMESPACE, RunningEngine
from heliotrope_sim.demo.meter import ENERGY_METRIC, sums_by_name

LINES = ("requests", "others", "idle", "unattributed")


@dataclass(frozen=True, slots=True)
class Conservation:
    """Sums over all engines, in mJ."""

    counted: int
    """By how much the counters rose between the picker's first and last reading."""
    lines: Mapping[str, int]
    """What the picker booked of it: its requests, others', idle, nobody's."""
    outside: int
    """What the counters rose by before the picker's first reading and after its last one."""
    readings_hold: bool
    """Whether each engine's counter was nowhere beyond what it showed before the picker started and after the run."""

    @property
    def difference(self) -> int:
        """What the picker lost (above 0) or made up (below)."""
        return self.counted - sum(self.lines.values())


async def counters(engines: Sequence[RunningEngine]) -> dict[str, int]:
    """Each engine's energy counter in mJ, all its accelerators together."""
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        pages = await asyncio.gather(*(client.get(f"{engine.url}/metrics") for engine in engines))
    return {
        engine.name: int(sums_by_name(page.text, (ENERGY_METRIC,))[ENERGY_METRIC])
        for engine, page in zip(engines, pages, strict=True)
    }


async def picker_state(admin_url: str) -> Mapping[str, Any]:
    """The picker's `/debug/state`."""
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        response = await client.get(f"{admin_url}/debug/state")
        response.raise_for_status()
        state: Mapping[str, Any] = response.json()
        return state


def conservation(state: Mapping[str, Any], before: Mapping[str, int], after: Mapping[str, int]) -> Conservation | None:
    """Add up the picker's books; None if it has metered nothing on one of the engines.

    Args:
        state: `picker_state` at the end of the run.
        before: `counters` before the picker started, by engine.
        after: `counters` after `state` was taken.
    """
    books = {
        row["endpoint"].removeprefix(f"{NAMESPACE}/"): row["energy"]["millijoules"]
        for row in state["endpoints"]
        if row["energy"] is not None and row["energy"]["millijoules"]["closed_at"] is not None
    }
    if books.keys() != before.keys():
        return None
    counted = sum(book["closed_at"] - book["opened_at"] for book in books.values())
    return Conservation(
        counted=counted,
        lines={line: sum(book[line] for book in books.values()) for line in LINES},
        outside=sum(after.values()) - sum(before.values()) - counted,
        readings_hold=all(
            before[name] <= book["opened_at"] <= book["closed_at"] <= after[name] for name, book in books.items()
        ),
    )
