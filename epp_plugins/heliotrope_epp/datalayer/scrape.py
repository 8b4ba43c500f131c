"""Reading engines' metrics: one task per endpoint, each at its own pace, none of them waiting for another."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from heliotrope_epp.datalayer.endpoint import ENGINE_TYPE_LABEL, EngineMetrics
from heliotrope_epp.datalayer.latency_buckets import latency_buckets
from heliotrope_epp.datalayer.metrics_text import NAMES, EngineType, engine_metrics
from heliotrope_epp.datalayer.pages import PageCounts, PageError, PageReader, pause_after_failure
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.tasks import KeyedTasks

_log = logging.getLogger(__name__)

_FAILURES_BEFORE_WARNING = 5
LATENCY_INTERVAL_S = 5.0
"""Between two readings of an engine's histograms, which nothing on a request's way needs."""


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How engines are asked."""

    interval_s: float = 0.2
    timeout_s: float = 1.0
    longest_interval_s: float = 5.0
    """What the time between two tries grows to while an endpoint does not answer."""
    max_page_bytes: int = 4 * 1024 * 1024
    path: str = "/metrics"


class Scraper:
    """Keeps `EndpointState.metrics` new for the endpoints of a store that it listens to. Use as a context manager.

    `cache_lost` is called with an endpoint's key when its engine has restarted or fallen asleep; `clock` gives
    monotonic seconds; `rng` spreads the endpoints' first scrapes and their back-off.
    """

    def __init__(
        self,
        settings: ScrapeSettings,
        *,
        cache_lost: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._tell_cache_lost = cache_lost or self.cache_lost
        self._clock = clock
        self._rng = rng or random.Random()
        self._pages = PageReader(timeout_s=settings.timeout_s, max_page_bytes=settings.max_page_bytes)
        self._tasks = KeyedTasks()
        self.counts = PageCounts()

    async def __aenter__(self) -> "Scraper":
        await self._pages.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._tasks.close()
        await self._pages.__aexit__(*exc_info)

    def added(self, state: EndpointState) -> None:
        """Start to read an endpoint."""
        key = state.endpoint.key
        if not self._pages.is_open or key in self._tasks:
            raise RuntimeError(f"{key}: the scraper is closed or reads this endpoint already")
        self._tasks.start(key, self._follow(state), f"scrape {key}")

    def removed(self, key: str) -> None:
        """Stop to read an endpoint; one that is not read is left alone."""
        self._tasks.stop(key)

    def cache_lost(self, key: str) -> None:
        """Nothing: it is where the news comes from."""

    async def _follow(self, state: EndpointState) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, self._settings.interval_s))
        due = self._clock()
        while True:
            try:
                metrics = await self._scrape(state)
            except PageError as error:
                self._failed(state, error)
                s, failures = self._settings, state.consecutive_failures
                due = self._clock() + pause_after_failure(failures, s.interval_s, s.longest_interval_s, self._rng)
            else:
                self._accept(state, metrics)
                # An engine that is slow to answer is not asked again at once.
                due = max(due + self._settings.interval_s, self._clock() + self._settings.interval_s / 2.0)
            await asyncio.sleep(max(due - self._clock(), 0.0))

    async def _scrape(self, state: EndpointState) -> EngineMetrics:
        page = await self._pages.read(f"http://{state.endpoint.host_port}{self._settings.path}")
        names, now_s = NAMES[_engine_type(state)], self._clock()
        metrics = engine_metrics(page, names, now_s)
        if state.latency is None or now_s - state.latency.read_s >= LATENCY_INTERVAL_S:
            state.latency = latency_buckets(page, names, now_s)
        if metrics.running is None and metrics.waiting is None and metrics.kv_usage is None:
            raise PageError("content", "the page has none of the engine's metrics")
        return metrics

    def _accept(self, state: EndpointState, metrics: EngineMetrics) -> None:
        before = state.metrics
        if state.consecutive_failures >= _FAILURES_BEFORE_WARNING:
            _log.info("endpoint %s answers again", state.endpoint.key)
        state.scraped(metrics)
        state.consecutive_failures = 0
        self.counts.succeeded += 1
        if before is not None and _lost_cache(before, metrics):
            self._tell_cache_lost(state.endpoint.key)

    def _failed(self, state: EndpointState, error: PageError) -> None:
        state.consecutive_failures += 1
        self.counts.add_failure(error.reason)
        if state.consecutive_failures == _FAILURES_BEFORE_WARNING:
            _log.warning("endpoint %s does not give metrics: %s", state.endpoint.key, error)


def _engine_type(state: EndpointState) -> EngineType:
    """By the endpoint's label; vLLM, as in llm-d, where it has none or one that is not known here."""
    try:
        return EngineType(state.endpoint.labels.get(ENGINE_TYPE_LABEL, EngineType.VLLM))
    except ValueError:
        return EngineType.VLLM


def _lost_cache(before: EngineMetrics, now: EngineMetrics) -> bool:
    """Whether the engine is another process than before, or has dropped its KV cache to sleep."""
    if now.asleep and not before.asleep:
        return True
    return _fell(before.prompt_tokens_total, now.prompt_tokens_total) or _fell(
        before.generation_tokens_total, now.generation_tokens_total
    )


def _fell(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now < before
