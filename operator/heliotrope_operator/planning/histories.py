"""What was asked of each pool for each model, in bins, as far back as this process knows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from heliotrope.scale.demand import Bin, History, Increase, forecast
from heliotrope.scale.facts import DemandForecast
from heliotrope.scale.pace import USUAL_INTERVAL_SECONDS, pace
from heliotrope_operator.planning.observed import ModelRates
from heliotrope_operator.resources import Key

ADDED_EVERY_S = 10.0
"""Rounds closer together than this are taken in together."""
LONGEST_S = 60.0
"""After a longer silence nobody knows what came meanwhile."""

NO_RATES = ModelRates(0.0, 0.0, 0.0)
"""Of a model that no picker has heard of: nothing was asked, which is known."""


class Histories:
    """One history for each model that variants of followed pools serve."""

    def __init__(self) -> None:
        self._known: dict[tuple[Key, str], History] = {}
        self._added: dict[Key, float] = {}

    def add(
        self,
        pool: Key,
        models: Iterable[str],
        rates: Mapping[str, ModelRates] | None,
        now_unix_s: float,
        interval_s: float = USUAL_INTERVAL_SECONDS,
    ) -> None:
        """Take in a round.

        Args:
            pool: whose.
            models: that its variants serve.
            rates: by model; None: unknown, so that nothing is taken in.
            now_unix_s: when the round ended.
            interval_s: time between decisions on the pool; who decides more often looks at shorter times.
        """
        faster = pace(interval_s)
        if rates is None:
            self._added.pop(pool, None)
            return
        since = self._added.get(pool)
        if since is None or not 0.0 < now_unix_s - since <= LONGEST_S:
            self._added[pool] = now_unix_s
            return
        seconds = now_unix_s - since
        if seconds < ADDED_EVERY_S * faster:
            return
        self._added[pool] = now_unix_s
        for model in models:
            of = rates.get(model, NO_RATES)
            came = Increase(
                seconds,
                of.requests_per_second * seconds,
                of.prompt_tokens_per_second * seconds,
                of.output_tokens_per_second * seconds,
            )
            known = self._known.get((pool, model), History())
            self._known[pool, model] = replace(known, pace=faster).add(now_unix_s, came)

    def seed(self, pool: Key, model: str, bins: Mapping[int, Bin]) -> None:
        """Take over what somebody else remembers; of two that saw the same bin, whoever saw more of it counts."""
        known = self._known.get((pool, model), History())
        own = {number: each for number, each in known.bins.items() if each.seconds >= bins.get(number, Bin()).seconds}
        self._known[pool, model] = replace(known, bins={**bins, **own})

    def of(self, pool: Key, model: str) -> History | None:
        """The history of a model; None: nothing is known."""
        return self._known.get((pool, model))

    def forecast(
        self, pool: Key, model: str, now_unix_s: float, step_seconds: float, steps: int
    ) -> DemandForecast | None:
        """What to expect; None: unknown. See `heliotrope.scale.demand.forecast`."""
        known = self._known.get((pool, model))
        return None if known is None else forecast(known, now_unix_s, step_seconds, steps)

    def keep(self, kept: Iterable[tuple[Key, str]]) -> None:
        """Forget all but these."""
        wanted = set(kept)
        pools = {pool for pool, _ in wanted}
        for gone in self._known.keys() - wanted:
            del self._known[gone]
        for pool in self._added.keys() - pools:
            del self._added[pool]
