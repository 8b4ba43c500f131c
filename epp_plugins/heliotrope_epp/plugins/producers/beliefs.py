"""From leading runs of blocks to cached tokens that a decision may count on, and back from what engines report."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliotrope.cache.calibration import BIN_EDGES, CacheCalibration, age_bin
from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.options import Beliefs

MAX_OPEN = 65_536
"""Requests whose answer is awaited; more are not learned from."""
COUNTED_TOKENS = 20_000.0
"""Prompt tokens that an engine must have looked up before its counters say something."""
OWN_SHARE = 0.8
"""Of them, this part at least must have come from this picker."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the index says of one endpoint for one prompt, before any trust is applied."""

    tokens: float
    """0: nothing."""
    age_seconds: float
    """Since the last block of it was used there."""
    offloaded_tokens: float
    """In the endpoint's memory or below it."""
    offloaded_age_seconds: float


class _Counted:
    """What was sent to one endpoint since its counters were read."""

    __slots__ = ("ages", "believed", "hits", "prompt", "queries")

    def __init__(self, queries: float, hits: float) -> None:
        self.queries = queries
        self.hits = hits
        self.prompt = 0.0
        self.believed = 0.0
        self.ages: set[float] = set()


class Believer:
    """Applies trust to what an index says and learns it from answers."""

    def __init__(self) -> None:
        self.own = CacheCalibration()
        """Of the endpoints' own memory."""
        self.lower = CacheCalibration()
        """Of what is only in a tier below it."""
        self._open: dict[int, tuple[str, Held, int]] = {}
        self._counted: dict[str, _Counted] = {}
        self._telling: set[str] = set()
        self.dropped_total = 0
        """Requests that nothing was learned from, as too many were open."""
        self.unbelieved_total = 0
        """Requests whose engine had cached a part of the prompt that the index knew nothing of."""
        self.counted_total = 0
        """Times that engines' counters were learned from, as their answers say nothing."""

    def believed(
        self,
        endpoints: Sequence[str],
        tokens: FloatColumn,
        ages_seconds: FloatColumn,
        offloaded: tuple[FloatColumn, FloatColumn] | None = None,
    ) -> Beliefs:
        """The expected values.

        Args:
            endpoints: their keys; columns are in this order.
            tokens: what the index says, 0 for nothing.
            ages_seconds: since the last of it was used there; of no meaning where there is nothing.
            offloaded: the same two of what lies there or below; None: no endpoint has lower tiers.
        """
        cached, deviation = _expected(self.own, endpoints, tokens, ages_seconds)
        if offloaded is None:
            return Beliefs(cached, deviation, cached)
        lower, lower_deviation = _expected(self.lower, endpoints, *offloaded)
        counts = (offloaded[0] > tokens) & (lower > cached)
        below = np.where(counts, lower, cached)
        return Beliefs(cached, deviation, below, np.where(counts, lower_deviation, deviation))

    def sent(self, request: object, endpoint: str, held: Held, prompt_tokens: int) -> None:
        """A request was sent to an endpoint of which the index said this. The object stays alive until `answered`."""
        if len(self._open) >= MAX_OPEN:
            self.dropped_total += 1
            return
        self._open[id(request)] = (endpoint, held, prompt_tokens)

    def answered(self, request: object, cached_tokens: int | None, prompt_tokens: int | None) -> None:
        """Its answer ended.

        Args:
            request: as it was sent.
            cached_tokens: what the engine reports; None: nothing, and nothing is learned.
            prompt_tokens: as the engine counts, to compare shares of the prompt where the picker counts otherwise.
        """
        sent = self._open.pop(id(request), None)
        if sent is None or cached_tokens is None or cached_tokens < 0 or not prompt_tokens or prompt_tokens < 0:
            return
        endpoint, held, counted = sent
        self._telling.add(endpoint)
        true = min(cached_tokens / prompt_tokens, 1.0) * counted
        if held.tokens > 0.0:
            self.own.learn(endpoint, held.age_seconds, held.tokens, true)
        elif cached_tokens > 0 and held.offloaded_tokens <= 0.0:
            self.unbelieved_total += 1
        if held.offloaded_tokens > held.tokens:
            self.lower.learn(endpoint, held.offloaded_age_seconds, held.offloaded_tokens, true)

    def counters(
        self, endpoint: str, queries: float | None, hits: float | None, held: Held, prompt_tokens: int
    ) -> None:
        """A request was sent to an engine whose counters of prefix look-ups, in tokens, stand like this.

        They are learned from where answers do not tell: over a window in which nearly all look-ups were this picker's,
        the share of hits is compared with the share that was believed. None, and counters that fall, begin anew.
        """
        if endpoint in self._telling:
            self._counted.pop(endpoint, None)
            return
        window = self._counted.get(endpoint)
        if queries is None or hits is None:
            self._counted.pop(endpoint, None)
            return
        if window is None or queries < window.queries or hits < window.hits:
            window = self._counted[endpoint] = _Counted(queries, hits)
        looked_up = queries - window.queries
        if looked_up >= COUNTED_TOKENS:
            if window.believed > 0.0 and window.prompt >= OWN_SHARE * looked_up:
                believed = window.believed / window.prompt * looked_up
                for age_seconds in window.ages:
                    self.own.learn(endpoint, age_seconds, believed, hits - window.hits)
                self.counted_total += 1
            window = self._counted[endpoint] = _Counted(queries, hits)
        window.prompt += prompt_tokens
        window.believed += held.tokens
        if held.tokens > 0.0:
            b = age_bin(held.age_seconds)
            window.ages.add(BIN_EDGES[b - 1] if b else 0.0)

    def forget(self, endpoint: str) -> None:
        """The endpoint is gone or another engine has taken its place."""
        self.own.forget(endpoint)
        self.lower.forget(endpoint)
        self._counted.pop(endpoint, None)
        self._telling.discard(endpoint)


def _expected(
    calibration: CacheCalibration, endpoints: Sequence[str], tokens: FloatColumn, ages_seconds: FloatColumn
) -> tuple[FloatColumn, FloatColumn]:
    """Mean and standard deviation in tokens."""
    if calibration.learned_total == 0:
        return tokens, np.zeros(len(tokens))
    bins = np.searchsorted(BIN_EDGES, ages_seconds, side="right").tolist()
    trusts = [calibration.trusts(endpoint)[b] for endpoint, b in zip(endpoints, bins, strict=True)]
    return (
        tokens * np.array([trust.share for trust in trusts]),
        tokens * np.array([trust.deviation for trust in trusts]),
    )
