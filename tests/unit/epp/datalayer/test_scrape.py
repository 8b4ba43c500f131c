"""Scraping real HTTP servers: pace, failures, limits and what is concluded from counters."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from heliotrope_epp.datalayer.endpoint import ENGINE_TYPE_LABEL, Endpoint
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.scrape import Scraper, ScrapeSettings
from heliotrope_epp.datalayer.state import EndpointState

FAST = ScrapeSettings(interval_s=0.02, timeout_s=0.5, longest_interval_s=0.2)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page(running: float = 1.0, prompt: float = 10.0, *, awake: int = 1) -> web.Response:
    return web.Response(
        text=f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting 0\n'
        f"vllm:kv_cache_usage_perc 0.5\nvllm:prompt_tokens_total {prompt}\n"
        f'vllm:engine_sleep_state{{sleep_state="awake"}} {awake}\n'
    )


class Engine:
    """An HTTP server whose answer a test may change."""

    def __init__(self) -> None:
        self.answer: Callable[[], web.StreamResponse] = page
        self.requests: list[web.Request] = []
        self.delay_s = 0.0
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        await asyncio.sleep(self.delay_s)
        return self.answer()

    def state(self, name: str = "a", labels: dict[str, str] | None = None) -> EndpointState:
        return EndpointState(Endpoint(name, "default", "127.0.0.1", self.port, labels or {}))


@contextlib.asynccontextmanager
async def serving(engine: Engine, port: int = 0) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_get("/metrics", engine.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    engine.port = runner.addresses[0][1]
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine()
    async with serving(engine):
        yield engine


def scraper(settings: ScrapeSettings = FAST, cache_lost: Callable[[str], None] | None = None) -> Scraper:
    return Scraper(settings, cache_lost=cache_lost, rng=random.Random(1))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_metrics_arrive_with_the_requests_then_in_flight(engine: Engine) -> None:
    state = engine.state()
    state.inflight.add(Dispatch(0.0, 10.0, 10.0, 1.0), 0.0)
    async with scraper() as reading:
        reading.added(state)
        await until(lambda: state.metrics is not None)

    assert state.metrics is not None
    assert (state.metrics.running, state.metrics.kv_usage) == (1.0, 0.5)
    assert state.inflight_at_scrape == 1
    assert state.consecutive_failures == 0
    assert reading.counts.succeeded >= 1
    assert reading.counts.failed == {}


async def test_the_page_is_not_compressed_and_one_connection_serves_all(engine: Engine) -> None:
    state = engine.state()
    async with scraper() as reading:
        reading.added(state)
        await until(lambda: len(engine.requests) >= 5)

    assert {request.headers["Accept-Encoding"] for request in engine.requests} == {"identity"}
    assert len({id(request.protocol) for request in engine.requests}) == 1


async def test_it_keeps_its_pace(engine: Engine) -> None:
    async with scraper(ScrapeSettings(interval_s=0.1)) as reading:
        reading.added(engine.state())
        await asyncio.sleep(1.05)

    assert 6 <= len(engine.requests) <= 11


async def test_a_slow_engine_is_not_asked_again_at_once(engine: Engine) -> None:
    engine.delay_s = 0.15
    async with scraper(ScrapeSettings(interval_s=0.1, timeout_s=1.0)) as reading:
        reading.added(engine.state())
        await asyncio.sleep(1.0)

    assert len(engine.requests) <= 6  # 0.15 s to answer and half an interval of peace


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: web.Response(status=503), "status"),
        (lambda: web.Response(status=302, headers={"Location": "/metrics"}), "status"),
        (lambda: web.Response(text="up 1\n"), "content"),
        (lambda: web.Response(text="vllm:num_requests_running 1\n" + "#" * 2000), "size"),
    ],
)
async def test_what_is_no_page_counts_as_a_failure(
    engine: Engine, answer: Callable[[], web.Response], reason: str
) -> None:
    engine.answer = answer
    state = engine.state()
    async with scraper(ScrapeSettings(interval_s=0.02, max_page_bytes=1000)) as reading:
        reading.added(state)
        await until(lambda: state.consecutive_failures >= 2)

    assert state.metrics is None
    assert set(reading.counts.failed) == {reason}


async def test_an_engine_that_hangs_times_out_and_delays_nobody_else(engine: Engine) -> None:
    hanging = Engine()
    hanging.delay_s = 30.0
    async with serving(hanging), scraper(ScrapeSettings(interval_s=0.02, timeout_s=0.1)) as reading:
        stuck, fine = hanging.state("stuck"), engine.state("fine")
        reading.added(stuck)
        reading.added(fine)
        await until(lambda: stuck.consecutive_failures >= 2)

        assert len(engine.requests) > 4
        assert reading.counts.failed["timeout"] >= 2


async def test_a_failing_endpoint_is_asked_less_often_and_keeps_its_last_values(engine: Engine) -> None:
    state = engine.state()
    async with scraper() as reading:
        reading.added(state)
        await until(lambda: state.metrics is not None)
        engine.answer = lambda: web.Response(status=500)
        await until(lambda: state.consecutive_failures == 1)
        asked = len(engine.requests)
        await asyncio.sleep(0.6)

        assert 2 <= len(engine.requests) - asked <= 8  # at full pace it would be thirty
        assert state.metrics is not None

        engine.answer = page
        await until(lambda: state.consecutive_failures == 0)


async def test_nothing_listens_and_later_something_does() -> None:
    engine = Engine()
    async with serving(engine):
        port = engine.port
    state = engine.state()
    async with scraper() as reading:
        reading.added(state)
        await until(lambda: state.consecutive_failures >= 3)
        assert set(reading.counts.failed) == {"connection"}

        async with serving(engine, port):
            await until(lambda: state.metrics is not None)


async def test_a_removed_endpoint_is_left_alone(engine: Engine) -> None:
    async with scraper() as reading:
        reading.added(engine.state())
        await until(lambda: len(engine.requests) >= 2)
        reading.removed("default/a")
        reading.removed("default/a")
        await asyncio.sleep(0.05)
        asked = len(engine.requests)
        await asyncio.sleep(0.2)

        assert len(engine.requests) == asked

        reading.added(engine.state())
        await until(lambda: len(engine.requests) > asked)


async def test_a_restarted_or_sleeping_engine_has_lost_its_cache(engine: Engine) -> None:
    lost: list[str] = []
    state = engine.state()
    async with scraper(cache_lost=lost.append) as reading:
        engine.answer = lambda: page(prompt=100.0)
        reading.added(state)
        await until(lambda: reading.counts.succeeded >= 3)
        engine.answer = lambda: page(prompt=150.0)
        await until(lambda: state.metrics is not None and state.metrics.prompt_tokens_total == 150.0)
        assert lost == []

        engine.answer = lambda: page(prompt=5.0)
        await until(lambda: state.metrics is not None and state.metrics.prompt_tokens_total == 5.0)
        assert lost == ["default/a"]

        engine.answer = lambda: page(prompt=6.0, awake=0)
        await until(lambda: len(lost) == 2)
        seen = reading.counts.succeeded
        await until(lambda: reading.counts.succeeded >= seen + 3)
        assert lost == ["default/a", "default/a"]  # told once, not at every scrape


async def test_the_label_says_which_names_are_read(engine: Engine) -> None:
    engine.answer = lambda: web.Response(text="sglang:num_running_reqs 4\nvllm:num_requests_running 1\n")
    states = [engine.state(kind, {ENGINE_TYPE_LABEL: kind}) for kind in ("sglang", "vllm", "something-new")]
    async with scraper() as reading:
        for state in states:
            reading.added(state)
        await until(lambda: all(state.metrics is not None for state in states))

    assert [None if state.metrics is None else state.metrics.running for state in states] == [4.0, 1.0, 1.0]
