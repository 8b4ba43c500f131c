"""`power-headroom-scorer`: the more power is left under the accelerators' limits, the better."""

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Options
from heliotrope_epp.plugins.memory import power_columns

POWER_HEADROOM_SCORER = "power-headroom-scorer"


class PowerHeadroomScorer:
    """1 − draw / limit, at least 0; 0 where an accelerator is throttled, and where the draw or the limit is unknown."""

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:  # noqa: ARG002
        """Rate each option by the share of its power limit that is left."""
        headroom, throttled = power_columns(options)
        limit = headroom + options.loads.power_watts
        share = np.divide(headroom, limit, out=np.zeros(len(options)), where=limit > 0.0)
        score: FloatColumn = np.where(throttled > 0.0, 0.0, np.fmax(np.nan_to_num(share), 0.0))
        return score
