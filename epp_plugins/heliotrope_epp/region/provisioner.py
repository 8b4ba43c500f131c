"""Keeps the state of every region new: the provisioner of carbon-slo-tension §III-A, one for each region scheduler.

Nothing waits for it. A region that does not answer is asked more and more seldom, and at once when requests to it fail.
"""

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Callable, Mapping, Sequence

import aiohttp

from heliotrope.errors import InvalidInputError
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer import tasks
from heliotrope_epp.datalayer.pages import PageCounts, PageError, PageReader, pause_after_failure
from heliotrope_epp.datalayer.region_state import MAX_BYTES, StatePage, decode
from heliotrope_epp.region.config import PollMode, RegionTier
from heliotrope_epp.region.feed import RegionFeed

_JITTER = (0.95, 1.0)

_log = logging.getLogger(__name__)


class Provisioner:
    """Use as a context manager.

    `told` is called with a region's name for every new state, before the next turn of the loop.
    """

    def __init__(
        self,
        tier: RegionTier,
        *,
        clock: Clock,
        told: Callable[[str], None] = lambda _name: None,
        rng: random.Random | None = None,
    ) -> None:
        self._tier = tier
        self._clock = clock
        self._told = told
        self._rng = rng or random.Random()
        self.feeds: Mapping[str, RegionFeed] = {entry.name: RegionFeed(entry) for entry in tier.regions}
        self.counts: Mapping[str, PageCounts] = {entry.name: PageCounts() for entry in tier.regions}
        self._readers: dict[str, PageReader] = {}
        self._wake: dict[str, asyncio.Event] = {}
        self._tasks = tasks.KeyedTasks()
        self.tried = asyncio.Event()
        """Set once every region was asked."""

    @property
    def lost_after_s(self) -> float:
        """Age of a state from which its region takes no requests."""
        polling = self._tier.polling
        return polling.lost_after_polls * polling.interval + polling.timeout

    def up(self, now_s: float) -> tuple[str, ...]:
        """Names of the regions that take requests."""
        return tuple(name for name, feed in self.feeds.items() if feed.up(now_s, self.lost_after_s))

    def poke(self, name: str) -> None:
        """Ask a region again now: something there went wrong."""
        if name in self._wake:
            self._wake[name].set()

    async def __aenter__(self) -> "Provisioner":
        polling = self._tier.polling
        for entry in self._tier.regions:
            tls = None if entry.ca_file is None else ssl.create_default_context(cafile=entry.ca_file)
            reader = PageReader(timeout_s=polling.timeout, max_page_bytes=MAX_BYTES, tls=tls)
            self._readers[entry.name] = await reader.__aenter__()
            self._wake[entry.name] = asyncio.Event()
        if self._tier.poll_mode is PollMode.SYNCHRONOUS:
            self._tasks.start("all", self._follow_all(), "state of all regions")
        else:
            for feed in self.feeds.values():
                self._tasks.start(feed.name, self._follow(feed), f"state of region {feed.name}")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._tasks.close()
        for reader in self._readers.values():
            await reader.__aexit__()

    async def _follow(self, feed: RegionFeed) -> None:
        """One region at its own phase; the first look is at once."""
        phase_s: float | None = self._rng.uniform(0.0, self._tier.polling.interval)
        while True:
            self._accept(feed, await self._read(feed))
            pause_s = self._pause(feed) if phase_s is None else phase_s
            phase_s = None
            await self._sleep((feed,), pause_s)

    async def _follow_all(self) -> None:
        """All regions together; those that do not answer are left out of some rounds."""
        due = dict.fromkeys(self.feeds, 0.0)
        while True:
            started_s = self._clock.monotonic()
            asked = [feed for feed in self.feeds.values() if due[feed.name] <= started_s]
            pages = await asyncio.gather(*(self._read(feed) for feed in asked))
            for feed, page in zip(asked, pages, strict=True):
                self._accept(feed, page)
                due[feed.name] = 0.0 if not feed.failures else started_s + self._pause(feed)
            poked = await self._sleep(tuple(self.feeds.values()), self._tier.polling.interval)
            due |= dict.fromkeys(poked, 0.0)

    async def _sleep(self, feeds: Sequence[RegionFeed], seconds: float) -> list[str]:
        """Until then, or until one of the regions is to be asked now; the names of those that are."""
        events = [self._wake[feed.name] for feed in feeds]
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        poked = [feed.name for feed, event in zip(feeds, events, strict=True) if event.is_set()]
        for event in events:
            event.clear()
        return poked

    def _pause(self, feed: RegionFeed) -> float:
        polling = self._tier.polling
        if feed.failures:
            return pause_after_failure(feed.failures, polling.interval, polling.longest_interval, self._rng)
        return polling.interval * self._rng.uniform(*_JITTER)

    async def _read(self, feed: RegionFeed) -> StatePage | Exception:
        """The page of the first of its addresses that gives one; else the last failure."""
        failures: list[Exception] = []
        for url in feed.entry.state_urls:
            try:
                return decode(await self._readers[feed.name].read(url))
            except (PageError, InvalidInputError) as error:
                failures.append(error)
        every = all(isinstance(_cause(error), ConnectionRefusedError) for error in failures)
        return _ClosedError(str(failures[-1])) if every else failures[-1]

    def _accept(self, feed: RegionFeed, page: StatePage | Exception) -> None:
        counts, failures_before = self.counts[feed.name], feed.failures
        problem: Exception | None = page if isinstance(page, Exception) else None
        if isinstance(page, StatePage):
            try:
                feed.accept(page, self._clock.monotonic(), self._clock.unix())
            except InvalidInputError as error:
                problem = error
        if problem is None:
            counts.succeeded += 1
            if failures_before:
                _log.info("region %s tells its state again", feed.name)
            self._told(feed.name)
        else:
            counts.add_failure(problem.reason if isinstance(problem, PageError) else "content")
            feed.fail(str(problem), refused=isinstance(problem, _ClosedError))
            if not failures_before:
                _log.warning("region %s does not tell its state: %s", feed.name, problem)
        if not self.tried.is_set() and all(each.tried for each in self.feeds.values()):
            self.tried.set()


class _ClosedError(PageError):
    """Nobody listens at any address."""

    def __init__(self, detail: str) -> None:
        super().__init__("connection", detail)


def _cause(error: Exception) -> BaseException | None:
    """What the system said."""
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientConnectorError):
        return cause.os_error
    with contextlib.suppress(AttributeError):
        return cause.__cause__ if cause is not None else None
    return None
