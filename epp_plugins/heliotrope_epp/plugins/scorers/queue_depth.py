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
        waiting = [option.load.waiting for option in options]
        known = [w for w in waiting if w == w]  # not NaN
        if not known:
            return np.zeros(len(options))
        shortest, longest = min(known), max(known)
        if shortest == longest:
            return np.array([1.0 if w == w else 0.0 for w in waiting])
        span = longest - shortest
        return np.array([(longest - w) / span if w == w else 0.0 for w in waiting])
