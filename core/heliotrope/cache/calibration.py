"""How much of what is believed to be cached really is, learned from what engines report of each prompt.

A prefix index only knows what was sent to an endpoint, or what its events told; the engine may have evicted it since.
What counts is the share ρ = true / believed of each request, by endpoint and by the time since the prefix was last used
there, because eviction takes what was used longest ago. Every mean shrinks towards a broader one:

    pool     m(b)    = (P·1 + Σρ) / (P + n)       over all endpoints, by age b
    endpoint m(e, b) = (K·m(b) + Σρ) / (K + n)    over its own

Before anything is learned a belief is taken at its word. Older requests count less, so that an engine that changed is
believed anew. ρ is near 0 or 1 for most requests, so that its variance is at most m·(1 − m).
"""

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from math import isfinite, sqrt

BIN_EDGES = tuple(4.0**power for power in range(7))
"""Seconds: where one age bin ends and the next begins."""
BINS = len(BIN_EDGES) + 1
POOL_PRIOR = 2.0
"""P: requests that the belief in the index counts for."""
ENDPOINT_PRIOR = 4.0
"""K: requests that the pool's mean counts for."""
MEMORY_REQUESTS = 64.0
"""Requests of an endpoint and age after which an earlier one counts 1/e."""
POOL_MEMORY_REQUESTS = 512.0


def age_bin(age_seconds: float) -> int:
    """The bin of an age; an unknown one is in the last, which is believed least."""
    return bisect_right(BIN_EDGES, age_seconds) if age_seconds == age_seconds else BINS - 1


@dataclass(frozen=True, slots=True)
class Trust:
    """What of a belief is expected to be true."""

    share: float
    """Mean of ρ, in [0, 1]."""
    deviation: float
    """Of ρ for one request, in [0, 1)."""


def _trust(mean: float, weight: float) -> Trust:
    return Trust(mean, sqrt(mean * (1.0 - mean) * (1.0 + 1.0 / weight)) if 0.0 < mean < 1.0 else 0.0)


class _Sums:
    """Fading sums by age."""

    __slots__ = ("counts", "totals")

    def __init__(self) -> None:
        self.counts = [0.0] * BINS
        self.totals = [0.0] * BINS

    def add(self, b: int, share: float, memory: float) -> None:
        keep = 1.0 - 1.0 / memory
        self.counts[b] = self.counts[b] * keep + 1.0
        self.totals[b] = self.totals[b] * keep + share


class CacheCalibration:
    """Trust in an index's beliefs. Memory is bounded by `max_endpoints`; those that were learned from last stay."""

    def __init__(self, max_endpoints: int = 4_096) -> None:
        self._max_endpoints = max_endpoints
        self._pool = _Sums()
        self._endpoints: OrderedDict[str, _Sums] = OrderedDict()
        self._known: dict[str, tuple[Trust, ...]] = {}
        self._any = tuple(_trust(1.0, POOL_PRIOR) for _ in range(BINS))
        self.learned_total = 0
        """Requests that were learned from."""
        self.false_claims_total = 0
        """Those of them where less than half of what was believed was there."""
        self.believed_tokens_total = 0.0
        self.true_tokens_total = 0.0
        """Of the believed ones."""
        self.forgotten_total = 0
        """Endpoints dropped because there were too many."""

    def trust(self, endpoint: str, age_seconds: float) -> Trust:
        """What to believe of a prefix that was last used there so long ago."""
        return self.trusts(endpoint)[age_bin(age_seconds)]

    def trusts(self, endpoint: str) -> tuple[Trust, ...]:
        """By `age_bin`."""
        return self._known.get(endpoint, self._any)

    def pool(self) -> tuple[Trust, ...]:
        """Of an endpoint that nothing is known of, by `age_bin`."""
        return self._any

    def learn(self, endpoint: str, age_seconds: float, believed_tokens: float, true_tokens: float) -> None:
        """A request was served whose prefix was believed to be cached there.

        Args:
            endpoint: where.
            age_seconds: since the prefix was last used there, when the request was sent.
            believed_tokens: what the index said, before any trust was applied; others than above 0 teach nothing.
            true_tokens: what the engine reported; more than was believed counts as all of it.
        """
        if not (isfinite(believed_tokens) and isfinite(true_tokens) and believed_tokens > 0.0):
            return
        share = min(max(true_tokens / believed_tokens, 0.0), 1.0)
        b = age_bin(age_seconds)
        sums = self._endpoints.get(endpoint)
        if sums is None:
            sums = self._endpoints[endpoint] = _Sums()
            if len(self._endpoints) > self._max_endpoints:
                dropped, _ = self._endpoints.popitem(last=False)
                self._known.pop(dropped, None)
                self.forgotten_total += 1
        self._endpoints.move_to_end(endpoint)
        sums.add(b, share, MEMORY_REQUESTS)
        self._pool.add(b, share, POOL_MEMORY_REQUESTS)
        self.learned_total += 1
        self.false_claims_total += share < 0.5
        self.believed_tokens_total += believed_tokens
        self.true_tokens_total += share * believed_tokens
        pool, any_ = self._pool, list(self._any)
        weight = POOL_PRIOR + pool.counts[b]
        any_[b] = _trust((POOL_PRIOR + pool.totals[b]) / weight, weight)
        self._any = tuple(any_)
        self._known[endpoint] = tuple(self._of(sums, i) for i in range(BINS))

    def forget(self, endpoint: str) -> None:
        """The endpoint is gone, or another engine has taken its place."""
        self._endpoints.pop(endpoint, None)
        self._known.pop(endpoint, None)

    def __len__(self) -> int:
        return len(self._endpoints)

    def _of(self, sums: _Sums, b: int) -> Trust:
        weight = ENDPOINT_PRIOR + sums.counts[b]
        return _trust((ENDPOINT_PRIOR * self._any[b].share + sums.totals[b]) / weight, weight)
