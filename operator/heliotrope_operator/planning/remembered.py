"""Asks Prometheus beside the rounds of pickers: once for each model's past, and for now while pickers are silent.

Of now it is asked twice, each with a back-off of its own: what was scraped of the pickers, and what was of the engines.
The first is what comes in, the second what is served; where the first is not there, as with another endpoint picker,
the second stands for it.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.planning.histories import Histories
from heliotrope_operator.planning.observed import EngineRates, ModelRates
from heliotrope_operator.planning.prometheus import DemandQueries, Told
from heliotrope_operator.planning.served import Replica, Served, served
from heliotrope_operator.polling import Outcome, outcome_of
from heliotrope_operator.resources import Key
from heliotrope_operator.workqueue import Backoff

_log = logging.getLogger(__name__)

ROUND_S = 15.0
KEPT_S = 60.0
"""An answer counts for so long."""
AT_ONCE = 2
BACKOFF = Backoff(15.0, 600.0)
PAST, NOW, ENGINES = "past", "now", "engines"
"""What is asked for."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What Prometheus says of a pool at a moment."""

    models: Mapping[str, ModelRates]
    held: Mapping[str, float]
    engines: Mapping[str, EngineRates]
    """By pod; empty where they are not scraped, or no longer fresh."""
    gaps: Mapping[str, str]
    """By model, why its rates are not known; such a model is not in `models`. What was known of it a minute ago may
    still count, as for a replica that has just started and was not scraped yet."""
    keeps: Mapping[str, str]
    """By model, why none of its replicas may be taken away."""
    by_engines: bool
    """Whether the rates are of requests that engines served, not of those that came to pickers."""


@dataclass(slots=True)
class _Attempts:
    """At one question."""

    problem: str | None = None
    failures: int = 0
    again_s: float = float("-inf")


@dataclass(slots=True)
class _Memory:
    """Of one pool."""

    seeded: set[str] = field(default_factory=set)
    """Models whose past was asked for."""
    silent: bool = False
    """Whether its pickers told nothing in the round before, too; one that has just started tells in its second."""
    told: Told | None = None
    told_s: float = float("-inf")
    served: Served = field(default_factory=Served)
    served_s: float = float("-inf")
    attempts: dict[str, _Attempts] = field(
        default_factory=lambda: {purpose: _Attempts() for purpose in (PAST, NOW, ENGINES)}
    )


