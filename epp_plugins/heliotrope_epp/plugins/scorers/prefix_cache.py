"""`prefix-cache-scorer`: the more of the prompt an endpoint caches, the better."""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.interface import LlmRequest, Options
from heliotrope_epp.plugins.kinds import PluginKind
from heliotrope_epp.plugins.parameters import Reference, StrictModel

PREFIX_CACHE_SCORER = "prefix-cache-scorer"


class PrefixCacheScorerParameters(StrictModel):
    """llm-d's parameters of the type."""

    prefix_match_info_producer_name: Annotated[str | None, Reference(PluginKind.PRODUCER)] = None
    """The producer to use, by name; by default the approximate one."""
    match_length_weight: float = Field(default=0.0, ge=0.0, le=1.0)
    """Weight of the match's absolute length, against that of its share of the prompt."""
    match_length_scale_tokens: int = 8192
    """Length from which the absolute part is 1."""

    @model_validator(mode="after")
    def _scale_is_positive(self) -> Self:
        if self.match_length_weight > 0.0 and self.match_length_scale_tokens <= 0:
            raise ValueError("matchLengthScaleTokens must be above 0 when matchLengthWeight is")
        return self


class PrefixCacheScorer:
    """(1 − w) · matched / total + w · min(1, matched / scale)²; 0 where nothing is known to be cached."""

    def __init__(self, parameters: PrefixCacheScorerParameters) -> None:
        self._weight = parameters.match_length_weight
        self._scale_tokens = float(max(parameters.match_length_scale_tokens, 1))

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:
        """Rate each option by the prompt tokens that it is believed to cache."""
        cached = options.cached_tokens
        share = cached / max(request.prompt_tokens, 1)
        if self._weight == 0.0:
            return share
        length = np.minimum(cached / self._scale_tokens, 1.0)
        combined: FloatColumn = (1.0 - self._weight) * share + self._weight * length * length
        return combined
