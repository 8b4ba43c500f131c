"""From leading runs of blocks to cached tokens that a decision may count on, and back from what engines report."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliotrope.cache.calibration import BIN_EDGES, CacheCalibration
from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.options import Beliefs

MAX_OPEN = 65_536
"""Requests whose answer is awaited; more are not learned from."""


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


class Believer:
    """Applies trust to what an index says and learns it from answers."""

    def __init__(self) -> None:
        self.own = CacheCalibration()
        """Of the endpoints' own memory."""
        self.lower = CacheCalibration()
        """Of what is only in a tier below it."""
        self._open: dict[int, tuple[str, Held, int]] = {}
        self.dropped_total = 0
        """Requests that nothing was learned from, as too many were open."""
        self.unbelieved_total = 0
        """Requests whose engine had cached a part of the prompt that the index knew nothing of."""

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
        lower, _ = _expected(self.lower, endpoints, *offloaded)
        return Beliefs(cached, deviation, np.where(offloaded[0] > tokens, np.maximum(cached, lower), cached))

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
        true = min(cached_tokens / prompt_tokens, 1.0) * counted
        if held.tokens > 0.0:
            self.own.learn(endpoint, held.age_seconds, held.tokens, true)
        elif cached_tokens > 0 and held.offloaded_tokens <= 0.0:
            self.unbelieved_total += 1
        if held.offloaded_tokens > held.tokens:
            self.lower.learn(endpoint, held.offloaded_age_seconds, held.offloaded_tokens, true)

    def forget(self, endpoint: str) -> None:
        """The endpoint is gone or another engine has taken its place."""
        self.own.forget(endpoint)
        self.lower.forget(endpoint)


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
