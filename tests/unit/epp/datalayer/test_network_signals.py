"""A picker without a cluster asks carbon sources of the network itself, with keys from a folder."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.carbon_apis import EM_TOKEN, CarbonApis, carbon_apis
from tests.support.upstream import Reply
from tests.unit.epp.datalayer.objects import region

from heliotrope.carbon.signal import CarbonSignal, Freshness
from heliotrope_epp.datalayer.signals import PolledSignals
from heliotrope_epp.sources import sources


@pytest.fixture
def apis() -> Iterator[CarbonApis]:
    with carbon_apis(time.time) as running:
        yield running


@contextlib.asynccontextmanager
async def polled(folder: Path, secrets: Path | None) -> AsyncIterator[tuple[PolledSignals, Mapping[str, CarbonSignal]]]:
    seen: dict[str, CarbonSignal] = {}
    _, book = sources(folder, None, seen.update, clock=time.time, secrets=secrets)
    assert isinstance(book, PolledSignals)
    try:
        yield book, seen
    finally:
        await book.close()


async def until(look: Callable[[], Any]) -> None:
    async with asyncio.timeout(20.0):
        while not look():
            await asyncio.sleep(0.01)


def electricity_maps(apis: CarbonApis, **source: Any) -> dict[str, Any]:
    ref = {"name": "em", "key": "token"}
    return {"electricityMaps": {"credentialsSecretRef": ref, "baseUrl": f"{apis.url}/em"} | source}


async def test_a_key_in_the_folder_counts_as_soon_as_it_is_there(tmp_path: Path, apis: CarbonApis) -> None:
    secrets = tmp_path / "secrets"
    async with polled(tmp_path, secrets) as (book, seen):
        book.update([region("spain", source=electricity_maps(apis), zone="ES", pollInterval="1s")])
        assert seen["spain"].freshness(time.time()) is Freshness.ABSENT
        await until(lambda: "spain" in book.problems)
        assert f"the file {secrets}/em/token cannot be read" in book.problems["spain"]

        (secrets / "em").mkdir(parents=True)
        (secrets / "em" / "token").write_text(f"{EM_TOKEN}\n")
        await until(lambda: seen["spain"].reading is not None)

        assert seen["spain"].expected_g_per_kwh(time.time(), 60.0) == 250.0
        assert seen["spain"].forecast is not None
        assert book.problems == {}


async def test_without_a_folder_the_flag_is_named(tmp_path: Path, apis: CarbonApis) -> None:
    async with polled(tmp_path, None) as (book, _):
        book.update([region("spain", source=electricity_maps(apis))])
        await until(lambda: "spain" in book.problems)
        assert "give one with --secrets-folder" in book.problems["spain"]


async def test_a_source_that_asks_to_be_left_alone_is(tmp_path: Path, apis: CarbonApis) -> None:
    apis.fail("prom", Reply(429, headers={"Retry-After": "600"}))
    source = {"prometheus": {"url": f"{apis.url}/prom", "query": "x"}}
    async with polled(tmp_path, None) as (book, _):
        book.update([region("spain", source=source, pollInterval="1s")])
        await until(lambda: "spain" in book.problems)
        asked = len(apis.asked)
        await asyncio.sleep(1.5)
        assert len(apis.asked) == asked == 1


async def test_many_regions_ask_a_few_at_a_time_and_a_hanging_one_holds_up_no_file(
    tmp_path: Path, apis: CarbonApis
) -> None:
    apis.fail("neso", Reply(200, b"x" * 50, hang=True))
    (tmp_path / "x.csv").write_text("datetime_utc,g\n2026-01-01T00:00:00Z,10\n2126-01-01T00:00:00Z,20\n")
    direct = {"type": "average", "emissionFactor": "direct"}
    hanging = [
        region(f"gb-{n}", source={"neso": {"baseUrl": f"{apis.url}/neso"}}, signal=direct, pollInterval="1s")
        for n in range(12)
    ]
    file = region("file", source={"file": {"path": "x.csv", "valueColumn": "g"}}, pollInterval="1s")
    async with polled(tmp_path, None) as (book, seen):
        book.update([*hanging, file])
        await until(lambda: seen["file"].reading is not None)
        book.update([file])
    assert len(apis.asked) <= 12
