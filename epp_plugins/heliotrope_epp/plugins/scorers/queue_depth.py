"""`queue-scorer`: the shorter the queue, the better."""

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Options

QUEUE_SCORER = "queue-scorer"


class QueueScorer:
    """1 for the shortest queue, 0 for the longest, linear between; 1 for all when they are equal; 0 where unknown."""

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:  # noqa: ARG002
        """Rate each option by its queue among `options`."""
        waiting = options.loads.waiting
        shortest, longest = np.fmin.reduce(waiting), np.fmax.reduce(waiting)
        span = float(longest - shortest)
        rated: FloatColumn = (longest - waiting) / span if span > 0.0 else 1.0 + 0.0 * waiting
        return np.where(np.isnan(rated), 0.0, rated)
