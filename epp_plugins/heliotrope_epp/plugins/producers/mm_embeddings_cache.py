"""`mm-embeddings-cache-producer`: how many images are remembered. The index itself is there without it."""

from pydantic import Field

from heliotrope_epp.plugins.embeddings import DEFAULT_CACHE_SIZE, EmbeddingIndex
from heliotrope_epp.plugins.parameters import StrictModel

MM_EMBEDDINGS_CACHE_PRODUCER = "mm-embeddings-cache-producer"


class MmEmbeddingsCacheProducerParameters(StrictModel):
    """llm-d's parameters of the type."""

    cache_size: int = Field(default=DEFAULT_CACHE_SIZE, ge=1, le=10_000_000)
    """Images whose holders are remembered."""


def sized(parameters: MmEmbeddingsCacheProducerParameters, index: EmbeddingIndex) -> EmbeddingIndex:
    """The index with the size of the configuration."""
    index.resize(parameters.cache_size)
    return index
