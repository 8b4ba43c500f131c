"""The data layer as a whole: from a source to the store that decisions read."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from heliotrope.engine.model import EngineModel
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.resources import PoolRef, Resources, Source
from heliotrope_epp.datalayer.scrape import Scraper, ScrapeSettings
from heliotrope_epp.datalayer.signals import Changed, SignalBook
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import World, resolve

_log = logging.getLogger(__name__)


class DataLayer:
    """Keeps a store true while it runs: resources are resolved, engines scraped, carbon signals followed."""

    def __init__(
        self,
        source: Source,
        store: EndpointStore,
        *,
        pool: PoolRef | None,
        profiles: Mapping[str, EngineModel],
        signals: Callable[[Changed], SignalBook],
        scrape: ScrapeSettings,
        clock: Clock,
        rng: random.Random | None = None,
    ) -> None:
        """Build on a store.

        For `pool` and `profiles` see `resolve`. `signals` is given the function that takes the signals and returns
        their book: `PublishedSignals`, for instance.
        """
        self._source = source
        self._store = store
        self._pool = pool
        self._profiles = profiles
        self._signals = signals
        self._scrape = scrape
        self._clock = clock
        self._rng = rng
        self.ready = asyncio.Event()
        """Set once the first complete state is in the store."""

    @property
    def healthy(self) -> bool:
        """Whether the source could be read at the last try; if not, the store holds what was last known."""
        return self._source.healthy

    @property
    def problems(self) -> tuple[str, ...]:
        """What of the resources cannot be honoured, each with its reason."""
        return self._store.world.problems

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            InvalidInputError: if the source has nothing to start from.
        """
        store = self._store
        book = self._signals(store.set_signals)

        def publish(resources: Resources) -> None:
            before = store.world
            world = resolve(resources, self._pool, self._profiles)
            store.apply(world)
            book.update(world.regions.values())
            _log_changes(before, world, resources, first=not self.ready.is_set())
            self.ready.set()

        async with Scraper(
            self._scrape, cache_lost=store.cache_lost, clock=self._clock.monotonic, rng=self._rng
        ) as scraper:
            store.listen(scraper)
            try:
                await self._source.run(publish)
            finally:
                await book.close()


def _log_changes(before: World, now: World, resources: Resources, *, first: bool) -> None:
    """What a person at the log wants to know; the source has told of its own problems."""
    for problem in now.problems:
        if problem not in before.problems and problem not in resources.problems:
            _log.warning("%s", problem)
    if first or _summary(before) != _summary(now):
        _log.info("%s", _summary(now))


def _summary(world: World) -> str:
    policy = "no policy" if world.policy is None else f"policy {world.policy.name}"
    return f"{len(world.endpoints)} endpoints, {len(world.regions)} regions, {policy}"
