"""How a picker's recent requests are spread over regions, and whether one more fits under the largest share.

Counts decay exponentially by requests, not by time: each request makes every earlier one count 1 − 1/W of what it did,
so about the last W requests count, however long they took, and a quiet night does not empty the window.

One more request fits into region g while  n_g ≤ s · (n + 1),  n_g being its count, n the sum and s the largest share.
A region then never holds more than s · n + 1: with the first requests no share could be kept exactly. Decay scales both
sides alike, so the bound holds at every moment. Several pickers each keep the share of what they see, so together they
keep it too.
"""

from collections.abc import Mapping

WINDOW_REQUESTS = 1_000
_RESCALE_ABOVE = 1e9
_FORGET_BELOW = 1e-3
MAX_REGIONS = 4_096


class RegionShares:
    """Counts of one picker. A request is O(1); regions that got nothing for long are forgotten."""

    def __init__(self, window_requests: int = WINDOW_REQUESTS) -> None:
        """Remember about this many requests."""
        self._growth = 1.0 / (1.0 - 1.0 / window_requests)
        self._weight = 1.0  # of the next request: earlier ones shrink by growing it
        self._weighted: dict[str | None, float] = {}

    def sent(self, region: str | None) -> None:
        """A request was sent there; None is a region of its own, of all endpoints whose region is unknown."""
        if region not in self._weighted and len(self._weighted) >= MAX_REGIONS:
            self._rescale(MAX_REGIONS // 2)
        self._weighted[region] = self._weighted.get(region, 0.0) + self._weight
        self._weight *= self._growth
        if self._weight > _RESCALE_ABOVE:
            self._rescale(MAX_REGIONS)

    def counts(self) -> Mapping[str | None, float]:
        """Decayed counts by region; their sum approaches the window."""
        scale = self._growth / self._weight
        return {region: weighted * scale for region, weighted in self._weighted.items()}

    def _rescale(self, keep: int) -> None:
        counts = sorted(self.counts().items(), key=lambda item: -item[1])[:keep]
        self._weighted = {region: count for region, count in counts if count > _FORGET_BELOW}
        self._weight = self._growth


def regions_at_limit(counts: Mapping[str | None, float], largest_share: float) -> frozenset[str | None]:
    """Regions that one more request does not fit into."""
    if largest_share >= 1.0:
        return frozenset()
    limit = largest_share * (sum(counts.values()) + 1.0)
    return frozenset(region for region, count in counts.items() if count > limit)
