"""`kv-cache-utilization-scorer`: the more KV memory is free, the better."""

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Options

KV_CACHE_UTILIZATION_SCORER = "kv-cache-utilization-scorer"


class KvCacheUtilizationScorer:
    """1 − the share of KV blocks in use; 0 where it is unknown or stale."""

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:  # noqa: ARG002
        """Rate each option by its free KV memory."""
        usage = options.loads.kv_usage
        return np.where(np.isnan(usage), 0.0, 1.0 - usage)
