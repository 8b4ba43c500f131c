"""The region tier as users meet it: three clusters behind one gateway; grids change, regions and solvers die."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from e2e.regions import Tier, running_tier, traffic

# In a clean clone on a busy machine every process compiles its loops first.
COMPILED_SECONDS = 240.0
pytestmark = [
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(2 * COMPILED_SECONDS),
]

SPAIN_CLEAN = {"es": 20.0, "fr": 150.0, "de": 400.0}
GERMANY_CLEAN = {"es": 400.0, "fr": 150.0, "de": 20.0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tier(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tier]:
    folder: Path = tmp_path_factory.mktemp("tier")
    async with running_tier(folder, SPAIN_CLEAN) as running:
        yield running


async def solving(tier: Tier) -> None:
    """The solver is compiled."""
    async with asyncio.timeout(COMPILED_SECONDS):
        while not (await tier.state())["solver"]["ready"]:
            await asyncio.sleep(0.1)


async def test_load_moves_to_the_clean_region_and_back_without_a_failed_request(tier: Tier) -> None:
    tier.intensities(SPAIN_CLEAN)
    await solving(tier)
    async with traffic(tier) as load:
        await load.until_all_in("es")
        assert load.answers[-1].engine == "engine-es"
        tier.intensities(GERMANY_CLEAN)
        await load.until_all_in("de")
        assert load.answers[-1].engine == "engine-de"
        tier.intensities(SPAIN_CLEAN)
        await load.until_all_in("es")
        assert load.failures == []
    for scheduler in (tier.picker, tier.second):
        assert await tier.metric("heliotrope_region_windows_total", of=scheduler) > 0
    assert await tier.metric("heliotrope_region_windows_total", 'scheduler="Facility"', 'fallback=""') > 0
    newest = (await tier.page("/debug/decisions?limit=1"))[0]
    assert (newest["region"], newest["scheduler"]) == ("es", "Facility")


async def test_a_killed_solver_costs_nothing_and_comes_back(tier: Tier) -> None:
    tier.intensities(SPAIN_CLEAN)
    await solving(tier)
    async with traffic(tier) as load:
        await load.until_all_in("es")
        solver = (await tier.state())["solver"]
        os.kill(solver["pid"], signal.SIGKILL)
        async with asyncio.timeout(30):
            while (await tier.state())["solver"]["starts"] == solver["starts"]:
                await asyncio.sleep(0.05)
        await solving(tier)
        solved = ("heliotrope_region_windows_total", 'scheduler="Facility"', 'fallback=""')
        before = await tier.metric(*solved)
        async with asyncio.timeout(30):
            while await tier.metric(*solved) == before:
                await asyncio.sleep(0.05)
        assert load.failures == []
    assert await tier.metric("heliotrope_region_solver_ends_total", 'reason="died"') >= 1


@pytest.mark.parametrize("garbage", [b"<html>502</html>", b'{"version":1,"pool":null,"time_unix_s":1,"regions":[]}'])
async def test_a_region_whose_state_is_garbage_takes_nothing_until_it_is_told_again(tier: Tier, garbage: bytes) -> None:
    tier.intensities(SPAIN_CLEAN)
    async with traffic(tier) as load:
        await load.until_all_in("es")
        tier.mirrors["es"].garbage = garbage
        try:
            await load.until_all_in("fr")
            es = next(region for region in (await tier.state())["regions"] if region["name"] == "es")
            assert es["up"] is False
            assert es["problem"]
        finally:
            tier.mirrors["es"].garbage = None
        await load.until_all_in("es")
        assert load.failures == []


async def test_a_region_that_dies_loses_its_own_requests_only_and_gets_its_load_back(tier: Tier) -> None:
    tier.intensities(SPAIN_CLEAN)
    async with traffic(tier) as load:
        await load.until_all_in("es")
        await tier.clusters["es"].kill()
        tier.mirrors["es"].upstream = None
        await load.until_all_in("fr")
        moved = len(load.answers)
        assert {answer.region for answer in load.failures} <= {"es", None}
        await tier.clusters["es"].revive()
        tier.mirrors["es"].upstream = tier.clusters["es"].state_url
        await load.until_all_in("es", seconds=60.0)
        assert [answer for answer in load.answers[moved:] if answer.status != 200] == []


async def test_models_are_listed_and_nobody_chooses_a_region_himself(tier: Tier) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        models = await client.get(f"{tier.gateway.url}/v1/models", headers={"x-heliotrope-region": "de"})
        assert models.status_code == 200
        assert models.json()["data"][0]["id"] == "test-model"
        assert models.headers["x-heliotrope-region"] in SPAIN_CLEAN
        bad = await client.post(f"{tier.gateway.url}/v1/chat/completions", content=b"{")
        assert bad.status_code == 400
