"""Clocks per phase with every process real: engines on the driver's stand-in, the node agent, clients.

The planner's wishes go into a NodePower in the agent's folder, joules come from the driver's counters. Which arm draws
less is asserted, not by how much, and no time is.
"""

import asyncio
from pathlib import Path

import pytest
from bench.clocks.planner import Seen
from e2e.clocks.days import ARMS, CUTS, Arm, Outcome, Shape, planned, run
from e2e.clocks.site import GPUS, Site, StartedSite

pytestmark = [pytest.mark.slow]

TIME_SCALE = 6.0
SHAPE = Shape(engine_seconds=60.0, night=0.3, noon=2.0)
ALONE, _, PER_PHASE = ARMS
_, CAP = CUTS


async def one(site: Site, arm: Arm) -> Outcome:
    outcome = await run(site, arm, SHAPE, time_scale=TIME_SCALE, seed=3, seen=Seen.MODELLED)
    assert outcome.failed == 0
    assert outcome.answered == len(planned(SHAPE, 3))
    return outcome


@pytest.mark.timeout(180)
async def test_clocks_per_phase_save_joules_and_all_is_put_back(tmp_path: Path) -> None:
    async with StartedSite(tmp_path, time_scale=TIME_SCALE) as site:
        limits = site.limits_watts
        alone = await one(site, ALONE)
        # Prompts that fill the GPU draw as much as it may: the driver may take a step or two of the clock off.
        assert min(mhz for each in alone.moments for mhz in each["clocks_mhz"].values()) >= 1380
        chosen = await one(site, PER_PHASE)
        seen = [each["clocks_mhz"] for each in chosen.moments]
        assert any(each["prefill"] != each["decode"] for each in seen), "phases never had clocks of their own"
        assert min(each["decode"] for each in seen) < 1000
        assert chosen.joules["decode"] < alone.joules["decode"]
        assert chosen.total_joules < alone.total_joules
        capped = await one(site, CAP)
        assert min(each["clocks_mhz"]["prefill"] for each in capped.moments) < 1410, "the cap held no clock down"
        site.wish({role: {"smClockMhz": 900, "watts": 250} for role in GPUS})
        await until_set(site)
        await site.agent.stop(20.0)
        assert site.agent.exit_code == 0
        assert set(site.locks_mhz.values()) == {None}
        assert site.limits_watts == limits


async def until_set(site: Site) -> None:
    async with asyncio.timeout(20):
        while set(site.locks_mhz.values()) != {(900, 900)} or set(site.limits_watts.values()) != {250}:
            await asyncio.sleep(0.05)
