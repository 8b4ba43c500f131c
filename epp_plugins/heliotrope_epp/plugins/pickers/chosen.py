"""The features of an endpoint that was chosen without a carbon decision, so that such requests teach models too."""

from collections.abc import Mapping

import numpy as np

from heliotrope.decide.candidates import FloatColumn, RegionView
from heliotrope.decide.estimate import estimate
from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.plugins.interface import LlmRequest, Option
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.columns import candidates_of, request_profile
from heliotrope_epp.plugins.pickers.fixed import FixedColumnsCache

MAX_ENDPOINTS = 1_000
"""Whose columns are kept; beyond, all of them are made again."""
_NO_POLICY = DecisionPolicy(name="")
_NO_SCORE = np.zeros(1)


class ChosenRows:
    """Makes rows of single endpoints; what only changes with the resources is kept between them."""

    def __init__(self) -> None:
        self._fixed: dict[str, FixedColumnsCache] = {}

    def row(
        self, request: LlmRequest, chosen: Option, regions: Mapping[str, RegionView], now_unix_s: float
    ) -> FloatColumn:
        """The row (`heliotrope.predict.features`) that a decision about this endpoint alone would have made.

        Its analytic energy is shared at the batch that the endpoint has: without a policy nobody consolidates the load
        of the pool, which a decision would have assumed.
        """
        options = Options.of((chosen,))
        candidates = candidates_of(options, _NO_SCORE, regions, self._cache(chosen.key).of(options))
        row: FloatColumn = estimate(request_profile(request), candidates, _NO_POLICY, now_unix_s).features[0]
        return row

    def _cache(self, endpoint: str) -> FixedColumnsCache:
        found = self._fixed.get(endpoint)
        if found is None:
            if len(self._fixed) >= MAX_ENDPOINTS:
                self._fixed.clear()
            found = self._fixed[endpoint] = FixedColumnsCache()
        return found
