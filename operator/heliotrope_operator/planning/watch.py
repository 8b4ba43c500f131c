"""Follows what is asked of the pools that a policy plans for: a round every few seconds."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.kinds.pools import Pool
from heliotrope_operator.planning.observed import SILENCE_S, EngineRates, ModelRates, PoolObserver
from heliotrope_operator.planning.pickers import Pickers
from heliotrope_operator.planning.remembered import Recalled
from heliotrope_operator.planning.tails import WINDOW_S, tail_seconds
from heliotrope_operator.resources import Key
from heliotrope_operator.tables import EngineSeen, PoolDemand, Tables, VariantLoad

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Observed:
    """What is asked of one pool."""

    models: Mapping[str, ModelRates] | None
    """None: unknown."""
    held: Mapping[str, float]
    engines: Mapping[str, EngineRates]
    problem: str | None
    by_prometheus: bool = False
    """Whether the models' rates are Prometheus', as pickers tell none."""
    by_engines: bool = False
    """Whether these are of the requests that engines served, as no picker's counters are known at all."""
    gaps: Mapping[str, str] = field(default_factory=dict)
    """By model, why its rates are not known though those of others may be."""
    keeps: Mapping[str, str] = field(default_factory=dict)
    """By model, why none of its replicas may be taken away."""


NOT_YET = Observed(None, {}, {}, None)
NOT_LATELY = Observed(None, {}, {}, "its pickers were not asked lately")


class DemandWatch:
    """Holds an observer for each pool that is followed."""

    def __init__(
        self,
        cluster: Cluster,
        tables: Tables,
        pickers: Pickers,
        *,
        poll_s: float,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        on_round: Callable[[Key, Observed], None],
        wake: Callable[[], None],
        remembered: Callable[[Key], tuple[Recalled | None, str | None]] = lambda _: (None, None),
    ) -> None:
        """Follow nothing yet.

        Args:
            cluster: where pools, policies and variants are known.
            tables: `loads` and `demand` are written.
            pickers: who is asked.
            poll_s: seconds between rounds.
            clock: monotonic.
            unix_clock: of the times in `loads`.
            on_round: hears of each pool's round.
            wake: called when requests are held that were not before: somebody should plan now.
            remembered: what somebody else says of a pool whose pickers are silent, and what is wrong with that.
        """
        self._cluster = cluster
        self._tables = tables
        self._pickers = pickers
        self._poll_s = poll_s
        self._clock = clock
        self._unix_clock = unix_clock
        self._on_round = on_round
        self._wake = wake
        self._remembered = remembered
        self._observers: dict[Key, PoolObserver] = {}
        self._holding: set[tuple[Key, str]] = set()

    def of(self, pool: Key) -> Observed:
        """What was seen of a pool last."""
        observer = self._observers.get(pool)
        if observer is None or observer.taken_s == float("-inf"):
            return NOT_YET
        if self._clock() - observer.taken_s > SILENCE_S:
            return NOT_LATELY
        seen = Observed(observer.models, observer.held, observer.engines, observer.problem)
        if observer.models is not None:
            return seen
        told, problem = self._remembered(pool)
        if told is not None:
            return Observed(
                told.models,
                seen.held or told.held,
                told.engines,
                seen.problem,
                by_prometheus=True,
                by_engines=told.by_engines,
                gaps=told.gaps,
                keeps=told.keeps,
            )
        if problem is None or seen.problem is None:
            return seen
        return replace(seen, problem=f"{seen.problem}; Prometheus: {problem}")

    def silent(self, pool: Key) -> bool:
        """Whether a pool's pickers were asked and tell no rates."""
        observer = self._observers.get(pool)
        return observer is not None and observer.models is None

    async def run(self) -> None:
        """Rounds until cancelled."""
        while True:
            started = self._clock()
            await self.round()
            await asyncio.sleep(max(self._poll_s - (self._clock() - started), 0.1))

    async def round(self) -> None:
        """Ask the pickers of every pool that is followed."""
        pools = {key: pool for key, pool in self._cluster.pools.items() if _followed(self._cluster.winner(key))}
        self._pickers.keep(pools)
        for gone in self._observers.keys() - pools.keys():
            del self._observers[gone]
        await asyncio.gather(*(self._one(key, pool) for key, pool in pools.items()))
        holding = {(key, model) for key in pools for model, count in self.of(key).held.items() if count > 0}
        if holding - self._holding:
            self._wake()
        self._holding = holding
        self._write_loads(pools)
        self._write_demand(pools)

    async def _one(self, key: Key, pool: Pool) -> None:
        observer = self._observers.setdefault(key, PoolObserver())
        asked = await self._pickers.ask(key, pool)
        before = observer.problem
        observer.take(asked, self._clock(), _window_s(self._cluster.winner(key)))
        if observer.problem != before and observer.problem is not None:
            _log.warning("%s: %s", key, observer.problem)
        self._on_round(key, self.of(key))

    def _write_loads(self, pools: Iterable[Key]) -> None:
        now = self._unix_clock()
        loads = {}
        for pool in pools:
            engines = self._observers[pool].engines
            for key in self._cluster.variants_of(pool):
                pods = self._cluster.pods_of(key)
                if (load := variant_load(pods, engines, now)) is not None:
                    loads[key] = load
        for gone in self._tables.loads.keys() - loads.keys():
            del self._tables.loads[gone]
        self._tables.loads.update(loads)

    def _write_demand(self, pools: Iterable[Key]) -> None:
        now, table = self._unix_clock(), self._tables.demand
        seen = {pool: self.of(pool) for pool in pools}
        for gone in table.keys() - seen.keys():
            del table[gone]
        for pool, observed in seen.items():
            # Engines that serve may be few because many sleep: what they served says nothing to whoever wakes them.
            models = None if observed.by_engines else observed.models
            table[pool] = PoolDemand(
                now,
                None if models is None else {name: each.requests_per_second for name, each in models.items()},
                observed.held,
                {pod: EngineSeen(e.asleep, e.running, e.waiting) for pod, e in self._observers[pool].engines.items()},
            )


