"""The features of an endpoint that was chosen without a carbon decision, so that such requests teach models too."""

from collections.abc import Mapping

import numpy as np

from heliotrope.decide.candidates import FloatColumn, RegionView
from heliotrope.decide.estimate import estimate
from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.carbon import candidates_of, request_profile

_NO_POLICY = DecisionPolicy(name="")


def chosen_row(
    request: LlmRequest, chosen: Option, regions: Mapping[str, RegionView], now_unix_s: float
) -> FloatColumn:
    """The row (`heliotrope.predict.features`) that a decision about this endpoint alone would have made.

    Its analytic energy is shared at the batch that the endpoint has: without a policy nobody consolidates the load of
    the pool, which a decision would have assumed.
    """
    candidates = candidates_of(Options.of((chosen,)), np.zeros(1), regions)
    row: FloatColumn = estimate(request_profile(request), candidates, _NO_POLICY, now_unix_s).features[0]
    return row
