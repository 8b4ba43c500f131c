"""`kv-cache-utilization-scorer`: the more KV memory is free, the better."""

from collections.abc import Sequence

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Option

KV_CACHE_UTILIZATION_SCORER = "kv-cache-utilization-scorer"


class KvCacheUtilizationScorer:
    """1 − the share of KV blocks in use; 0 where it is unknown or stale."""

    def score(self, request: LlmRequest, options: Sequence[Option]) -> FloatColumn:  # noqa: ARG002
        """Rate each option by its free KV memory."""
        return np.array([_free(option) for option in options], dtype=np.float64)


def _free(option: Option) -> float:
    metrics = option.state.metrics
    stale = option.load.running != option.load.running  # NaN
    return 0.0 if metrics is None or metrics.kv_usage is None or stale else 1.0 - metrics.kv_usage