def variant_load(
    pods: Iterable[tuple[Key, Pod]], engines: Mapping[str, EngineRates], now_unix_s: float
) -> VariantLoad | None:
    """What a variant's engines together are asked for; None where one that serves is unknown, or none serves."""
    serving = [engines.get(key.name) for key, pod in pods if pod.serves]
    awake = [each for each in serving if each is not None and each.asleep is not True]
    requests = [each.requests_per_second for each in awake]
    if not awake or None in serving or any(rate is None for rate in requests):
        return None
    total = sum(rate for rate in requests if rate is not None)
    return VariantLoad(
        measured_unix_s=now_unix_s,
        requests_per_second=total,
        prompt_tokens=_per_request([each.prompt_tokens_per_second for each in awake], total),
        output_tokens=_per_request([each.output_tokens_per_second for each in awake], total),
        ttft_seconds=tail_seconds(each.first_token for each in awake),
        tpot_seconds=tail_seconds(each.output_token for each in awake),
        mean_ttft_seconds=_mean([(each.ttft_seconds, each.requests_per_second) for each in awake]),
        mean_tpot_seconds=_mean([(each.tpot_seconds, each.output_tokens_per_second) for each in awake]),
    )


def _mean(weighed: list[tuple[float | None, float | None]]) -> float | None:
    """Over the engines that had anything to measure."""
    known = [(value, weight) for value, weight in weighed if value is not None and weight]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total > 0.0 else None


def _per_request(rates: list[float | None], requests_per_second: float) -> float | None:
    if requests_per_second <= 0.0 or any(rate is None for rate in rates):
        return None
    return sum(rate for rate in rates if rate is not None) / requests_per_second


def _window_s(policy: CarbonPolicy | None) -> float:
    """What counts as lately: shorter than usual where clocks may change more often."""
    power = None if policy is None else policy.spec.power
    return WINDOW_S if power is None else min(WINDOW_S, 2.0 * power.minimum_dwell.total_seconds())


def _followed(policy: CarbonPolicy | None) -> bool:
    """Whether anything is planned for a pool under its policy."""
    if policy is None:
        return False
    spec = policy.spec
    return spec.autoscaling is not None or spec.power is not None or spec.demand_response is not None
