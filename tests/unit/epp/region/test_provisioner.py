"""The provisioner with real HTTP servers: fresh, garbage, frozen, gone and back."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from aiohttp import web
from tests.unit.epp.region.builders import load, page, tier

from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.region_state import encode
from heliotrope_epp.region.feed import FAILURES_BEFORE_PAUSE, RegionFeed
from heliotrope_epp.region.provisioner import Provisioner

FAST = "polling: {{interval: 50ms, timeout: 40ms, longestInterval: 100ms, lostAfterPolls: 4, mode: {mode}}}"


class Region:
    """A picker's metrics port whose answers a test sets."""

    def __init__(self) -> None:
        self.answer: Callable[[], bytes] = lambda: encode(page(load("es", running=7.0)))
        self.asked = 0
        self.status = 200
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/state", self._state)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def shut(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/state"

    async def _state(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(body=self.answer(), status=self.status)


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    server = Region()
    await server.open()
    yield server
    await server.shut()


def provisioner(region: Region, mode: str = "Staggered", **options: object) -> Provisioner:
    config = tier("es", extra=FAST.format(mode=mode), urls={"es": region.url})
    return Provisioner(config, clock=Clock(), rng=random.Random(1), **options)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("mode", ["Staggered", "Synchronous"])
async def test_a_region_goes_and_comes_back(region: Region, mode: str) -> None:
    told: list[str] = []
    async with provisioner(region, mode, told=told.append) as it:
        await asyncio.wait_for(it.tried.wait(), 10)
        feed = it.feeds["es"]
        await until(lambda: it.up(time.monotonic()) == ("es",))
        assert feed.load is not None
        assert feed.load.running == 7.0
        await until(lambda: len(told) >= 3)
        await region.shut()
        await until(lambda: feed.refused)
        assert it.up(time.monotonic()) == ()
        assert feed.load.running == 7.0
        await region.open()
        await until(lambda: it.up(time.monotonic()) == ("es",))
        assert it.counts["es"].failed["connection"] >= 1


@pytest.mark.parametrize(
    "answer",
    [
        lambda: b"<html>proxy</html>",
        lambda: encode(page(load("fr"), load("de"))),
        lambda: encode(page(load("es"), time_unix_s=5.0)),
        lambda: b"x" * (300 * 1024),
        lambda: b'{"version": 9, "pool": null, "time_unix_s": 1, "regions": []}',
    ],
)
async def test_garbage_foreign_and_frozen_pages_are_no_state(region: Region, answer: Callable[[], bytes]) -> None:
    async with provisioner(region) as it:
        await until(lambda: it.up(time.monotonic()) == ("es",))
        region.answer = answer
        await until(lambda: it.up(time.monotonic()) == ())
        assert it.feeds["es"].problem
        region.answer = lambda: encode(page(load("es")))
        await until(lambda: it.up(time.monotonic()) == ("es",))
        assert it.feeds["es"].problem is None


async def test_one_that_does_not_answer_is_asked_seldom_and_at_once_when_poked(region: Region) -> None:
    config = tier("es", extra="polling: {interval: 1s, timeout: 50ms, longestInterval: 60s}", urls={"es": region.url})
    region.status = 500
    async with Provisioner(config, clock=Clock(), rng=random.Random(1)) as it:
        await until(lambda: region.asked == 1)
        await asyncio.sleep(0.05)
        it.poke("es")
        await until(lambda: region.asked == 2)
        assert it.counts["es"].failed == {"status": 2}


async def test_the_second_address_is_asked_where_the_first_is_closed(region: Region) -> None:
    config = tier("es", urls={"es": region.url})
    entry = config.regions[0].model_copy(update={"state_urls": ("http://127.0.0.1:1/v1/state", region.url)})
    async with Provisioner(replace(config, regions=(entry,)), clock=Clock()) as it:
        await until(lambda: it.up(time.monotonic()) == ("es",))


async def test_a_page_without_region_names_belongs_to_the_only_region(region: Region) -> None:
    region.answer = lambda: encode(page(load(None)))
    async with provisioner(region) as it:
        await until(lambda: it.up(time.monotonic()) == ("es",))


def test_a_gateway_that_fails_request_after_request_is_left_alone_longer_each_time() -> None:
    feed = RegionFeed(tier("es").regions[0])
    feed.accept(page(load("es")), 0.0, 0.0)
    assert not any(feed.answered(0.0, failed=True) for _ in range(FAILURES_BEFORE_PAUSE - 1))
    feed.answered(0.0, failed=False)
    assert not any(feed.answered(0.0, failed=True) for _ in range(FAILURES_BEFORE_PAUSE - 1))
    assert feed.answered(0.0, failed=True)
    feed.accept(page(load("es"), time_unix_s=1.0), 0.4, 0.4)
    assert not feed.up(0.5, 10.0)
    assert feed.up(1.0, 10.0)
    assert feed.answered(1.0, failed=True)
    assert not feed.up(3.5, 10.0)  # nothing was told since
    feed.accept(page(load("es"), time_unix_s=2.0), 2.0, 2.0)
    assert not feed.up(2.9, 10.0)
    assert feed.up(3.0, 10.0)
    feed.answered(3.5, failed=False)
    assert feed.pauses == 0
