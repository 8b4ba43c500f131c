"""`mm-embeddings-cache-scorer`: the more of a request's images an endpoint remembers, the better."""

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope_epp.plugins.embeddings import EmbeddingIndex
from heliotrope_epp.plugins.interface import LlmRequest, Options

MM_EMBEDDINGS_CACHE_SCORER = "mm-embeddings-cache-scorer"


class MmEmbeddingsCacheScorer:
    """matched / all, counted in different images; 0 for text."""

    def __init__(self, index: EmbeddingIndex) -> None:
        self._index = index

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:
        """Rate each option by what is believed to be remembered there."""
        if not request.media:
            return np.zeros(len(options))
        held = self._index.held(request.media)
        matched = [len(held.get(state.endpoint.key, ())) for state in options.states]
        share: FloatColumn = np.array(matched, dtype=np.float64) / len(request.media)
        return share
