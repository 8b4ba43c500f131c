"""`kv-cache-utilization-scorer`: the more KV memory is free, the better."""

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Options

KV_CACHE_UTILIZATION_SCORER = "kv-cache-utilization-scorer"


class KvCacheUtilizationScorer:
    """1 − the share of KV blocks in use; 0 where it is unknown or stale."""

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:  # noqa: ARG002
        """Rate each option by its free KV memory."""
        usages = [None if state.metrics is None else state.metrics.kv_usage for state in options.states]
        free = np.array([0.0 if usage is None else 1.0 - usage for usage in usages])
        stale = np.isnan(options.loads.running)
        return np.where(stale, 0.0, free)
