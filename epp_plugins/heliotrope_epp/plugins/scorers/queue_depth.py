"""`queue-scorer`: the shorter the queue, the better."""

from collections.abc import Sequence

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Option

QUEUE_SCORER = "queue-scorer"


class QueueScorer:
    """1 for the shortest queue, 0 for the longest, linear between; 1 for all when they are equal; 0 where unknown."""

    def score(self, request: LlmRequest, options: Sequence[Option]) -> FloatColumn:  # noqa: ARG002
        """Rate each option by its queue among `options`."""
        waiting = [_waiting(option) for option in options]
        known = [w for w in waiting if w == w]  # not NaN
        if not known:
            return np.zeros(len(options))
        shortest, longest = min(known), max(known)
        if shortest == longest:
            return np.array([1.0 if w == w else 0.0 for w in waiting])
        span = longest - shortest
        return np.array([(longest - w) / span if w == w else 0.0 for w in waiting])


def _waiting(option: Option) -> float:
    """Our requests that wait for their first token now, or the engine's queue at its last scrape if that is longer.

    The scrape also counts what others sent; our own count also holds what was sent since the scrape. NaN where the
    metrics are missing or stale.
    """
    ours = option.load.waiting
    metrics = option.state.metrics
    if metrics is None or metrics.waiting is None:
        return ours
    return metrics.waiting if metrics.waiting > ours else ours