class Remembered:
    """What one Prometheus server knows of the pools that a policy scales."""

    def __init__(
        self,
        cluster: Cluster,
        histories: Histories,
        queries: DemandQueries,
        *,
        silent: Callable[[Key], bool],
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        rng: random.Random | None = None,
    ) -> None:
        """Know nothing yet.

        Args:
            cluster: where pools, policies and variants are known.
            histories: are given the past.
            queries: of the server.
            silent: whether a pool's own pickers tell nothing.
            clock: monotonic.
            unix_clock: of the histories.
            rng: of the back-off.
        """
        self._cluster = cluster
        self._histories = histories
        self._queries = queries
        self._silent = silent
        self._clock = clock
        self._unix_clock = unix_clock
        self._rng = rng or random.Random()
        self._known: dict[Key, _Memory] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self.counts: Counter[tuple[str, str]] = Counter()
        """Questions by what was asked for (`past`, `now`, `engines`) and outcome."""

    def told(self, pool: Key) -> Recalled | None:
        """What is asked of a pool now; None: Prometheus was not asked lately, or does not know."""
        memory = self._known.get(pool)
        if memory is None:
            return None
        now = self._clock()
        scraped = now - memory.served_s < memory.served.fresh_for_s
        found = memory.served if scraped else Served()
        keeps = {**found.gaps, **found.queues}
        if memory.told is not None and now - memory.told_s <= KEPT_S:
            return Recalled(memory.told.models, memory.told.held, found.engines, {}, keeps, by_engines=False)
        if scraped:
            return Recalled(found.models, {}, found.engines, found.gaps, keeps, by_engines=True)
        return None

    def problem(self, pool: Key) -> str | None:
        """Why Prometheus does not know what is asked now; None: it does, or was not asked."""
        memory = self._known.get(pool)
        if memory is None or self.told(pool) is not None:
            return None
        of_pickers, of_engines = memory.attempts[NOW].problem, memory.attempts[ENGINES].problem
        if of_engines is None:
            of_engines = next((f"{model}: {gap}" for model, gap in memory.served.gaps.items()), None)
        return "; ".join(dict.fromkeys(each for each in (of_pickers, of_engines) if each is not None)) or None

    async def run(self) -> None:
        """Rounds until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(ROUND_S)

    async def round(self) -> None:
        """Ask what is missing, of each pool that a policy scales."""
        pools = {}
        for key, pool in self._cluster.pools.items():
            policy = self._cluster.winner(key)
            if policy is not None and policy.spec.autoscaling is not None:
                pools[key] = pool
        for gone in self._known.keys() - pools.keys():
            del self._known[gone]
        await asyncio.gather(*(self._pool(key, pool.picker) for key, pool in pools.items()))

    async def _pool(self, key: Key, service: str | None) -> None:
        memory = self._known.setdefault(key, _Memory())
        variants = (self._cluster.variants.get(each) for each in self._cluster.variants_of(key))
        models = {variant.spec.model for variant in variants if variant is not None}
        memory.seeded &= models  # one that comes back is asked for again
        async with self._places:
            if service is not None and models - memory.seeded:
                await self._try(key, memory, PAST, self._seed(key, service, memory, models))
            silent = self._silent(key)
            if silent and memory.silent:
                if service is not None:
                    await self._try(key, memory, NOW, self._ask(key, service, memory))
                await self._try(key, memory, ENGINES, self._ask_of_engines(key, memory, models))
            memory.silent = silent

    async def _seed(self, key: Key, service: str, memory: _Memory, models: set[str]) -> None:
        missing = models - memory.seeded
        past = await self._queries.past(key.namespace, service, missing, self._unix_clock())
        for model, bins in past.items():
            self._histories.seed(key, model, bins)
        memory.seeded |= missing

    async def _ask(self, key: Key, service: str, memory: _Memory) -> None:
        memory.told = await self._queries.now(key.namespace, service)
        memory.told_s = self._clock()

    async def _ask_of_engines(self, key: Key, memory: _Memory, models: set[str]) -> None:
        replicas = self._replicas(key)
        asked_s = self._clock()
        found = await self._queries.engines(key.namespace, {each.pod for each in replicas})
        memory.served, memory.served_s = served(models, replicas, found), asked_s

    def _replicas(self, pool: Key) -> list[Replica]:
        replicas = []
        for key in self._cluster.variants_of(pool):
            variant = self._cluster.variants.get(key)
            if variant is None:
                continue
            for pod_key, pod in self._cluster.pods_of(key):
                if pod.leads:
                    replicas.append(Replica(pod_key.name, variant.spec.model, variant.spec.role, pod.serves))
        return replicas

    async def _try(self, key: Key, memory: _Memory, purpose: str, question: Coroutine[Any, Any, None]) -> None:
        attempts = memory.attempts[purpose]
        if self._clock() < attempts.again_s:
            question.close()
            return
        try:
            await question
        except (SignalUnavailableError, InvalidInputError) as error:
            self.counts[purpose, outcome_of(error).value] += 1
            if attempts.failures == 0:
                _log.warning("%s: Prometheus does not tell what is asked of it (%s): %s", key, purpose, error)
            attempts.failures += 1
            attempts.problem = str(error)
            attempts.again_s = self._clock() + BACKOFF.delay_s(attempts.failures, self._rng)
            return
        self.counts[purpose, Outcome.SUCCESS.value] += 1
        memory.attempts[purpose] = _Attempts()
