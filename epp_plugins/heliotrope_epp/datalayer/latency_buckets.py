"""Histograms of TTFT and TPOT out of an engine's page: promises are about the tail, which sums do not tell."""

import re
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan

from heliotrope_epp.datalayer.metrics_text import MetricNames, samples

MAX_BOUNDS = 64
_UPPER = re.compile(rb'(?:^|,)\s*le="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram since the engine's start."""

    upper_seconds: tuple[float, ...]
    """Upper bounds, ascending, without the last one, which is infinite."""
    cumulative: tuple[float, ...]
    """How many were at most as long as each bound, and as the last number how many there were; one more than bounds."""


@dataclass(frozen=True, slots=True)
class LatencyBuckets:
    """What one page says; None: the engine has no such histogram, or one that cannot be read."""

    read_s: float
    """Monotonic time at which the page arrived."""
    first_token: Buckets | None
    """Time to first token of each request."""
    output_token: Buckets | None
    """Mean time per output token of each request."""


def latency_buckets(page: bytes, names: MetricNames, read_s: float) -> LatencyBuckets:
    """Read both histograms of a page."""
    page = b"\n" + page
    return LatencyBuckets(
        read_s,
        _buckets(page, names.first_token_buckets),
        _buckets(page, names.output_token_buckets),
    )


def _buckets(page: bytes, name: bytes | None) -> Buckets | None:
    """Series of several engine cores are added up, bound by bound."""
    if name is None:
        return None
    found: dict[float, float] = {}
    for labels, text in samples(page, name):
        match, words = _UPPER.search(labels), text.split(None, 1)
        try:
            upper = float(match[1]) if match else None
            count = float(words[0]) if words else None
        except ValueError:
            return None
        if upper is None or count is None or not isfinite(count) or isnan(upper):
            return None
        found[upper] = found.get(upper, 0.0) + count
    ordered = sorted(found)
    if not ordered or ordered[-1] != float("inf") or len(ordered) > MAX_BOUNDS + 1:
        return None
    cumulative = tuple(found[upper] for upper in ordered)
    if any(later < earlier for earlier, later in pairwise(cumulative)):
        return None
    return Buckets(tuple(ordered[:-1]), cumulative)
